"""The best mapping of a nest on a machine: a search in float32, its leaders scored again in float64.

Anytime: the search may be interrupted after any step and keeps the best found; the same seed finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.genomes import Genome, genome_mapping, settled
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.relaxed_search import EVALUATIONS, descend, first_descent
from jaxperf.loopnest.search import (
    CHILDREN,
    OBJECTIVES,
    first_generation,
    next_generation,
    objective_of,
    random_generation,
)

RESCORED = 4  # of the last population: more than float32 can confuse
Report = Callable[[int, int], None]


class Effort(NamedTuple):
    """`generations` at most, of `CHILDREN` evaluations each; `patience`: of them without a better mapping, that end
    the search."""

    generations: int = 400
    patience: int = 40


class Method(NamedTuple):
    """A way to search. `first`: of a space and a key; `step`: of problem, architecture, space, what the last step
    returned, key and objective; both return what has a `population`, best first, and what was `rejected`;
    `generations`: that a step counts [1]."""

    first: Callable[..., Any]
    step: Callable[..., Any]
    generations: int


METHODS = {
    "evolution": Method(first_generation, next_generation, 1),
    "gradient": Method(first_descent, descend, EVALUATIONS // CHILDREN),
    "random": Method(first_generation, random_generation, 1),
}


class Step(NamedTuple):
    """`state` after it; `score`: its best; `rejected`: how many each reason refused, in the order of these [1]."""

    state: Any
    score: Scalar
    rejected: Int[Array, " R"]


class Walked(NamedTuple):
    """`state` after the last step; `evaluations`, `rejected` and `interrupted` as of `Found`."""

    state: Any
    evaluations: int
    rejected: dict[Any, int]
    interrupted: bool


class Searched(NamedTuple):
    """`leaders`: genomes, best first; `evaluations`, `rejected` and `interrupted` as of `Found`."""

    leaders: Genome
    evaluations: int
    rejected: dict[Reason, int]
    interrupted: bool


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
    method: str = "evolution",
) -> Found:
    """Search a space for the least EDP, energy or cycles.

    **Arguments:** scalar leaves of one point; `objective`: of `OBJECTIVES`; `report`: called with mappings scored and
    at most to come; `method`: of `METHODS`.
    **Returns:** what was found; an interruption by the user returns the best until then.
    **Raises:** `InputError` for an unknown objective or method.
    """
    for name, known, what in ((objective, OBJECTIVES, "objective"), (method, tuple(METHODS), "method")):
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"'{name}' is no {what}; there are {', '.join(known)}.{hint}")
    searched = search_space(problem, architecture, space, objective, seed, effort, report, METHODS[method])
    mapping, cost, score = best_of(problem, architecture, space, searched.leaders, objective)
    return Found(mapping, cost, score, searched.evaluations, searched.rejected, searched.interrupted)


def search_space(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    objective: str,
    seed: int,
    effort: Effort,
    report: Report | None = None,
    method: Method = METHODS["evolution"],
) -> Searched:
    """The `RESCORED` best genomes of a search in float32; arguments as of `find_mapping`."""
    with jax.enable_x64(False):
        at = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), (problem, architecture, space))

        def step(state: Any, now: PRNGKeyArray) -> Step:
            state = method.step(*at, state, now, objective)
            return Step(state, state.population.scores[0], state.rejected)

        key = jax.random.key(seed)
        walked = walk(step, method.first(at[2], key), key, effort, tuple(Reason), report, CHILDREN, method.generations)
        leaders = jax.tree.map(lambda leaf: np.asarray(leaf[:RESCORED]), walked.state.population.genomes)
    leaders = jax.tree.map(jnp.asarray, leaders._replace(rank=leaders.rank.astype(space.primes.dtype)))
    return Searched(leaders, walked.evaluations, walked.rejected, walked.interrupted)


def walk(
    step: Callable[[Any, PRNGKeyArray], Step],
    state: Any,
    key: PRNGKeyArray,
    effort: Effort,
    reasons: Sequence[Any],
    report: Report | None,
    children: int,
    generations: int = 1,
) -> Walked:
    """Steps until the effort is spent, nothing better comes, or the user stops it.

    **Arguments:** `state`: before the first step; `reasons`: that a step counts, in its order; `children`: evaluations
    of a generation, `generations`: of a step [1].
    """
    refused, best, stale, done, interrupted = np.zeros(len(reasons), int), np.inf, 0, 0, False
    try:
        while done < effort.generations and stale < effort.patience:
            key, now = jax.random.split(key)
            state, score, rejected = step(state, now)
            refused = refused + np.asarray(rejected)
            stale = 0 if float(score) < best else stale + generations
            best, done = min(float(score), best), done + generations
            if report is not None:
                report(done * children, effort.generations * children)
    except KeyboardInterrupt:
        interrupted = True
    counts = {reason: int(count) for reason, count in zip(reasons, refused, strict=True) if count}
    return Walked(state, done * children, counts, interrupted)


def best_of(
    problem: Problem, architecture: Architecture, space: MapSpace, genomes: Genome, objective: str
) -> tuple[Mapping | None, NestCost | None, float]:
    """The best of a few genomes in the precision of the arguments; infinite where none can run."""
    mappings, costs = _costs(problem, architecture, space, genomes)
    scores = np.asarray(objective_of(costs, objective))
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        return None, None, np.inf
    mapping, cost = jax.tree.map(lambda leaf: leaf[best], (mappings, costs))
    return settled(mapping), cost, float(scores[best])


@jax.jit
def _costs(problem: Problem, architecture: Architecture, space: MapSpace, genomes: Genome) -> tuple[Mapping, NestCost]:
    def one(genome: Genome) -> tuple[Mapping, NestCost]:
        mapping = genome_mapping(space, genome)
        return mapping, nest_cost(problem, architecture, mapping)

    return jax.vmap(one)(genomes)
