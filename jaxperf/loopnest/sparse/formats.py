"""How a compressed tile says where its words are: metadata of every rank of its fiber tree.

Wu et al., MICRO 2022, section 3.1, and Timeloop's src/workload/format-models. A rank of F fibers of S coordinates, of
which a share p leads to something, holds

    B    bitmask                    F S bits and F ceil(S p) payloads
    UB   bitmask over every word    all S bits and S payloads of every fiber
    CP   coordinate and payload     F ceil(S p) of both
    RLE  run length                 F S p of both
    UOP  offset pairs               S + 1 payloads of every fiber
    U    uncompressed               nothing

with F the fibers that are not empty, for UB and UOP all that there are. The payloads of the innermost rank are the
words themselves; a rank of one coordinate is not stored, unless the whole tile is one word, which still says where it
belongs. Where the words of a tile are drawn, its own fiber is only asked for coordinates if it has any: its F is one
for CP and RLE. CSR is UOP over CP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.mapping import product
from jaxperf.loopnest.problem import Operand, Problem
from jaxperf.loopnest.reuse import extent
from jaxperf.loopnest.sparse.density import Density, empty_probability
from jaxperf.loopnest.sparse.whole import round_up

COMPRESSING = ("B", "CP", "RLE")
KINDS = (*COMPRESSING, "U", "UB", "UOP")


@dataclass(frozen=True)
class Rank:
    """One rank. `kind`: of `KINDS`; `flattened`: dimensions whose loops it may hold together, None for one loop of any;
    `metadata_bits`, `payload_bits`: widths [bit], None for those of the level (metadata of a bitmask: one bit)."""

    kind: str
    flattened: frozenset[int] | None = None
    metadata_bits: float | None = None
    payload_bits: float | None = None


@dataclass(frozen=True)
class Format:
    """`ranks`: innermost first."""

    ranks: tuple[Rank, ...]

    @property
    def compresses(self) -> bool:
        """Whether words that are zero are left out."""
        return any(rank.kind in COMPRESSING for rank in self.ranks)

    @property
    def locates(self) -> bool:
        """Whether it says which words are zero, so that they need not be moved."""
        return self.compresses or any(rank.kind == "UB" for rank in self.ranks)


class Units(NamedTuple):
    """What one rank holds: `metadata` (coordinates, runs, bits) and `payload` (pointers to the next rank) [1]."""

    metadata: Scalar
    payload: Scalar


def tile_extents(operand: Operand, tile: Sequence[Scalar], problem: Problem) -> list[Scalar]:
    """Extents of a tile along the operand's axes [1]."""
    return [extent(axis, list(tile), problem) for axis in operand.axes]


def units(
    layout: Format,
    fibers: Sequence[Sequence[Scalar]],
    operand: Operand,
    problem: Problem,
    density: Density,
    whole: Sequence[Scalar],
) -> list[Units]:
    """Expected metadata of a tile, by rank, innermost first.

    **Arguments:** `fibers`: indices of each dimension along a fiber of each rank [1]; `whole`: extents of the operand.
    """
    below = [jnp.ones_like(bound) for bound in fibers[0]]  # the tile to which a coordinate of the rank leads
    shapes, inner, outer = [], [], []
    for rank in fibers:
        around = [a * b for a, b in zip(below, rank, strict=True)]
        shapes.append(product(tile_extents(operand, rank, problem)))
        inner.append(empty_probability(density, tile_extents(operand, below, problem), whole))
        outer.append(empty_probability(density, tile_extents(operand, around, problem), whole))
        below = around
    found, count, one_word = [], jnp.ones_like(shapes[0]), product(shapes) <= 1.0
    for index in reversed(range(len(fibers))):
        filled, top = 1.0 - outer[index], index == len(fibers) - 1
        met = jnp.ones_like(filled) if top and density.kind == "hypergeometric" else filled
        own = _rank_units(layout.ranks[index].kind, count, shapes[index], filled, 1.0 - inner[index], met)
        stored = (shapes[index] > 1.0) | (one_word & (index == 0))
        payload = jnp.zeros_like(own.payload) if index == 0 else own.payload
        found.append(Units(jnp.where(stored, own.metadata, 0.0), jnp.where(stored, payload, 0.0)))
        count = count * shapes[index]
    return found[::-1]


def _rank_units(kind: str, fibers: Scalar, shape: Scalar, filled: Scalar, leading: Scalar, met: Scalar) -> Units:
    """`fibers`: there are at most; `shape`: coordinates of each; `filled`: share of fibers and `leading`: share of
    coordinates that lead to something; `met`: share of fibers in which coordinates are counted [1]."""
    if kind == "U":
        return Units(jnp.zeros_like(fibers), jnp.zeros_like(fibers))
    if kind == "UOP":
        return Units(jnp.zeros_like(fibers), fibers * (shape + 1.0))
    if kind == "UB":
        return Units(fibers * shape, fibers * shape)
    if kind == "RLE":
        return Units(fibers * met * (shape * leading), fibers * met * (shape * leading))
    coordinates = fibers * met * round_up(shape * leading)
    return Units(fibers * filled * shape if kind == "B" else coordinates, coordinates)
