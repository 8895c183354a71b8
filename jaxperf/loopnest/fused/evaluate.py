"""One mapping of a chain on one machine: what its stages cost one after the other, or as a pipeline.

The accesses of a stage are those of its nest under the shared loops, with the intermediate arrays kept no further out
than the shared level. One after the other, cycles and energies add up; as a pipeline of n stages over T tiles, a level
serves all stages at once and every tile takes as long as the slowest of them all: cycles = slowest (T + n - 1) / T.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxperf.core.feasible import reason_bits
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import NestCost, nest_cost, slowest, stream_cycles
from jaxperf.loopnest.feasible import Reason, any_of
from jaxperf.loopnest.fused.chain import Chain, Links
from jaxperf.loopnest.fused.mapping import FusedMapping, Fusion, loops_outside, stage_mapping
from jaxperf.loopnest.mapping import product


class ChainReason(enum.IntFlag):
    """A bit of the `reason` of a chain, beside those of `jaxperf.loopnest.feasible.Reason`."""

    LOOPS = 64


SENTENCES = {ChainReason.LOOPS: "a stage has loops of its own outside of the shared level, where none may be"}


class ChainCost(NamedTuple):
    """One mapping of a chain. `cycles`; `utilization` [1]; `energy` [J]; `edp` [J cycle]: NaN where `reason`, bits of
    `Reason` and `ChainReason`, is not 0. `macs`: operations [1]; `mac_energy`; `level_energy`: innermost first, with
    leakage [J]; `held`: words that an instance of each level from the shared one outwards keeps at a time [word];
    `limiter` of a pipeline: 0 for the units, else 1 + index of the level; `stages`: each as if it ran alone."""

    cycles: Scalar
    utilization: Scalar
    energy: Scalar
    edp: Scalar
    reason: Int[Array, ""]
    macs: Scalar
    mac_energy: Scalar
    level_energy: tuple[Scalar, ...]
    held: tuple[Scalar, ...]
    limiter: Int[Array, ""]
    stages: tuple[NestCost, ...]


def chain_cost(chain: Chain, architecture: Architecture, mapping: FusedMapping, fusion: Fusion) -> ChainCost:
    """Cycles, energy and accesses of a chain.

    **Arguments:** scalar leaves of one point; `fusion`: structure.
    **Returns:** the cost; NaN and a reason where the mapping does not fit chain or machine.
    """
    stages = tuple(
        nest_cost(problem, architecture, stage_mapping(chain.links, mapping, fusion.level, stage))
        for stage, problem in enumerate(chain.problems)
    )
    held = _held(chain.links, stages, fusion)
    pairs = zip(architecture.levels[fusion.level :], held, strict=True)
    checks: dict[enum.IntFlag, Bool[Array, ""]] = {
        ChainReason.LOOPS: loops_outside(chain.links, mapping, fusion.level),
        Reason.CAPACITY: any_of([words * level.buffering > level.size for level, words in pairs]),
    }
    if fusion.pipelined:
        checks[Reason.FAN_OUT] = _too_many(architecture, stages, fusion)
        cycles, limiter = _pipeline(architecture, mapping, stages, fusion)
    else:
        cycles, limiter = _sum([stage.cycles for stage in stages]), jnp.int32(0)
    energies = _level_energies(architecture, stages, fusion, cycles)
    reason = functools.reduce(jnp.bitwise_or, [stage.reason for stage in stages], reason_bits(checks))
    return _total(architecture, stages, cycles, limiter, energies, held, reason)


def _total(
    architecture: Architecture,
    stages: tuple[NestCost, ...],
    cycles: Scalar,
    limiter: Int[Array, ""],
    energies: tuple[Scalar, ...],
    held: tuple[Scalar, ...],
    reason: Int[Array, ""],
) -> ChainCost:
    macs, mac_energy = (_sum([getattr(stage, name) for stage in stages]) for name in ("macs", "mac_energy"))
    energy = functools.reduce(jnp.add, energies, mac_energy)
    known = functools.partial(jnp.where, reason == 0)
    nothing = jnp.asarray(jnp.nan, energy.dtype)
    return ChainCost(
        cycles=known(cycles, nothing),
        utilization=known(macs / (architecture.macs * cycles), nothing),
        energy=known(energy, nothing),
        edp=known(energy * cycles, nothing),
        reason=reason,
        macs=macs,
        mac_energy=mac_energy,
        level_energy=energies,
        held=held,
        limiter=limiter,
        stages=stages,
    )


def _pipeline(
    architecture: Architecture, mapping: FusedMapping, stages: tuple[NestCost, ...], fusion: Fusion
) -> tuple[Scalar, Int[Array, ""]]:
    """Cycles of stages that work at the same time, and whose they are. Levels inside of the shared one belong to one
    stage each; from it outwards a level streams the words of all."""
    levels, shared = mapping.shared.temporal.shape
    rows = range(fusion.level + 1, levels)
    tiles = product(mapping.shared.temporal[row, d] for row in rows for d in range(shared))
    compute = functools.reduce(jnp.maximum, [stage.macs / stage.units for stage in stages])
    paces = []
    for index, level in enumerate(architecture.levels):
        if index < fusion.level:
            paces.append(functools.reduce(jnp.maximum, [stage.levels[index].cycles for stage in stages]))
            continue
        counted = [each for stage in stages for each in stage.levels[index].accesses if each is not None]
        reads = _sum([each.reads / compute for each in counted])
        writes = _sum([(each.fills + each.updates) / compute for each in counted])
        paces.append(stream_cycles(level, reads, writes, compute))
    pace, limiter = slowest(compute, paces)
    return ceil_div(pace * (tiles + float(len(stages) - 1)), tiles), limiter


def _level_energies(
    architecture: Architecture, stages: tuple[NestCost, ...], fusion: Fusion, cycles: Scalar
) -> tuple[Scalar, ...]:
    """Energy of every level [J]: accesses of all stages, and leakage of the instances while they work."""
    energies = []
    for index, level in enumerate(architecture.levels):
        costs = [stage.levels[index] for stage in stages]
        if not fusion.pipelined:
            energies.append(_sum([cost.energy for cost in costs]))
            continue
        used = [cost.instances for cost in costs]
        powered = _sum(used) if index < fusion.level else functools.reduce(jnp.maximum, used)
        accessed = _sum([energy for cost in costs for energy in cost.operand_energy])
        energies.append(accessed + level.leakage * cycles * powered)
    return tuple(energies)


def _held(links: Links, stages: tuple[NestCost, ...], fusion: Fusion) -> tuple[Scalar, ...]:
    """Words that an instance of each level from the shared one outwards keeps: the tiles of all arrays of the chain,
    since what one stage leaves there the next iteration finds. In a pipeline, one tile of an intermediate array is
    written while another is read; one after the other, an array may take the room of the one it replaces."""
    found = []
    for index in range(fusion.level, len(stages[0].levels)):
        tiles: dict[int, Scalar] = {}
        for tensors, stage in zip(links.tensors, stages, strict=True):
            for tensor, each in zip(tensors, stage.levels[index].accesses, strict=True):
                if each is not None:
                    copies = 2.0 if fusion.pipelined and links.intermediate[tensor] else 1.0
                    room = tensor if fusion.pipelined else links.room[tensor]
                    tiles.setdefault(room, each.tile * copies)
        found.append(_sum([*tiles.values()]))
    return tuple(found)


def _too_many(architecture: Architecture, stages: tuple[NestCost, ...], fusion: Fusion) -> Bool[Array, ""]:
    """Whether the stages of a pipeline together use more units, or instances inside of the shared level, than are under
    each instance of it."""
    spare = architecture.levels[fusion.level].instances / stages[0].levels[fusion.level].instances
    units = _sum([stage.units for stage in stages]) * spare > architecture.macs
    inside = [
        _sum([stage.levels[index].instances for stage in stages]) * spare > architecture.levels[index].instances
        for index in range(fusion.level)
    ]
    return any_of([units, *inside])


def _sum(terms: Sequence[Scalar]) -> Scalar:
    return functools.reduce(jnp.add, terms, as_float(0.0))
