"""A network on a machine whose numbers are free, made smooth: slopes reach the machine and the mapping of every layer.

Layers run one after the other, so the objective is of sums: ln EDP = ln sum E + ln sum C, as in DOSA's one loop (Hong
et al., MICRO 2023). DOSA takes a buffer to be as large as the largest tile; here its size is free and a tile beyond it
has a price, so that a larger buffer is worth what all layers together would pay for it, not the largest alone.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import machine_area
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.redesign import Knob, redesigned
from jaxperf.loopnest.relaxed import (
    PRICE,
    Choice,
    Leaning,
    Priced,
    choose,
    objective_log,
    objective_parts,
    over,
    priced,
    surprise,
)


class Layers(NamedTuple):
    """N shapes of layers along a leading axis; `counts`: how often each runs [1]."""

    problem: Problem
    space: MapSpace
    counts: Float[Array, " N"]


class PowerBudget(NamedTuple):
    """`most` power in the mean, of a cycle [J]; `known`: that of the machine of `numbers` (ln of its free fields) under
    searched mappings [J]."""

    most: Scalar
    known: Scalar
    numbers: Float[Array, " K"]


class Free(NamedTuple):
    """A machine with free numbers. `base` and `knobs`, with areas that are numbers; `low`, `high`: ln of their bounds;
    budgets: `area` [m2], infinite where there is none; `power`."""

    base: Architecture
    knobs: tuple[Knob, ...]
    low: Float[Array, " K"]
    high: Float[Array, " K"]
    area: Scalar
    power: PowerBudget | None


class Drawn(NamedTuple):
    """A network on one machine. `loss`: ln of the objective, with the price of what does not fit; `layers`: of each
    alone."""

    loss: Scalar
    layers: Float[Array, " N"]


class Slopes(NamedTuple):
    """Of the loss: in the leanings of all layers, and in the logarithms of the machine's numbers."""

    leaning: Leaning
    numbers: Float[Array, " K"]


def machine_of(free: Free, numbers: Float[Array, " K"]) -> Architecture:
    """The machine of `numbers`, ln of its free fields."""
    return redesigned(free.base, free.knobs, [jnp.exp(numbers[index]) for index in range(len(free.knobs))])


def network_slopes(
    layers: Layers,
    free: Free,
    leaning: Leaning,
    numbers: Float[Array, " K"],
    orders: Float[Array, "N F O D"],
    noise: Leaning,
    expected: Float[Array, " N"],
    objective: str,
) -> tuple[Slopes, Drawn]:
    """Slopes of one draw of every layer's mapping on one machine.

    Budgets teach the machine alone: mappings are searched again for the objective, and would not stay slow to save
    power.

    **Arguments:** `orders`, `noise`, `expected`: of every layer, as of `draw_mapping`; `objective`: of `OBJECTIVES`.
    """

    def outcome(leaning: Leaning, numbers: Array) -> tuple[tuple[Scalar, Scalar], Drawn]:
        machine = machine_of(free, numbers)
        energy, cycles, excess, choice = _layers(layers, machine, leaning, orders, noise)
        alone = objective_log(energy, cycles, objective) + PRICE * excess
        energies, times = layers.counts * energy, layers.counts * cycles
        parts = objective_parts(energies, times, objective)
        share = functools.reduce(jnp.add, [jax.lax.stop_gradient(part / jnp.sum(part)) for part in parts])
        loss = functools.reduce(jnp.add, [jnp.log(jnp.sum(part)) for part in parts]) + PRICE * jnp.sum(share * excess)
        taught = jnp.sum(share * jax.vmap(surprise)(alone, expected, choice))
        beyond = over(machine_area(machine), free.area)
        if free.power is not None:
            beyond = beyond + _power_beyond(layers, free, free.power, machine, jnp.sum(energies), choice.mapping)
        budgets = PRICE * beyond
        return (loss + taught, budgets), Drawn(loss + budgets, alone)

    value, pull, drawn = jax.vjp(outcome, leaning, numbers, has_aux=True)
    one, zero = jnp.ones_like(value[0]), jnp.zeros_like(value[0])
    return Slopes(pull((one, zero))[0], pull((one, one))[1]), drawn


def _layers(
    layers: Layers, machine: Architecture, leaning: Leaning, orders: Array, noise: Leaning
) -> tuple[Array, Array, Array, Choice]:
    """Energies [J], cycles, excesses and choices of all layers."""

    def one(problem: Problem, space: MapSpace, leaning: Leaning, orders: Array, noise: Leaning) -> tuple:
        choice = choose(space, orders, None, leaning, noise)
        found: Priced = priced(problem, machine, choice.mapping)
        return found.energy, found.cycles, found.excess, choice

    return jax.vmap(one)(layers.problem, layers.space, leaning, orders, noise)


def _power_beyond(
    layers: Layers, free: Free, budget: PowerBudget, machine: Architecture, energy: Scalar, mappings: Mapping
) -> Scalar:
    """ln(power / budget) where it is exceeded; `energy` of the network under these mappings [J].

    Relaxed mappings take more energy and wait for more than searched ones. So the known machine is given the same
    mappings, and its known power is multiplied by how much more energy, and units to take it, this one has.
    """
    known = machine_of(free, budget.numbers)
    energies = jax.vmap(lambda problem, mapping: priced(problem, known, mapping).energy)(layers.problem, mappings)
    more = energy / jnp.sum(layers.counts * energies) * machine.macs / known.macs
    return over(budget.known * more, budget.most)
