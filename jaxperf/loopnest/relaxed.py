"""A map space made smooth: prime factors lean towards slots and levels towards orders, and slopes reach both.

The cost is that of one mapping, drawn by adding noise and taking the largest, so that every value is exact; its slope
in the factors goes straight through to the softmax behind the draw (Jang et al., "Categorical Reparameterization with
Gumbel-Softmax", ICLR 2017). Orders are drawn from a softmax over those that keep one operand still (weights, inputs or
outputs, as in DOSA, Hong et al., MICRO 2023) and learn by how much better a draw was than those before it (Williams,
"Simple statistical gradient-following algorithms", Machine Learning 8, 1992).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.feasible import needed
from jaxperf.loopnest.genomes import Genome, bypassing
from jaxperf.loopnest.lower_bound import operand_orders
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import MapSpace, factors_of, mapping_of
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.search import objective_of

PRICE = 5.0  # of a factor e beyond a capacity or a mesh, in factors e of the objective
SURPRISE = 2.0  # most that a draw may be better or worse than expected, in factors e


class Leaning(NamedTuple):
    """Logits: `place`, of every prime factor for each of S slots; `order`, of each free level for each of O orders."""

    place: Float[Array, "*batch D K S"]
    order: Float[Array, "*batch F O"]


class Choice(NamedTuple):
    """A mapping drawn from a leaning, and its `genome`. `likelihood`: ln of how likely the orders were."""

    mapping: Mapping
    genome: Genome
    likelihood: Scalar


class Priced(NamedTuple):
    """A mapping's cost, also where it cannot run: `energy` [J] and `cycles`; `excess`: the sum of ln(needed / there) of
    what does not fit; `cost`: exact."""

    energy: Scalar
    cycles: Scalar
    excess: Scalar
    cost: NestCost


class Draw(NamedTuple):
    """One mapping. `loss`: ln of the objective, with the price of what does not fit; `surprise`: its part that teaches
    the orders; `score`: exact, infinite where the mapping cannot run; `reason`: why not."""

    loss: Scalar
    surprise: Scalar
    score: Scalar
    reason: Int[Array, ""]
    genome: Genome


def stationary_orders(problem: Problem) -> Float[np.ndarray, "O D"]:
    """Ranks of a level under which some operand stays as long as it can."""
    dimensions = len(problem.bounds)
    found = {order for operand in problem.operands for order in operand_orders(operand, dimensions)}
    return np.array(sorted(found), float).reshape(-1, dimensions)


def most_slots(space: MapSpace) -> int:
    """S of `Leaning`: the slots of the dimension that has most [1]."""
    return max(1, *(len(slots) for slots in space.structure.slots))


def draw_mapping(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    orders: Float[Array, "F O D"],
    keep: Bool[Array, " B"] | None,
    leaning: Leaning,
    noise: Leaning,
    expected: Scalar,
    objective: str,
) -> Draw:
    """The mapping of the largest logits plus noise; slopes of `loss + surprise` teach the leaning.

    **Arguments:** `orders`: ranks to choose from at each free level; `keep`: as of `Genome`, which stays; `expected`:
    the loss of draws before this one; `objective`: of `OBJECTIVES`.
    """
    chosen = choose(space, orders, keep, leaning, noise)
    found = priced(problem, architecture, chosen.mapping)
    loss = objective_log(found.energy, found.cycles, objective) + PRICE * found.excess
    score = objective_of(found.cost, objective)
    return Draw(loss, surprise(loss, expected, chosen), score, found.cost.reason, chosen.genome)


def choose(
    space: MapSpace, orders: Float[Array, "F O D"], keep: Bool[Array, " B"] | None, leaning: Leaning, noise: Leaning
) -> Choice:
    """The mapping of the largest logits plus noise; arguments as of `draw_mapping`."""
    place, factors = _straight_factors(space, leaning.place + noise.place)
    chosen = jnp.argmax(leaning.order + noise.order, axis=-1)
    rank = jnp.take_along_axis(orders, chosen[:, None, None], axis=1)[:, 0]
    mapping = bypassing(space, mapping_of(space, factors, rank), keep)
    likelihood = jnp.take_along_axis(jax.nn.log_softmax(leaning.order, axis=-1), chosen[:, None], axis=1)
    return Choice(mapping, Genome(place, rank, keep), jnp.sum(likelihood))


def surprise(loss: Scalar, expected: Scalar, chosen: Choice) -> Scalar:
    """What teaches the orders how much better than `expected` they were, nothing before anything was expected (NaN);
    its value says nothing."""
    better = jnp.clip(jax.lax.stop_gradient(loss - expected), -SURPRISE, SURPRISE)
    return jnp.where(jnp.isnan(better), 0.0, better) * chosen.likelihood


def _straight_factors(space: MapSpace, logits: Float[Array, "D K S"]) -> tuple[Int[Array, "D K"], list[list[Scalar]]]:
    """The slot of every prime factor, and the factor of every slot: its value is the exact product, its slope that of
    the mean of ln prime under the softmax [1]."""
    logits = jnp.where(_open_slots(space), logits, -jnp.inf)
    place = jnp.argmax(logits, axis=-1)
    share = jax.nn.softmax(logits, axis=-1)
    mean = jnp.sum(share * jnp.log(space.primes)[:, :, None], axis=1)
    straight = jnp.exp(mean - jax.lax.stop_gradient(mean))  # one, with a slope
    exact = factors_of(space, place)
    return place, [[factor * straight[d, s] for s, factor in enumerate(row)] for d, row in enumerate(exact)]


def _open_slots(space: MapSpace) -> Bool[Array, "D 1 S"]:
    """Whether a dimension has so many slots; one that has none keeps the first, where its ones lie."""
    many = [max(1, len(slots)) for slots in space.structure.slots]
    return jnp.asarray([[[slot < each for slot in range(most_slots(space))]] for each in many])


def priced(problem: Problem, architecture: Architecture, mapping: Mapping) -> Priced:
    """What a mapping costs, whether or not it fits; scalar leaves of one point."""
    cost = nest_cost(problem, architecture, mapping)
    energy = functools.reduce(jnp.add, [level.energy for level in cost.levels], cost.mac_energy)
    cycles = functools.reduce(jnp.maximum, [level.cycles for level in cost.levels], cost.macs / cost.units)
    return Priced(energy, cycles, _excess(architecture, mapping, cost), cost)


def objective_log(energy: Scalar, cycles: Scalar, objective: str) -> Scalar:
    """ln of the objective."""
    return functools.reduce(jnp.add, [jnp.log(part) for part in objective_parts(energy, cycles, objective)])


def objective_parts(energy: Scalar, cycles: Scalar, objective: str) -> list[Scalar]:
    """The factors of the objective."""
    return {"energy": [energy], "cycles": [cycles], "edp": [energy, cycles]}[objective]


def _excess(architecture: Architecture, mapping: Mapping, cost: NestCost) -> Scalar:
    """Sum of ln(needed / there) over tiles, instances and meshes that are too small."""
    excess = [over(cost.units, architecture.macs)]
    tiles = needed(architecture, mapping, [level.accesses for level in cost.levels])
    for kept, level, found, (size, columns, rows) in zip(
        mapping.kept, architecture.levels, cost.levels, tiles, strict=True
    ):
        excess.append(over(found.instances, level.instances))
        excess.append(over(columns, level.fan_x))
        excess.append(over(rows, level.fan_y))
        if any(kept):
            excess.append(over(jnp.maximum(size, level.buffering), level.size))  # one that lets all pass holds nothing
    return functools.reduce(jnp.add, excess)


def over(needed: Scalar, there: Scalar) -> Scalar:
    """How far `needed` is beyond `there`, as a difference of logarithms so that an infinite one has a slope of zero."""
    return jnp.maximum(jnp.log(needed) - jnp.log(there), as_float(0.0))
