"""The mapping: which loop runs where, in which order, and which level keeps which operand.

The loops of level l run outside its children: its temporal loops in the order of `rank`, inside of them its spatial
loops, which spread over the children. A dimension has at most one temporal loop at a level.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float


class Mapping(eqx.Module):
    """Factors of D loops at L levels, innermost level first [1]; their product over all levels is the loop's bound.

    `rank`: place of a temporal loop among those of its level, the innermost being 0, all different [1]; `kept`: for
    each level, whether it keeps each operand or lets it bypass; `keeps`: whether it does keep what `kept` says it may,
    `None` where it always does, as the outermost level that may keep an operand must.
    """

    temporal: Float[Array, "*batch L D"] = eqx.field(converter=as_float)
    spatial_x: Float[Array, "*batch L D"] = eqx.field(converter=as_float)
    spatial_y: Float[Array, "*batch L D"] = eqx.field(converter=as_float)
    rank: Float[Array, "*batch L D"] = eqx.field(converter=as_float)
    kept: tuple[tuple[bool, ...], ...] = eqx.field(static=True)
    keeps: Bool[Array, "*batch L O"] | None = None


class Loop(NamedTuple):
    """One temporal loop. `bound`: iterations; `step`: indices of its dimension that one iteration moves on, the
    product of the dimension's factors inside of it; `position`: grows outwards over the whole nest [1]."""

    dimension: int
    bound: Scalar
    step: Scalar
    position: Scalar


class Nest(NamedTuple):
    """A mapping as scalars, by level from the innermost. `loops`: temporal; `spatial`: factors of each dimension over
    both directions; `tile`: indices of each dimension that one instance of the level covers [1]."""

    loops: list[list[Loop]]
    spatial: list[list[Scalar]]
    tile: list[list[Scalar]]


def unroll(mapping: Mapping) -> Nest:
    """The loops of a mapping, one by one."""
    levels, dimensions = mapping.temporal.shape
    inside = [jnp.ones((), mapping.temporal.dtype)] * dimensions
    nest = Nest([], [], [])
    for level in range(levels):
        spread = [mapping.spatial_x[level, d] * mapping.spatial_y[level, d] for d in range(dimensions)]
        steps = [before * factor for before, factor in zip(inside, spread, strict=True)]
        bounds = [mapping.temporal[level, d] for d in range(dimensions)]
        places = [mapping.rank[level, d] + float(level * dimensions) for d in range(dimensions)]
        inside = [step * bound for step, bound in zip(steps, bounds, strict=True)]
        nest.loops.append([Loop(*loop) for loop in zip(range(dimensions), bounds, steps, places, strict=True)])
        nest.spatial.append(spread)
        nest.tile.append(inside)
    return nest


def product(factors: Iterable[Scalar]) -> Scalar:
    """The product of scalars; one of none."""
    return functools.reduce(operator.mul, factors, as_float(1.0))


def iterations(nest: Nest) -> Scalar:
    """Steps of all temporal loops together: the cycles of a machine that never waits [1]."""
    return product(loop.bound for level in nest.loops for loop in level)


def fan_out(nest: Nest, levels: Sequence[int], dimensions: Iterable[int] | None = None) -> Scalar:
    """Product of the spatial factors of `levels`, of all dimensions or some [1]."""
    chosen = range(len(nest.spatial[0])) if dimensions is None else sorted(dimensions)
    return product(nest.spatial[level][d] for level in levels for d in chosen)
