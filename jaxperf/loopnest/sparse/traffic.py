"""One operand at all levels: what its tiles hold, how they are accessed, and which operations it saves."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.accesses import LevelAccesses
from jaxperf.loopnest.mapping import product
from jaxperf.loopnest.sparse.counts import SparseAccesses, Stored, operand_counts
from jaxperf.loopnest.sparse.density import expected_blocks, most_words, share
from jaxperf.loopnest.sparse.fibers import Fibers, fibers_of
from jaxperf.loopnest.sparse.formats import Format, Units, tile_extents, units
from jaxperf.loopnest.sparse.hardware import SparseLevel
from jaxperf.loopnest.sparse.optimization import Saving, Surroundings, larger
from jaxperf.loopnest.sparse.sparsity import Sparsity


class Held(NamedTuple):
    """A tile as it is stored. `words`: the most it may hold [word]; `metadata`: expected units by rank [1];
    `metadata_bits`: of all of them [bit]; `blocks`: accesses for each block of words, more than one where tiles end
    within blocks [1]."""

    words: Scalar
    metadata: list[Units]
    metadata_bits: Scalar
    blocks: Scalar


class Traffic(NamedTuple):
    """`accesses`, `held`: by level; `acting`: levels with a unit that acts on the operand; `saving`: the largest of
    theirs, its share that of all operations for which it is not delivered; `short`: whether loops are left that no rank
    of a format holds."""

    accesses: dict[int, SparseAccesses]
    held: dict[int, Held]
    acting: tuple[int, ...]
    saving: Saving | None
    short: Bool[Array, ""]


def operand_traffic(
    index: int,
    dense: list[LevelAccesses],
    saved: dict[tuple[int, int], Saving],
    sparsity: Sparsity,
    around: Surroundings,
) -> Traffic:
    """The traffic of one operand. **Arguments:** `index`: its position; `dense`: accesses were no word zero."""
    operand, whole = around.problem.operands[index], around.wholes[index]
    keeping = [level for level, kept in enumerate(around.mapping.kept) if kept[index]]
    formats = {level: sparsity.formats[level][index] for level in keeping}
    fibers = fibers_of(operand, formats, around.mapping, around.nest)
    held, stored = {}, {}
    part, inner = share(sparsity.densities[index], whole), formats[keeping[0]]
    for level in keeping:
        counted, layout = dense[level][index], formats[level]
        assert counted is not None  # the level keeps the operand
        held[level] = _held(index, level, layout, fibers[level], sparsity, around)
        stored[level] = Stored(
            counted,
            jnp.ones_like(part) if layout is None else part,
            held[level].metadata,
            0 if inner is None else len(inner.ranks),
            layout is not None and layout.compresses,
            saved.get((level, index)),
        )
        inner = layout
    acting = tuple(level for level in keeping if (level, index) in saved)
    saving = functools.reduce(larger, [saved[level, index] for level in acting]) if acting else None
    short = jnp.stack([each.short for each in fibers.values()]).any()
    return Traffic(operand_counts(stored, operand.written), held, acting, saving, short)


def _held(
    index: int, level: int, layout: Format | None, fibers: Fibers, sparsity: Sparsity, around: Surroundings
) -> Held:
    operand, whole, density = around.problem.operands[index], around.wholes[index], sparsity.densities[index]
    tile = tile_extents(operand, around.nest.tile[level], around.problem)
    size = product(tile)
    if layout is None:
        return Held(size, [], jnp.zeros_like(size), jnp.ones_like(size))
    metadata = units(layout, fibers.bounds, operand, around.problem, density, whole)
    bits = metadata_bits(layout, metadata, sparsity.levels[level])
    if not layout.compresses:
        return Held(size, metadata, bits, jnp.ones_like(size))
    part, block = share(density, whole), around.architecture.levels[level].block
    sparse = (part < 1.0) & (part > 0.0)
    even = jnp.where(sparse, size * part / block, 1.0)
    blocks = jnp.where(sparse, expected_blocks(density, tile, whole, block) / even, 1.0)
    return Held(most_words(density, tile, whole), metadata, bits, blocks)


def metadata_bits(layout: Format, counts: list[Units], level: SparseLevel) -> Scalar:
    """Bits of so many units of metadata, by rank [bit]; a bitmask has one bit each unless its rank says otherwise."""
    total = jnp.zeros_like(counts[0].metadata)
    for rank, each in zip(layout.ranks, counts, strict=True):
        mask = 1.0 if rank.kind in ("B", "UB") else None
        own = rank.metadata_bits if rank.metadata_bits is not None else mask
        total = total + each.metadata * (level.metadata_bits if own is None else own)
        total = total + each.payload * (level.metadata_bits if rank.payload_bits is None else rank.payload_bits)
    return total
