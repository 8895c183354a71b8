"""Cycles and energy of one storage level from its accesses to sparse operands.

Timeloop's src/model/buffer.cpp: words and metadata that are not skipped take bandwidth; every access of a block of
words, and of the width of the metadata's storage, costs the energy of its action.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, ceil_div
from jaxperf.loopnest.accesses import LevelAccesses
from jaxperf.loopnest.architecture import Level
from jaxperf.loopnest.evaluate import LevelCost, charged_instances, stream_cycles
from jaxperf.loopnest.sparse.compute import Split
from jaxperf.loopnest.sparse.counts import SparseAccesses
from jaxperf.loopnest.sparse.formats import Format, Units
from jaxperf.loopnest.sparse.hardware import ACTIONS, Energies, SparseLevel
from jaxperf.loopnest.sparse.traffic import Held, metadata_bits
from jaxperf.loopnest.sparse.whole import round_up
from jaxperf.loopnest.wires import wire_energy

INWARDS = ("reads", "updates")  # actions that a child takes part in


class Access(NamedTuple):
    """What one instance of a level does with one operand that it keeps; `bits`: of metadata that each action moves
    [bit], None for words as they are; `saves`: whether a unit acts on it."""

    counts: SparseAccesses
    held: Held
    bits: dict[str, Split] | None
    saves: bool


Row = Sequence[Access | None]  # by operand, None where it bypasses the level


def moved_bits(sparse: SparseLevel, layout: Format, counts: SparseAccesses) -> dict[str, Split]:
    """Bits of metadata that each action moves [bit]; none where the level does not store them."""
    stored = sparse.metadata_width > 0.0
    found = {}
    for action, ranks in counts.ranks.items():
        parts = {name: [Units(*(getattr(split, name) for split in rank)) for rank in ranks] for name in Split._fields}
        bits = {name: metadata_bits(layout, part, sparse) for name, part in parts.items()}
        found[action] = Split(**{name: jnp.where(stored, each, 0.0) for name, each in bits.items()})
    return found


def level_cycles(level: Level, sparse: SparseLevel, row: Row, compute: Scalar) -> Scalar:
    """Cycles in which a level moves all that is not skipped [cycle]; see `stream_cycles`."""
    zero = jnp.zeros_like(compute)
    reads = functools.reduce(jnp.add, [_moved(sparse, each, "reads") / compute for each in row if each], zero)
    writes = functools.reduce(
        jnp.add,
        [(_moved(sparse, each, "fills") + _moved(sparse, each, "updates")) / compute for each in row if each],
        zero,
    )
    return stream_cycles(level, reads, writes, compute)


def _moved(sparse: SparseLevel, access: Access, action: str) -> Scalar:
    """Words of data, and of metadata in words of data, that pass in one action [word]."""
    words = access.counts.words[action]
    passed = words.actual + words.gated
    if access.bits is None:
        return passed
    bits = access.bits[action]
    return passed + round_up((bits.actual + bits.gated) / sparse.word_bits)


def _sent(sparse: SparseLevel, access: Access) -> Scalar:
    """Words, and metadata in words, between an instance and its children: neither gated nor skipped [word]."""
    sent = [access.counts.words[action].actual for action in INWARDS]
    if access.bits is not None:
        sent += [round_up(access.bits[action].actual / sparse.word_bits) for action in INWARDS]
    return functools.reduce(jnp.add, sent)


def sparse_level_cost(
    level: Level,
    sparse: SparseLevel,
    row: Row,
    used: Scalar,
    pace: Scalar,
    cycles: Scalar,
    held: LevelAccesses,
) -> LevelCost:
    """Energy of all `used` instances of a level, which leak in all `cycles`, and of the wires inwards."""
    charged = charged_instances(level, used)
    energies = tuple(
        jnp.zeros_like(used)
        if each is None or dense is None
        else charged * _access_energy(level, sparse, each) + used * wire_energy(level, dense, _sent(sparse, each))
        for each, dense in zip(row, held, strict=True)
    )
    leaked = level.leakage * cycles * used
    return LevelCost(used, pace, functools.reduce(jnp.add, energies, leaked), energies, held)


def _access_energy(level: Level, sparse: SparseLevel, access: Access) -> Scalar:
    """Energy of all accesses of one instance to one operand [J]."""
    actual = Energies(level.read_energy, level.write_energy, level.update_energy)
    data = functools.partial(_data_energy, access, level.block)
    energy = data(actual, "actual")
    if access.saves:
        energy = energy + (data(sparse.gated, "gated") + data(sparse.skipped, "skipped"))
    if access.bits is not None:
        energy = energy + _metadata_energy(sparse, access.bits, access.saves)
    counts = access.counts
    return energy + counts.decompressions * sparse.decompression + counts.compressions * sparse.compression


def _data_energy(access: Access, block: Scalar, energies: Energies, name: str) -> Scalar:
    blocks = [
        ceil_div(getattr(access.counts.words[action], name), block) * access.held.blocks * getattr(energies, action)
        for action in ACTIONS
    ]
    return functools.reduce(jnp.add, blocks)


def _metadata_energy(sparse: SparseLevel, bits: dict[str, Split], saves: bool) -> Scalar:
    width = jnp.where(sparse.metadata_width > 0.0, sparse.metadata_width, 1.0)
    kinds = {"actual": sparse.metadata}
    if saves:
        kinds |= {"gated": sparse.gated_metadata, "skipped": sparse.skipped_metadata}
    accesses = [
        round_up(getattr(bits[action], name) / width) * getattr(energies, action)
        for name, energies in kinds.items()
        for action in ACTIONS
    ]
    return functools.reduce(jnp.add, accesses)
