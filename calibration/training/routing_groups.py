"""Groups of experts that the router keeps a token to, as a table of training runs states them."""

from __future__ import annotations

import math

from calibration.datasets.training import ALLOWED, Run
from hwspecs.errors import InputError

GROUPS = ("expert_groups", "groups_per_token")


def node_limit(run: Run, experts: float, ranks: float, node: float) -> float:
    """Nodes that the experts of a token are on at most: those of its groups, each on as many as its share of the ranks
    fills; 0 where a row states no groups, or those of a token reach every node.

    **Arguments:** `experts` of a layer [1]; `ranks` they are spread over; ranks of a `node`.
    **Raises:** `InputError` for one of the two columns alone, and for groups that the experts do not make.
    """
    groups, chosen = (run.layout[name] for name in GROUPS)
    if math.isnan(groups) and math.isnan(chosen):
        return 0.0
    for name, value in zip(GROUPS, (groups, chosen), strict=True):
        if math.isnan(value):
            raise InputError(f"{name} is not stated; {' and '.join(GROUPS)} go together.")
        if value < 1.0 or value != int(value):
            raise InputError(f"{name}: {value:g} must be {ALLOWED[name]}.")
    if experts % groups or experts < groups:
        raise InputError(f"expert_groups: {groups:g} must divide the {experts:g} experts of a layer.")
    if chosen > groups:
        raise InputError(f"groups_per_token: {chosen:g} must be at most the {groups:g} of expert_groups.")
    nodes = -(-int(ranks) // int(node))
    limit = chosen * max(1.0, nodes / groups)
    return 0.0 if limit >= nodes else limit
