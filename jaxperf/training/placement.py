"""Groups of ranks that would lie in more nodes than they need if ranks filled the nodes densely.

`communication.layout_groups` takes a group that divides no node to leave the rest of it alone, as jobs on racks of 72
devices do with 64 (NVIDIA's recipes ask Slurm for segments of 16 hosts of 4). Where nodes are given whole, 6 tensor
ranks on nodes of 8 leave a quarter of them idle, or some groups meet over the network; a reader should know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxperf.core.numerics import ceil_div, floor_div

# Groups of ranks beside each other -> the fields whose product they are.
CONTIGUOUS = {"tensor": ("tensor",), "tensor x context": ("tensor", "context"), "expert": ("expert", "expert_tensor")}


class Torn(NamedTuple):
    """Of the `groups` of `ranks` each, how many are `torn` among more nodes than they need; devices of the last
    node of a group, or of the groups that share one, that stay `idle` so that none is [1]."""

    ranks: int
    groups: int
    torn: int
    idle: int


def torn_groups(layout: Mapping[str, float], node: int) -> dict[str, Torn]:
    """Kind of group -> how its groups lie where ranks fill nodes of `node` devices densely; those that are whole are
    left out.

    **Arguments:** `layout`: fields of a `Layout`; what is missing is one.
    """
    world = int(np.prod([layout.get(name, 1.0) for name in ("tensor", "context", "data", "pipeline")]))
    found = {}
    for name, fields in CONTIGUOUS.items():
        ranks = int(np.prod([layout.get(field, 1.0) for field in fields]))
        first = np.arange(0.0, world, ranks)
        last = np.minimum(first + ranks, world) - 1.0
        nodes = floor_div(last, float(node)) - floor_div(first, float(node)) + 1.0
        torn = int(np.count_nonzero(nodes > ceil_div(float(ranks), float(node))))
        if torn and ranks > 1:
            found[name] = Torn(ranks, len(first), torn, node % ranks if ranks < node else -ranks % node)
    return found
