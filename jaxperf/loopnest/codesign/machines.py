"""Machines compared on the layers of a network: every machine is mapped, and every mapping is tried on all machines.

Sizes, instances, bandwidths and energies are traced, so that machines of one structure share a compilation. A search
ends near the best mapping, not always at it; handing all mappings to all machines takes that noise out of the
comparison, since no machine is then worse than another that is smaller in some way and otherwise alike.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxperf.core.numerics import Scalar, stack
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.feasible import needed
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.search import objective_of


class LayerCost(NamedTuple):
    """A layer on M machines. `score`: of the objective, infinite where nothing runs; `cycles`; `energy` [J]; `parts`:
    energy of the units, then of each level from the innermost [J]; `needed`: of each level, the size that its tiles
    take [word] and the children along X and along Y [1]; `limiter`: as of `NestCost`."""

    score: Float[Array, "*batch"]
    cycles: Float[Array, "*batch"]
    energy: Float[Array, "*batch"]
    parts: Float[Array, "*batch P"]
    needed: Float[Array, "*batch L 3"]
    limiter: Int[Array, "*batch"]


class Totals(NamedTuple):
    """A network on M machines, its layers one after the other. `cycles`; `energy` [J]: NaN where a layer cannot run;
    `parts`: energy as in `LayerCost` [J]; `needed`: as in `LayerCost`, of all layers; `waits`: cycles of the layers
    that each part limits; `failed`: layers that cannot run."""

    cycles: Float[np.ndarray, " M"]
    energy: Float[np.ndarray, " M"]
    parts: Float[np.ndarray, "M P"]
    needed: Float[np.ndarray, "M L 3"]
    waits: Float[np.ndarray, "M P"]
    failed: Bool[np.ndarray, "M layers"]


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
        return LayerCost(
            objective_of(cost, objective),
            cost.cycles,
            cost.energy,
            jnp.stack(parts),
            jnp.stack(
                [jnp.stack(each) for each in needed(machine, mapping, [level.accesses for level in cost.levels])]
            ),
            cost.limiter,
        )

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
        np.max([cost.needed for cost in costs], axis=0),
        np.stack([np.where(limiters == part, cycles, 0.0).sum(axis=1) for part in range(parts.shape[1])], axis=1),
        np.stack([~np.isfinite(cost.score) for cost in costs], axis=1),
    )
