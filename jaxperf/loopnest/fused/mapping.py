"""The mapping of a chain: loops that its stages share outside of a level, and below it a mapping for every stage.

Outside of the shared level a stage has only the shared loops, and inside of them, at the next level, loops of its own
over ranks that index no intermediate array: the hidden width of a matrix product may stream past a tile that stays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.fused.chain import ChainNames, Links
from jaxperf.loopnest.mapping import Mapping

Kept = tuple[tuple[bool, ...], ...]  # by level and operand, as in `Mapping`


class Fusion(NamedTuple):
    """`level`: position of the outermost level that keeps intermediate arrays, all loops outside of it being shared;
    at the backing store nothing is fused. `pipelined`: whether all stages work at the same time, each on its own
    units and on another tile, or one after the other on all of them. Structure, known at trace time."""

    level: int
    pipelined: bool = False


class FusedMapping(eqx.Module):
    """`shared`: over the shared dimensions, of which the rows outside of the shared level count; `stages`: of each
    stage, whose rows outside of it count for the other dimensions."""

    shared: Mapping
    stages: tuple[Mapping, ...]


def stage_mapping(links: Links, mapping: FusedMapping, level: int, stage: int) -> Mapping:
    """The whole mapping of one stage, as if it ran alone."""
    own, shared = mapping.stages[stage], mapping.shared
    levels, dimensions = own.temporal.shape
    free = range(links.shared, dimensions)

    def chosen(mine: Array, ours: Array, row: int, d: int) -> Scalar:
        return ours[row, d] if row > level and d < links.shared else mine[row, d]

    def place(row: int, d: int) -> Scalar:
        if row <= level:
            return own.rank[row, d]
        if d < links.shared:
            return shared.rank[row, d] + float(len(free))
        inside = [(own.rank[row, other] < own.rank[row, d]).astype(own.rank.dtype) for other in free if other != d]
        return functools.reduce(jnp.add, inside, as_float(0.0))

    def table(cells: Callable[[int, int], Scalar]) -> Array:
        return jnp.stack([jnp.stack([cells(row, d) for d in range(dimensions)]) for row in range(levels)])

    return Mapping(
        table(functools.partial(chosen, own.temporal, shared.temporal)),
        table(functools.partial(chosen, own.spatial_x, shared.spatial_x)),
        table(functools.partial(chosen, own.spatial_y, shared.spatial_y)),
        table(place),
        own.kept,
    )


def loops_outside(links: Links, mapping: FusedMapping, level: int) -> Bool[Array, ""]:
    """Whether a stage has a loop outside of the shared level where none of its own may be: one that indexes an
    intermediate array, spreads over instances, or runs outside of shared loops."""
    found = jnp.asarray(False)
    for own, held in zip(mapping.stages, links.held, strict=True):
        levels, dimensions = own.temporal.shape
        for row in range(level + 1, levels):
            for d in range(links.shared, dimensions):
                spread = (own.spatial_x[row, d] > 1.0) | (own.spatial_y[row, d] > 1.0)
                barred = row > level + 1 or d in held
                found = found | spread | ((own.temporal[row, d] > 1.0) if barred else jnp.asarray(False))
    return found


def chain_kept(
    links: Links, names: ChainNames, levels: Sequence[str], keep: Sequence[Collection[str] | None], level: int
) -> tuple[Kept, ...]:
    """Of each stage, which level keeps which operand: no intermediate array outside of the shared `level`.

    **Arguments:** `keep`: of each level from the innermost, the arrays that it may keep, `None` for all.
    **Raises:** `InputError` where the shared level keeps no intermediate array, or no level keeps an array.
    """
    for name, made in zip(names.tensors, links.intermediate, strict=True):
        held = [allowed is None or name in allowed for allowed in keep]
        if made and not held[level]:
            raise InputError(f"{levels[level]} does not keep {name}, which the stages share there.")
        if not any(held):
            raise InputError(f"No level keeps {name}; there are {', '.join(levels)}.")
    return tuple(
        tuple(
            tuple(
                (allowed is None or names.tensors[tensor] in allowed)
                and not (links.intermediate[tensor] and row > level)
                for tensor in operands
            )
            for row, allowed in enumerate(keep)
        )
        for operands in links.tensors
    )
