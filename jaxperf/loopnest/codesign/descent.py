"""Machines and mappings that climb down together: Adam on the leanings of all layers and on the machine's numbers."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxperf.loopnest.adam import Moments, adam_step, no_moments
from jaxperf.loopnest.codesign.relaxed import Drawn, Free, Layers, Slopes, machine_of, network_slopes
from jaxperf.loopnest.evaluate import machine_area
from jaxperf.loopnest.genomes import Genome
from jaxperf.loopnest.relaxed import Leaning, over
from jaxperf.loopnest.relaxed_search import RATE, expect, gumbel, leaning_to

STARTS, STEPS = 8, 128  # machines that climb together; steps of a climb
STRIDE = 0.05  # of Adam, in logarithms of the machine's numbers
SETTLING = 0.95  # decay of the running means of numbers and loss, which are what a climb ends at
NEWTON = 8  # steps back to a budget of area


class Way(NamedTuple):
    """S machines on their way. `leaning`: of N layers each; `numbers`: ln of the free fields; `mean`: of these over the
    last steps; `loss`: over the last steps; `expected`: of each layer."""

    leaning: Leaning
    numbers: Float[Array, "S K"]
    moments: tuple[Moments, Moments]
    mean: Float[Array, "S K"]
    loss: Float[Array, " S"]
    expected: Float[Array, "S N"]


@functools.partial(jax.jit, static_argnames=("objective",))
def descend_machines(
    layers: Layers, free: Free, numbers: Float[Array, "S K"], genomes: Genome, key: PRNGKeyArray, objective: str
) -> tuple[Float[Array, "S K"], Float[Array, " S"]]:
    """Numbers after `STEPS` steps, within their bounds and the budget of area, and the loss there.

    **Arguments:** `numbers`: ln of the fields at the start; `genomes` [S, N]: mappings that the layers lean to first;
    `objective`: of `OBJECTIVES`.
    """
    leaning, orders = jax.vmap(jax.vmap(_leaning_to), (None, 0))(layers, genomes)
    bounded = jax.vmap(functools.partial(within, free))
    numbers = bounded(numbers)
    moments = no_moments(leaning), no_moments(numbers)
    unknown = jnp.full((numbers.shape[0], len(layers.counts)), jnp.nan, numbers.dtype)

    def step(way: Way, key: PRNGKeyArray) -> tuple[Way, None]:
        slopes, drawn = jax.vmap(taught)(way.leaning, way.numbers, orders, gumbel(way.leaning, key), way.expected)
        return _stepped(free, way, slopes, drawn), None

    def taught(leaning: Leaning, at: Array, orders: Array, noise: Leaning, expected: Array) -> tuple[Slopes, Drawn]:
        return network_slopes(layers, free, leaning, at, orders, noise, expected, objective)

    begin = Way(leaning, numbers, moments, numbers, unknown[:, 0], unknown)
    way, _ = jax.lax.scan(step, begin, jax.random.split(key, STEPS))
    return bounded(way.mean), way.loss


def _leaning_to(layers: Layers, genome: Genome) -> tuple[Leaning, Array]:
    """Of one layer to one mapping, and its orders."""
    found = leaning_to(layers.problem, layers.space, jax.tree.map(lambda leaf: leaf[None], genome))
    return jax.tree.map(lambda leaf: leaf[0], found)


def _stepped(free: Free, way: Way, slopes: Slopes, drawn: Drawn) -> Way:
    leaning, taught = adam_step(way.leaning, slopes.leaning, way.moments[0], RATE)
    numbers, moved = adam_step(way.numbers, slopes.numbers, way.moments[1], STRIDE)
    numbers = jnp.clip(numbers, free.low[None], free.high[None])
    mean, loss = expect(way.mean, numbers, SETTLING), expect(way.loss, drawn.loss, SETTLING)
    return Way(leaning, numbers, (taught, moved), mean, loss, expect(way.expected, drawn.layers))


def within(free: Free, numbers: Float[Array, " K"]) -> Float[Array, " K"]:
    """The numbers within their bounds, and where they can be within the budget of area: steps of Newton's along the
    slope of ln area."""
    numbers = jnp.clip(numbers, free.low, free.high)

    def step(numbers: Array, _: None) -> tuple[Array, None]:
        beyond, slope = jax.value_and_grad(lambda at: over(machine_area(machine_of(free, at)), free.area))(numbers)
        slope = jnp.where(numbers > free.low, slope, 0.0)  # what is at its least cannot help
        steepness = jnp.sum(slope * slope)
        back = beyond / jnp.where(steepness > 0.0, steepness, 1.0)
        return jnp.clip(numbers - back * slope, free.low, free.high), None

    return jax.lax.scan(step, numbers, None, length=NEWTON)[0]
