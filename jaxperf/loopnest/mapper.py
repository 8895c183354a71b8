"""The best mapping of a nest on a machine: evolution in float32, scores again in float64, and how far from the best.

Anytime: the search may be interrupted after any generation and keeps the best found; the same seed finds the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import Genome, MapSpace, genome_mapping
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.search import CHILDREN, OBJECTIVES, first_population, next_generation, objective_of

RESCORED = 4  # of the last population: more than float32 can confuse
Report = Callable[[int, int], None]


class Effort(NamedTuple):
    """`generations` at most; `patience`: generations without a better mapping that end the search."""

    generations: int = 400
    patience: int = 40


class Found(NamedTuple):
    """`mapping` and its `cost` in float64, `None` where nothing can run; `score`: of the objective, else infinite;
    `evaluations`: mappings scored; `rejected`: how many of them each reason refused; `interrupted`: by the user."""

    mapping: Mapping | None
    cost: NestCost | None
    score: float
    evaluations: int
    rejected: dict[Reason, int]
    interrupted: bool


def find_mapping(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    objective: str = "edp",
    seed: int = 0,
    effort: Effort = Effort(),  # noqa: B008 -- immutable
    report: Report | None = None,
) -> Found:
    """Search a space for the least EDP, energy or cycles.

    **Arguments:** scalar leaves of one point; `objective`: of `OBJECTIVES`; `report`: called with mappings scored and
    at most to come.
    **Returns:** what was found; an interruption by the user returns the best until then.
    **Raises:** `InputError` for an unknown objective.
    """
    if objective not in OBJECTIVES:
        hint = did_you_mean(objective, OBJECTIVES)
        raise InputError(f"'{objective}' is no objective; there are {', '.join(OBJECTIVES)}.{hint}")
    with jax.enable_x64(False):
        nest, machine, single = _single(problem), _single(architecture), _single(space)
        genomes, evaluations, rejected, interrupted = _evolve(nest, machine, single, objective, seed, effort, report)
    mapping, cost, score = best_of(problem, architecture, space, genomes, objective)
    return Found(mapping, cost, score, evaluations, rejected, interrupted)


def _single(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), tree)


def _evolve(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    objective: str,
    seed: int,
    effort: Effort,
    report: Report | None,
) -> tuple[Genome, int, dict[Reason, int], bool]:
    """The best genomes, how many were scored, why others were refused, and whether the user stopped it."""
    key = jax.random.key(seed)
    population = first_population(space, key)
    refused, best, stale, done, interrupted = np.zeros(len(Reason), int), np.inf, 0, 0, False
    try:
        while done < effort.generations and stale < effort.patience:
            key, now = jax.random.split(key)
            generation = next_generation(problem, architecture, space, population, now, objective)
            score = float(generation.population.scores[0])
            population = generation.population
            refused = refused + np.asarray(generation.rejected)
            stale = 0 if score < best else stale + 1
            best, done = min(score, best), done + 1
            if report is not None:
                report(done * CHILDREN, effort.generations * CHILDREN)
    except KeyboardInterrupt:
        interrupted = True
    leaders = jax.tree.map(lambda leaf: np.asarray(leaf[:RESCORED]), population.genomes)
    rejected = {reason: int(count) for reason, count in zip(Reason, refused, strict=True) if count}
    return leaders, done * CHILDREN, rejected, interrupted


def best_of(
    problem: Problem, architecture: Architecture, space: MapSpace, genomes: Genome, objective: str
) -> tuple[Mapping | None, NestCost | None, float]:
    """The best of a few genomes in the precision of the arguments; infinite where none can run."""
    best: tuple[Mapping | None, NestCost | None, float] = (None, None, np.inf)
    for index in range(len(genomes.place)):
        genome = Genome(jnp.asarray(genomes.place[index]), jnp.asarray(genomes.rank[index], space.primes.dtype))
        mapping = genome_mapping(space, genome)
        cost = nest_cost(problem, architecture, mapping)
        score = float(objective_of(cost, objective))
        if score < best[2]:
            best = mapping, cost, score
    return best
