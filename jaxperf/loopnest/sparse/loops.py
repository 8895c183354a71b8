"""The loops between a level and its child, in time and in space, in one order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.mapping import Mapping


class Place(NamedTuple):
    """One loop. `bound`: iterations [1]; `position`: grows outwards over the whole nest, spatial loops lying inside of
    the temporal ones of their level [1]; `innermost`: of its dimension among the loops that are asked for."""

    dimension: int
    bound: Scalar
    position: Scalar
    spatial: bool
    innermost: bool


def loops_of(mapping: Mapping, levels: Iterable[int], dimensions: Iterable[int]) -> list[Place]:
    """The loops of some dimensions at some levels, innermost level first."""
    count = mapping.temporal.shape[1]
    found, seen = [], set()
    for level in levels:
        base = 3 * count * level
        for d in sorted(dimensions):
            step = mapping.rank[level, d] + float(base + 2 * count)
            found.append(Place(d, mapping.spatial_y[level, d], as_float(base + d), True, d not in seen))
            found.append(Place(d, mapping.spatial_x[level, d], as_float(base + count + d), True, False))
            found.append(Place(d, mapping.temporal[level, d], step, False, False))
            seen.add(d)
    return found
