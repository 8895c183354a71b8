"""Which loops of a mapping the ranks of a format hold.

Timeloop's src/sparse-analysis/representation-analyzer.cpp: from the outermost loop inwards, every loop that indexes
the operand and runs more than once takes the next rank that may hold it, and joins the rank before where both are
flattened into one. A compressed tile is cut beforehand as its child needs it, so its inner ranks are its child's.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.mapping import Mapping, Nest, product
from jaxperf.loopnest.problem import Operand
from jaxperf.loopnest.sparse.formats import Format, Rank
from jaxperf.loopnest.sparse.loops import Place, loops_of


class Fibers(NamedTuple):
    """`bounds`: indices of each dimension along a fiber of each rank, innermost rank first [1]; `short`: whether loops
    are left that no rank holds."""

    bounds: list[list[Scalar]]
    short: Bool[Array, ""]


def fibers_of(
    operand: Operand, formats: Dictionary[int, Format | None], mapping: Mapping, nest: Nest
) -> dict[int, Fibers]:
    """The fibers of an operand at every level that keeps it; `formats`: of those levels, innermost first."""
    found: dict[int, Fibers] = {}
    child = -1
    for level, layout in formats.items():
        cut = layout is not None and layout.compresses and child >= 0
        if layout is None:
            found[level] = Fibers([_indexed(operand, nest.tile[level])], jnp.asarray(False))
        else:
            places = loops_of(mapping, range(child + 1, level + 1), operand.relevant)
            if child >= 0 and not cut:  # its fibers run over the whole tile, child and all
                places = [_widened(place, nest.tile[child]) for place in places]
            own = _assigned(layout.ranks, places, len(nest.tile[level]))
            found[level] = _with_child(own, found[child]) if cut else own
        child = level
    return found


def _indexed(operand: Operand, tile: Sequence[Scalar]) -> list[Scalar]:
    """The tile along the dimensions that index the operand, one elsewhere."""
    return [bound if d in operand.relevant else jnp.ones_like(bound) for d, bound in enumerate(tile)]


def _widened(place: Place, tile: Sequence[Scalar]) -> Place:
    return place._replace(bound=place.bound * tile[place.dimension]) if place.innermost else place


def _with_child(own: Fibers, child: Fibers) -> Fibers:
    """Ranks of a tile that is cut for its child: its own loops outside, those of the child as the child holds them."""
    shared = min(len(own.bounds), len(child.bounds))
    inside = product(product(rank) for rank in child.bounds)
    taken = product(product(rank) for rank in own.bounds[:shared])
    lacking = jnp.asarray(len(child.bounds) > len(own.bounds)) | (taken > 1.0)
    bounds = [list(rank) for rank in own.bounds]
    for index in range(shared):
        bounds[index] = [a * b for a, b in zip(own.bounds[index], child.bounds[index], strict=True)]
    return Fibers(bounds, own.short | child.short | (lacking & (inside > 1.0)))


def _assigned(ranks: Sequence[Rank], places: Sequence[Place], dimensions: int) -> Fibers:
    """The loops in the ranks that hold them, from the outermost of both inwards."""
    follows, joins = _tables(ranks, dimensions)
    order = jnp.argsort(-jnp.stack([place.position for place in places]))
    dimension = jnp.asarray([place.dimension for place in places])[order]
    bounds = jnp.stack([place.bound for place in places])[order]

    def step(rank: Array, loop: tuple[Array, Array]) -> tuple[Array, Array]:
        of, bound = loop
        taken = jnp.where(joins[rank, of], rank, follows[rank, of])
        rank = jnp.where(bound > 1.0, taken, rank)
        return rank, rank

    _, held = jax.lax.scan(step, jnp.asarray(len(ranks)), (dimension, bounds))
    ranks_of, dimensions_of = jnp.arange(len(ranks) + 2)[:, None, None], jnp.arange(dimensions)[None, :, None]
    chosen = (held[None, None, :] == ranks_of) & (dimension[None, None, :] == dimensions_of)
    taken = jnp.prod(jnp.where(chosen, bounds[None, None, :], 1.0), axis=-1)
    split = [[taken[rank, d] for d in range(dimensions)] for rank in range(len(ranks))]
    return Fibers(split, jnp.max(taken[-1]) > 1.0)


def _tables(ranks: Sequence[Rank], dimensions: int) -> tuple[Array, Array]:
    """By rank and dimension: the next rank inwards that may hold a loop of the dimension, and whether this one may
    hold it too. One rank more than there are is where the walk begins; two more stand for none."""
    count, none = len(ranks), len(ranks) + 1
    follows = np.full((count + 2, dimensions), none)
    joins = np.zeros((count + 2, dimensions), bool)
    for d in range(dimensions):
        able = [rank.flattened is None or d in rank.flattened for rank in ranks]
        for rank in range(count + 1):
            follows[rank, d] = next((inner for inner in reversed(range(rank)) if able[inner]), none)
        for rank in range(count):
            joins[rank, d] = ranks[rank].flattened is not None and able[rank]
    return jnp.asarray(follows), jnp.asarray(joins)
