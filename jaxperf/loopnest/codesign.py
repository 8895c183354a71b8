"""Machines compared on the layers of a network: every machine is mapped, and every mapping is tried on all machines.

Sizes, instances, bandwidths and energies are traced, so that machines of one structure share a compilation. A search
ends near the best mapping, not always at it; handing all mappings to all machines takes that noise out of the
comparison, since no machine is then worse than another that is smaller in some way and otherwise alike.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxperf.core.numerics import Scalar, stack
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.codesign_energy import LAWS
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.search import objective_of


class LayerCost(NamedTuple):
    """A layer on M machines. `score`: of the objective, infinite where nothing runs; `cycles`; `energy` [J]; `parts`:
    energy of the units, then of each level from the innermost [J]; `limiter`: as of `NestCost`."""

    score: Float[Array, "*batch"]
    cycles: Float[Array, "*batch"]
    energy: Float[Array, "*batch"]
    parts: Float[Array, "*batch P"]
    limiter: Int[Array, "*batch"]


class Totals(NamedTuple):
    """A network on M machines, its layers one after the other. `cycles`; `energy` [J]: NaN where a layer cannot run;
    `parts`: energy as in `LayerCost` [J]; `waits`: cycles of the layers that each of them limits; `failed`: layers
    that cannot run."""

    cycles: Float[np.ndarray, " M"]
    energy: Float[np.ndarray, " M"]
    parts: Float[np.ndarray, "M P"]
    waits: Float[np.ndarray, "M P"]
    failed: Bool[np.ndarray, "M layers"]


def resized(level: Level, size: float, word: float, law: str) -> Level:
    """The level with another size [word], words of `word` [byte]: dynamic energies follow `law` of `LAWS` from what
    the level has, and every cell leaks alike. The area is no longer known."""
    before, block = float(level.size), float(level.block)
    energy = LAWS[law]
    ratio = energy(size * word, size / block) / energy(before * word, before / block)
    leaked = 1.0 if law == "fixed" else size / before
    return dataclasses.replace(
        level,
        size=size,
        read_energy=float(level.read_energy) * ratio,
        write_energy=float(level.write_energy) * ratio,
        update_energy=float(level.update_energy) * ratio,
        leakage=float(level.leakage) * leaked,
        area=np.nan,
    )


def multiplied(architecture: Architecture, level: int, after: float, before: float) -> Architecture:
    """The machine with `after` children of a level for every `before`, and so of all that is inside of them [1]."""
    inner = tuple(
        dataclasses.replace(each, instances=float(each.instances) * after / before)
        for each in architecture.levels[:level]
    )
    macs = float(architecture.macs) * after / before
    return dataclasses.replace(architecture, levels=inner + architecture.levels[level:], macs=macs)


def shared_costs(
    problem: Problem, machines: Sequence[Architecture], mappings: Sequence[Mapping], objective: str
) -> LayerCost:
    """Every machine with the best of all mappings of one layer, where one of them can run on it.

    **Arguments:** `machines`: of one structure; `mappings`: with a leading axis of several each; `objective`: of
    `OBJECTIVES`.
    """
    tried = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *mappings)
    costs = jax.tree.map(np.asarray, _every_pair(problem, stack(machines), tried, objective))
    best = (np.arange(len(machines)), np.argmin(costs.score, axis=1))
    return LayerCost(*(leaf[best] for leaf in costs))


@functools.partial(jax.jit, static_argnames=("objective",))
def _every_pair(problem: Problem, machines: Architecture, mappings: Mapping, objective: str) -> LayerCost:
    """Costs [machine, mapping]."""

    def one(machine: Architecture, mapping: Mapping) -> LayerCost:
        cost = nest_cost(problem, machine, mapping)
        parts: list[Scalar] = [cost.mac_energy, *(level.energy for level in cost.levels)]
        return LayerCost(objective_of(cost, objective), cost.cycles, cost.energy, jnp.stack(parts), cost.limiter)

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(machines, mappings)


def network_totals(costs: Sequence[LayerCost], counts: Sequence[int]) -> Totals:
    """Sums over layers, each of which runs `counts` times [1]."""
    often = np.asarray(counts, float)
    cycles = np.stack([cost.cycles for cost in costs], axis=1) * often
    limiters = np.stack([cost.limiter for cost in costs], axis=1)
    parts = np.stack([cost.parts for cost in costs], axis=-1) @ often
    return Totals(
        cycles.sum(axis=1),
        np.stack([cost.energy for cost in costs], axis=1) @ often,
        parts,
        np.stack([np.where(limiters == part, cycles, 0.0).sum(axis=1) for part in range(parts.shape[1])], axis=1),
        np.stack([~np.isfinite(cost.score) for cost in costs], axis=1),
    )
