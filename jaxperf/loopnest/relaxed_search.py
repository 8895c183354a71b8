"""Search by slopes: the best of random mappings as starts, Adam on their leanings, then starts from the best of all.

Every step of a start scores one mapping exactly and follows its slope; that counts as `SLOPE` evaluations.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxperf.loopnest.adam import Moments, adam_step, no_moments
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.genomes import Genome, random_genomes
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.relaxed import Draw, Leaning, draw_mapping, most_slots, stationary_orders
from jaxperf.loopnest.search import CHILDREN, Population, count_reasons, first_population, score, survivors

SLOPE = 8  # evaluations that a step of a start counts; docs/mapper.md has its processor time
STARTS, STEPS = 128, 32  # leanings that climb together; steps of one compiled call
CALLS = 6  # compiled calls of a climb before it starts anew
EVALUATIONS = STARTS * STEPS * SLOPE  # of one call; as many random mappings give the starts
NOISE = 0.1  # scale of the Gumbel noise, in logits
MARGIN = 2.0  # logit by which a start leans to its own mapping
RATE = 0.3  # of Adam, in logits
EXPECTED_DECAY = 0.8  # of the expected loss, a step


class Climb(NamedTuple):
    """Leanings on their way. `moments`: of their slopes; `expected`: loss; `orders`: to choose from, the first of each
    start its own; `best`: the best mapping of each start."""

    leaning: Leaning
    moments: Moments
    expected: Float[Array, " N"]
    orders: Float[Array, "N F O D"]
    best: Population


class Descent(NamedTuple):
    """`population`: the best of all climbs until now; `rejected`: by the last call, in the order of `Reason` [1];
    `climb`: `None` before the first start; `calls`: made so far."""

    population: Population
    rejected: Int[Array, " R"]
    climb: Climb | None
    calls: int


_survivors = jax.jit(survivors)


def first_descent(space: MapSpace, key: PRNGKeyArray) -> Descent:
    """Nothing scored yet."""
    return Descent(first_population(space, key), jnp.zeros(len(Reason), jnp.int32), None, 0)


def descend(
    problem: Problem, architecture: Architecture, space: MapSpace, before: Descent, key: PRNGKeyArray, objective: str
) -> Descent:
    """One call further: new starts, or `STEPS` steps of those that are there."""
    at = (problem, architecture, space)
    if before.climb is None or before.calls % (CALLS + 1) == 0:
        climb, rejected = start_climb(*at, before.population, key, objective)
    else:
        climb, rejected = continue_climb(*at, before.climb, key, objective)
    return Descent(_survivors(before.population, climb.best), rejected, climb, before.calls + 1)


@functools.partial(jax.jit, static_argnames=("objective",))
def start_climb(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    known: Population,
    key: PRNGKeyArray,
    objective: str,
) -> tuple[Climb, Int[Array, " R"]]:
    """The best of those known and of `EVALUATIONS` random mappings, leaning to themselves; why some were refused."""

    def some(each: PRNGKeyArray) -> tuple[Population, Int[Array, " R"]]:
        genomes = random_genomes(space, each, CHILDREN)
        scores, rejected = score(problem, architecture, space, genomes, objective)
        return Population(genomes, scores), rejected

    drawn, rejected = jax.lax.map(some, jax.random.split(key, EVALUATIONS // CHILDREN))
    tried = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), drawn)
    best = jax.tree.map(lambda leaf: leaf[:STARTS], survivors(known, tried))
    leaning, orders = leaning_to(problem, space, best.genomes)
    runs = jnp.isfinite(best.scores)
    expected = jnp.where(runs, jnp.log(jnp.where(runs, best.scores, 1.0)), jnp.nan)
    return Climb(leaning, no_moments(leaning), expected, orders, best), jnp.sum(rejected, axis=0)


def leaning_to(problem: Problem, space: MapSpace, genomes: Genome) -> tuple[Leaning, Float[Array, "N F O D"]]:
    """Leanings to genomes, and the orders to choose from: their own, then the stationary ones."""
    dtype = space.primes.dtype
    others = jnp.asarray(stationary_orders(problem), dtype)
    many, free, dimensions = genomes.rank.shape
    shared = jnp.broadcast_to(others[None, None], (many, free, *others.shape))
    orders = jnp.concatenate([genomes.rank[:, :, None], shared], axis=2)
    order = jnp.zeros((many, free, len(others) + 1), dtype).at[:, :, 0].set(MARGIN)
    return Leaning(MARGIN * jax.nn.one_hot(genomes.place, most_slots(space), dtype=dtype), order), orders


@functools.partial(jax.jit, static_argnames=("objective",))
def continue_climb(
    problem: Problem, architecture: Architecture, space: MapSpace, climb: Climb, key: PRNGKeyArray, objective: str
) -> tuple[Climb, Int[Array, " R"]]:
    """`STEPS` steps of every start, and why mappings on the way were refused."""

    def taught(
        leaning: Leaning, noise: Leaning, orders: Array, keep: Array | None, expected: Array
    ) -> tuple[Leaning, Draw]:
        def loss(leaning: Leaning) -> tuple[Array, Draw]:
            draw = draw_mapping(problem, architecture, space, orders, keep, leaning, noise, expected, objective)
            return draw.loss + draw.surprise, draw

        return jax.grad(loss, has_aux=True)(leaning)

    def step(climb: Climb, key: PRNGKeyArray) -> tuple[Climb, Int[Array, " R"]]:
        given = (climb.leaning, gumbel(climb.leaning, key), climb.orders, climb.best.genomes.keep, climb.expected)
        slope, draw = jax.vmap(taught)(*given)
        return _stepped(climb, slope, draw), count_reasons(draw.reason)

    climb, rejected = jax.lax.scan(step, climb, jax.random.split(key, STEPS))
    return climb, jnp.sum(rejected, axis=0)


def gumbel(leaning: Leaning, key: PRNGKeyArray) -> Leaning:
    """Noise for the logits of leanings."""
    places, orders = jax.random.split(key)
    return Leaning(
        NOISE * jax.random.gumbel(places, leaning.place.shape, leaning.place.dtype),
        NOISE * jax.random.gumbel(orders, leaning.order.shape, leaning.order.dtype),
    )


def _stepped(climb: Climb, slope: Leaning, draw: Draw) -> Climb:
    """A step of Adam, and the better of each start's best and its draw."""
    leaning, moments = adam_step(climb.leaning, slope, climb.moments, RATE)
    expected = expect(climb.expected, draw.loss)
    best = _better(draw.score < climb.best.scores, Population(draw.genome, draw.score), climb.best)
    return Climb(leaning, moments, expected, climb.orders, best)


def expect(
    before: Float[Array, "*batch"], found: Float[Array, "*batch"], decay: float = EXPECTED_DECAY
) -> Float[Array, "*batch"]:
    """The running mean after one more, NaN before the first; one that is not finite says nothing."""
    after = jnp.where(jnp.isnan(before), found, decay * before + (1.0 - decay) * found)
    return jnp.where(jnp.isfinite(found), after, before)


def _better(chosen: Bool[Array, " N"], new: Population, old: Population) -> Population:
    """`new` where it is chosen."""
    return jax.tree.map(lambda a, b: jnp.where(chosen.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)
