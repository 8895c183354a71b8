"""One mapping of a nest with sparse operands on one machine: cycles, energy and what limits it.

The dense counts (`jaxperf.loopnest.accesses`) times what is stored, gated and skipped; Wu et al., "Sparseloop", MICRO
2022. Gated actions take their cycle and bandwidth, skipped ones take neither. With a density of one and no format the
cost is that of `jaxperf.loopnest.evaluate.nest_cost` to the last bit.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxperf.core.feasible import reason_bits, sentences
from jaxperf.core.numerics import Scalar, ceil_div
from jaxperf.loopnest.accesses import LevelAccesses, accesses
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import NestCost, Work, nest_total, slowest
from jaxperf.loopnest.feasible import infeasible
from jaxperf.loopnest.mapping import Mapping, fan_out, iterations, unroll
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.reuse import RULES, Rules
from jaxperf.loopnest.sparse.compute import Split, State, filled_share, operations
from jaxperf.loopnest.sparse.counts import SparseAccesses
from jaxperf.loopnest.sparse.density import share
from jaxperf.loopnest.sparse.formats import tile_extents
from jaxperf.loopnest.sparse.level import Access, Row, level_cycles, moved_bits, sparse_level_cost
from jaxperf.loopnest.sparse.optimization import Surroundings, savings
from jaxperf.loopnest.sparse.sparsity import Sparsity
from jaxperf.loopnest.sparse.traffic import Traffic, operand_traffic


class Reason(enum.IntFlag):
    """Bits of the `reason` of a sparse mapping, beside those of `jaxperf.loopnest.feasible.Reason`."""

    RANKS = 16
    METADATA = 32


SENTENCES = {
    Reason.RANKS: "a format has fewer ranks than there are loops that index its operand",
    Reason.METADATA: "the metadata of the tiles that a level keeps does not fit into it",
}


def sparse_sentences(bits: int) -> list[str]:
    """The plain-word reasons of a bit mask, of those that only sparse mappings have."""
    return sentences(bits, SENTENCES)


class SparseCost(NamedTuple):
    """`nest`: as of a dense nest, its accesses those of all words, its tiles the most words that are stored of them;
    `operations`: what becomes of them [1]; `accesses`: of one instance, by level and operand."""

    nest: NestCost
    operations: Split
    accesses: tuple[tuple[SparseAccesses | None, ...], ...]


def sparse_nest_cost(
    problem: Problem,
    architecture: Architecture,
    mapping: Mapping,
    sparsity: Sparsity,
    rules: Rules = RULES["head"],
) -> SparseCost:
    """Cycles, energy and accesses of a mapping whose operands hold zeros.

    **Arguments:** scalar leaves of one point; `rules`: how the version of Timeloop that is followed counts.
    **Returns:** the cost; NaN and a reason, bits of both kinds of `Reason`, where the mapping does not fit.
    """
    nest = unroll(mapping)
    units = fan_out(nest, range(len(nest.spatial)))
    macs = iterations(nest) * units
    dense = accesses(problem, mapping, nest, rules)
    wholes = [tile_extents(operand, nest.tile[-1], problem) for operand in problem.operands]
    has_metadata = [[layout is not None for layout in level] for level in sparsity.formats]
    around = Surroundings(problem, architecture, mapping, nest, sparsity.densities, wholes, has_metadata)
    saved = savings(sparsity.directives, around)
    traffic = [operand_traffic(index, dense, saved, sparsity, around) for index in range(len(problem.operands))]
    split = _operations(macs, traffic, sparsity, around)
    compute = jnp.maximum(ceil_div(split.actual + split.gated, units), 1.0)
    rows = [_row(level, traffic, sparsity) for level in range(len(architecture.levels))]
    hardware = list(zip(architecture.levels, sparsity.levels, rows, strict=True))
    paces = [level_cycles(*each, compute) for each in hardware]
    cycles, limiter = slowest(compute, paces)
    held = [_as_held(counted, row) for counted, row in zip(dense, rows, strict=True)]
    levels = []
    for index, (each, pace) in enumerate(zip(hardware, paces, strict=True)):
        used = fan_out(nest, range(index + 1, len(nest.spatial)))
        levels.append(sparse_level_cost(*each, used, pace, cycles, held[index]))
    reason = infeasible(problem, architecture, mapping, nest, held) | _misfits(traffic, architecture, sparsity)
    return SparseCost(
        nest_total(architecture, _work(macs, units, split, architecture, sparsity), levels, cycles, limiter, reason),
        split,
        tuple(tuple(None if each is None else each.counts for each in row) for row in rows),
    )


def _operations(macs: Scalar, traffic: Sequence[Traffic], sparsity: Sparsity, around: Surroundings) -> Split:
    """What becomes of the operations; only operands that are read stand in their way."""
    reading = [index for index, operand in enumerate(around.problem.operands) if not operand.written]
    acting = {index: saving for index in reading if (saving := traffic[index].saving) is not None}
    states = []
    for index in reading:
        empty = [saving.empty[index] for follower, saving in acting.items() if follower != index]
        innermost = next(level for level, kept in enumerate(around.mapping.kept) if kept[index])
        filled = filled_share(share(sparsity.densities[index], around.wholes[index]), empty)
        states.append(State(filled, around.has_metadata[innermost][index]))
    saved = [saving.share for saving in acting.values()]
    return operations(macs, saved, states, sparsity.gates_zeros, sparsity.skips_unaligned)


def _row(level: int, traffic: Sequence[Traffic], sparsity: Sparsity) -> Row:
    row: list[Access | None] = []
    for each, layout in zip(traffic, sparsity.formats[level], strict=True):
        counts = each.accesses.get(level)
        if counts is None:
            row.append(None)
        else:
            bits = None if layout is None else moved_bits(sparsity.levels[level], layout, counts)
            row.append(Access(counts, each.held[level], bits, level in each.acting))
    return row


def _as_held(counted: LevelAccesses, row: Row) -> LevelAccesses:
    """Accesses whose tiles are as large as what is stored of them."""
    pairs = zip(counted, row, strict=True)
    return tuple(None if a is None or b is None else a._replace(tile=b.held.words) for a, b in pairs)


def _work(macs: Scalar, units: Scalar, split: Split, architecture: Architecture, sparsity: Sparsity) -> Work:
    energy = split.actual * architecture.mac_energy
    energy = energy + (split.gated * sparsity.gated_mac_energy + split.skipped * sparsity.skipped_mac_energy)
    return Work(macs, split.actual + split.gated, units, energy)


def _misfits(traffic: Sequence[Traffic], architecture: Architecture, sparsity: Sparsity) -> Int[Array, ""]:
    """Bits of what of the metadata does not fit."""
    crowded = jnp.asarray(False)
    for index, (level, sparse) in enumerate(zip(architecture.levels, sparsity.levels, strict=True)):
        tiles = [each.held[index].metadata_bits for each in traffic if index in each.held]
        kept = functools.reduce(jnp.add, tiles, jnp.zeros_like(sparse.metadata_size)) * level.buffering
        crowded = crowded | ((sparse.metadata_width > 0.0) & (kept > sparse.metadata_size))
    short = functools.reduce(jnp.logical_or, [each.short for each in traffic])
    return reason_bits({Reason.RANKS: short, Reason.METADATA: crowded})
