"""Groups of experts that the router keeps a token to, as a table of training runs states them."""

from __future__ import annotations

import math

from calibration.datasets.training import Run
from calibration.datasets.training_columns import ALLOWED
from hwspecs.errors import InputError
from jaxperf.network.limited_routing import GroupLimit

GROUPS = ("expert_groups", "groups_per_token")


def stated_limit(run: Run, experts: float, chosen: float) -> GroupLimit | None:
    """The groups that a row keeps a token to; None where it states none.

    **Arguments:** `experts` of a layer, of which a token uses `chosen` [1].
    **Raises:** `InputError` for one of the two columns alone, for groups that the experts do not make, and for fewer
    experts in a token's groups than it uses.
    """
    groups, allowed = (run.layout[name] for name in GROUPS)
    if math.isnan(groups) and math.isnan(allowed):
        return None
    for name, value in zip(GROUPS, (groups, allowed), strict=True):
        if math.isnan(value):
            raise InputError(f"{name} is not stated; {' and '.join(GROUPS)} go together.")
        if value < 1.0 or value != int(value):
            raise InputError(f"{name}: {value:g} must be {ALLOWED[name]}.")
    if experts % groups or experts < groups:
        raise InputError(f"expert_groups: {groups:g} must divide the {experts:g} experts of a layer.")
    if allowed > groups:
        raise InputError(f"groups_per_token: {allowed:g} must be at most the {groups:g} of expert_groups.")
    limit = GroupLimit(*map(int, (experts, chosen, groups, allowed)))
    if chosen > limit.pool:
        raise InputError(f"groups_per_token: {allowed:g} groups have {limit.pool} experts; a token uses {chosen:g}.")
    return limit
