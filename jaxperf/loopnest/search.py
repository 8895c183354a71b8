"""Evolution over a map space: random genomes, then children of the best, all scored in one compiled call.

Selection keeps the best genomes of different scores; a child takes every loop's places and every level's order from
one of two parents, moves a few prime factors to other slots and swaps two loops. The operators are those of GAMMA
(Kao & Krishna, ICCAD 2020), on prime factors so that every child multiplies to the problem's bounds.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.genomes import Genome, genome_mapping, random_genomes
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.problem import Problem

OBJECTIVES = ("edp", "energy", "cycles")
PARENTS, CHILDREN = 512, 8192
FRESH = 8  # of so many children one is random, so that no population is the end of the search
MOVES = 2  # prime factors that a child moves
PRESSURE = 2.0  # a parent is drawn with the place u**PRESSURE in the ranking, u uniform


class Population(NamedTuple):
    """Genomes and their scores, best first; infinite for those that cannot run."""

    genomes: Genome
    scores: Float[Array, " N"]


class Generation(NamedTuple):
    """`population`: the survivors; `rejected`: of the genomes that were scored, how many each reason refused, in the
    order of `Reason` [1]."""

    population: Population
    rejected: Int[Array, " R"]


def objective_of(cost: NestCost, objective: str) -> Scalar:
    """What is minimized: EDP [J cycle], energy [J] or cycles; infinite where the mapping cannot run."""
    return jnp.where(cost.reason == 0, getattr(cost, objective), jnp.inf)


def first_population(space: MapSpace, key: PRNGKeyArray) -> Population:
    """Random genomes that nobody has scored."""
    genomes = random_genomes(space, key, PARENTS)
    return Population(genomes, jnp.full(PARENTS, jnp.inf, space.primes.dtype))


def first_generation(space: MapSpace, key: PRNGKeyArray) -> Generation:
    """`first_population`, before anything was refused."""
    return Generation(first_population(space, key), jnp.zeros(len(Reason), jnp.int32))


@functools.partial(jax.jit, static_argnames=("objective",))
def next_generation(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    before: Generation,
    key: PRNGKeyArray,
    objective: str,
) -> Generation:
    """The best of a population, its children and a few random genomes."""
    population = before.population
    mating, mutation, fresh = jax.random.split(key, 3)
    children = _mutated(space, _crossed(population, mating), mutation)
    strangers = random_genomes(space, fresh, CHILDREN // FRESH)
    tried = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), children, strangers)
    scores, rejected = score(problem, architecture, space, tried, objective)
    return Generation(survivors(population, Population(tried, scores)), rejected)


@functools.partial(jax.jit, static_argnames=("objective",))
def random_generation(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    before: Generation,
    key: PRNGKeyArray,
    objective: str,
) -> Generation:
    """The best of a population and as many random genomes as a generation has children."""
    genomes = random_genomes(space, key, CHILDREN)
    scores, rejected = score(problem, architecture, space, genomes, objective)
    return Generation(survivors(before.population, Population(genomes, scores)), rejected)


def score(
    problem: Problem, architecture: Architecture, space: MapSpace, genomes: Genome, objective: str
) -> tuple[Float[Array, " N"], Int[Array, " R"]]:
    """Scores of a batch, and how many of it each reason refused."""

    def one(genome: Genome) -> tuple[Scalar, Int[Array, ""]]:
        cost = nest_cost(problem, architecture, genome_mapping(space, genome))
        return objective_of(cost, objective), cost.reason

    scores, reasons = jax.vmap(one)(genomes)
    return scores, count_reasons(reasons)


def count_reasons(reasons: Int[Array, " N"]) -> Int[Array, " R"]:
    """How many have each reason, in the order of `Reason` [1]."""
    return jnp.stack([jnp.sum(reasons & int(reason) != 0) for reason in Reason])


def survivors(old: Population, new: Population) -> Population:
    """The `PARENTS` best of both; of genomes that score the same only one counts, or all would soon be alike."""
    population = jax.tree.map(lambda one, other: jnp.concatenate([one, other]), old, new)
    order = jnp.argsort(population.scores)
    scores = population.scores[order]
    repeated = jnp.concatenate([jnp.zeros(1, bool), scores[1:] == scores[:-1]])
    chosen = jnp.argsort(jnp.where(repeated, jnp.inf, scores))[:PARENTS]
    genomes = jax.tree.map(lambda leaf: leaf[order][chosen], population.genomes)
    return Population(genomes, scores[chosen])


def _crossed(population: Population, key: PRNGKeyArray) -> Genome:
    """Children of two parents each: of every loop, level and choice what one of them has."""
    drawing, *mixing = jax.random.split(key, 3)
    number = CHILDREN - CHILDREN // FRESH
    drawn = jax.random.uniform(drawing, (2, number)) ** PRESSURE * PARENTS
    parents = jax.tree.map(lambda leaf: leaf[drawn.astype(jnp.int32)], population.genomes)
    one, other = (jax.tree.map(operator.itemgetter(parent), parents) for parent in range(2))
    place_from, rank_from = (
        jax.random.bernoulli(each, 0.5, leaf.shape[:2])[..., None] for each, leaf in zip(mixing, one[:2], strict=True)
    )
    keep = None
    if one.keep is not None:
        keep = jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, one.keep.shape), one.keep, other.keep)
    place = jnp.where(place_from, one.place, other.place)
    return Genome(place, jnp.where(rank_from, one.rank, other.rank), keep)


def _mutated(space: MapSpace, genomes: Genome, key: PRNGKeyArray) -> Genome:
    """Two prime factors move to slots drawn anew, maybe their own; two loops of a level swap in every other order, and
    one choice in `len(choices)` turns over."""
    moving, drawing, swapping = jax.random.split(key, 3)
    number, dimensions, width = genomes.place.shape
    primes = space.primes.reshape(-1) > 1.0
    real = jnp.argsort(~primes)  # positions of prime factors before those of padding
    picked = real[jax.random.randint(moving, (MOVES, number), 0, jnp.maximum(jnp.sum(primes), 1))]
    slots = jnp.asarray([max(len(each), 1) for each in space.structure.slots], jnp.int32)
    anew = jax.random.randint(drawing, picked.shape, 0, slots[picked // width])
    place = genomes.place.reshape(number, -1)
    for position, slot in zip(picked, anew, strict=True):
        place = place.at[jnp.arange(number), position].set(slot)
    keep = None
    if genomes.keep is not None:
        share = 1.0 / len(space.structure.choices)
        keep = genomes.keep ^ jax.random.bernoulli(jax.random.fold_in(key, 1), share, genomes.keep.shape)
    return Genome(place.reshape(number, dimensions, width), _swapped(genomes.rank, swapping), keep)


def _swapped(rank: Float[Array, "N F D"], key: PRNGKeyArray) -> Float[Array, "N F D"]:
    """Two ranks of each order exchanged with probability one half."""
    drawing, deciding = jax.random.split(key)
    pair = jax.random.randint(drawing, (2, *rank.shape[:2], 1), 0, rank.shape[2]).astype(rank.dtype)
    pair = jnp.where(jax.random.bernoulli(deciding, 0.5, (1, *pair.shape[1:])), pair, pair[:1])
    return jnp.where(rank == pair[0], pair[1], jnp.where(rank == pair[1], pair[0], rank))
