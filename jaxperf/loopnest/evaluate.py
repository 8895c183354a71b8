"""One mapping of one nest on one machine: cycles, utilization, energy and what limits it.

Parashar et al., ISPASS 2019, section VI, and Timeloop's model (src/model/buffer.cpp, arithmetic.cpp): every level
streams at its bandwidth while the units compute, and the slowest of all sets the pace.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxperf.core.numerics import Scalar, ceil_div
from jaxperf.loopnest.accesses import LevelAccesses, accesses
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.feasible import infeasible
from jaxperf.loopnest.mapping import Mapping, fan_out, iterations, unroll
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.reuse import RULES, Rules
from jaxperf.loopnest.wires import wire_energy


class LevelCost(NamedTuple):
    """One storage level. `instances`: used [1]; `cycles`: it alone would take; `energy`: of all instances, with
    leakage [J]; `operand_energy`: of all accesses to each operand, and its wires inwards [J]; `accesses`: of one
    instance."""

    instances: Scalar
    cycles: Scalar
    energy: Scalar
    operand_energy: tuple[Scalar, ...]
    accesses: LevelAccesses


class NestCost(NamedTuple):
    """One mapping. `cycles`; `utilization`: share of the units' cycles that compute [1]; `energy` [J]; `edp`
    [J cycle]; `area` of the machine [m2]; all five NaN where `reason`, bits of `Reason`, is not 0. `limiter`: 0 for
    the units, else 1 + index of the slowest level; `macs`: operations [1]; `units`: that compute [1];
    `mac_energy` [J]; `levels`: innermost first."""

    cycles: Scalar
    utilization: Scalar
    energy: Scalar
    edp: Scalar
    area: Scalar
    reason: Int[Array, ""]
    limiter: Int[Array, ""]
    macs: Scalar
    units: Scalar
    mac_energy: Scalar
    levels: tuple[LevelCost, ...]


def nest_cost(problem: Problem, architecture: Architecture, mapping: Mapping, rules: Rules = RULES["head"]) -> NestCost:
    """Cycles, energy and accesses of a mapping.

    **Arguments:** scalar leaves of one point; `rules`: how the version of Timeloop that is followed counts.
    **Returns:** the cost; NaN and a reason where the mapping does not fit problem or machine.
    """
    nest = unroll(mapping)
    compute = iterations(nest)
    units = fan_out(nest, range(len(nest.spatial)))
    macs = compute * units
    counted = accesses(problem, mapping, nest, rules)
    paces = [_level_cycles(level, found, compute) for level, found in zip(architecture.levels, counted, strict=True)]
    cycles, limiter = slowest(compute, paces)
    levels = []
    for index, (level, found) in enumerate(zip(architecture.levels, counted, strict=True)):
        used = fan_out(nest, range(index + 1, len(nest.spatial)))
        levels.append(_level_cost(level, found, used, paces[index], cycles))
    reason = infeasible(problem, architecture, mapping, nest, counted)
    work = Work(macs, macs, units, macs * architecture.mac_energy)
    return nest_total(architecture, work, levels, cycles, limiter, reason)


class Work(NamedTuple):
    """What the units do. `macs`: operations of the nest [1]; `occupied`: those that take a cycle of a unit [1];
    `units`: that compute [1]; `energy` [J]."""

    macs: Scalar
    occupied: Scalar
    units: Scalar
    energy: Scalar


def nest_total(
    architecture: Architecture,
    work: Work,
    levels: list[LevelCost],
    cycles: Scalar,
    limiter: Int[Array, ""],
    reason: Int[Array, ""],
) -> NestCost:
    """The cost of units and levels together; NaN where there is a reason."""
    energy = functools.reduce(jnp.add, [level.energy for level in levels], work.energy)
    known = functools.partial(jnp.where, reason == 0)
    nothing = jnp.asarray(jnp.nan, energy.dtype)
    return NestCost(
        cycles=known(cycles, nothing),
        utilization=known(work.occupied / (architecture.macs * cycles), nothing),
        energy=known(energy, nothing),
        edp=known(energy * cycles, nothing),
        area=known(machine_area(architecture), nothing),
        reason=reason,
        limiter=limiter,
        macs=work.macs,
        units=work.units,
        mac_energy=work.energy,
        levels=tuple(levels),
    )


def _level_cycles(level: Level, counted: LevelAccesses, compute: Scalar) -> Scalar:
    """Cycles of a level that reads and writes every word that is counted [cycle]."""
    zero = jnp.zeros_like(compute)
    reads = functools.reduce(jnp.add, [each.reads / compute for each in counted if each], zero)
    writes = functools.reduce(jnp.add, [(each.fills + each.updates) / compute for each in counted if each], zero)
    return stream_cycles(level, reads, writes, compute)


def stream_cycles(level: Level, reads: Scalar, writes: Scalar, compute: Scalar) -> Scalar:
    """ceil(compute / slowdown), slowdown = min(1, bandwidth / demand) over reads, writes and both together [cycle].

    Demands are words of one instance per step of the units [word/cycle]. The quotient is rounded before it is rounded
    up, as Timeloop does in doubles: where it should be whole, both may come out one cycle long.
    """
    slowdown = functools.reduce(
        jnp.minimum,
        [
            _slowdown(reads, level.read_bandwidth),
            _slowdown(writes, level.write_bandwidth),
            _slowdown(reads + writes, level.shared_bandwidth),
        ],
    )
    served = slowdown > 0.0
    return jnp.where(served, ceil_div(compute / jnp.where(served, slowdown, 1.0), jnp.ones_like(compute)), jnp.inf)


def _slowdown(demand: Scalar, bandwidth: Scalar) -> Scalar:
    """Share of the units' pace that a bandwidth allows [1]."""
    short = demand > bandwidth
    return jnp.where(short, jnp.where(short, bandwidth, 1.0) / jnp.where(short, demand, 1.0), 1.0)


def slowest(compute: Scalar, paces: list[Scalar]) -> tuple[Scalar, Int[Array, ""]]:
    """The most cycles, and whose they are: 0 for the units, else 1 + index of the level."""
    cycles, limiter = compute, jnp.int32(0)
    for index, pace in enumerate(paces):
        limiter = jnp.where(pace > cycles, jnp.int32(index + 1), limiter)
        cycles = jnp.maximum(cycles, pace)
    return cycles, limiter


def _level_cost(level: Level, counted: LevelAccesses, used: Scalar, pace: Scalar, cycles: Scalar) -> LevelCost:
    """Energy of all instances: whole blocks are read and written, what leaves inwards or comes from there passes wires,
    and instances that are used leak all the time."""
    charged = charged_instances(level, used)
    energies = tuple(
        jnp.zeros_like(used)
        if each is None
        else charged
        * (
            ceil_div(each.reads, level.block) * level.read_energy
            + ceil_div(each.fills, level.block) * level.write_energy
            + ceil_div(each.updates, level.block) * level.update_energy
        )
        + used * wire_energy(level, each, each.reads + each.updates)
        for each in counted
    )
    leaked = level.leakage * cycles * used
    return LevelCost(used, pace, functools.reduce(jnp.add, energies, leaked), energies, counted)


def charged_instances(level: Level, used: Scalar) -> Scalar:
    """Instances that pay for an access: those of a cluster share it [1]."""
    return jnp.minimum(used, level.instances / level.cluster)


def machine_area(architecture: Architecture) -> Scalar:
    """Area of all instances of all levels and of the units [m2]."""
    levels = [level.instances * level.area for level in architecture.levels]
    return functools.reduce(jnp.add, levels, architecture.macs * architecture.mac_area)
