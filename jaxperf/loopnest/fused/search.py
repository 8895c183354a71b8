"""The best mapping of a chain: shared tiles and the mappings of all stages together, by a random-key genetic algorithm.

A point is a vector of keys in [0, 1), one for the place of every prime factor and one for the rank of every loop of
every stage, so that children of any two parents are points too (Bean, ORSA Journal on Computing 1994); a child has the
keys of a loop or of an order from one of two parents, one of them of the elite, and some newcomers are random (BRKGA:
Goncalves and Resende, Journal of Heuristics 2011). Scores are of float32; the leading points are scored again in the
precision of the arguments.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.fused.chain import Chain
from jaxperf.loopnest.fused.evaluate import ChainCost, ChainReason, chain_cost
from jaxperf.loopnest.fused.keys import decoded, key_blocks
from jaxperf.loopnest.fused.mapping import FusedMapping, Fusion
from jaxperf.loopnest.fused.space import ChainSpace
from jaxperf.loopnest.mapper import Effort, Report, Step, Walked, walk

SURVIVORS, ELITE, CHILDREN = 512, 128, 4096
FRESH = 8  # of so many children one is random
BIAS = 0.7  # of a child's blocks of keys are those of its parent of the elite
MOVES = 2  # keys of a child that are drawn anew
REFUSED = 1e30  # the score of what cannot run, for every reason
RESCORED = 4
REASONS = (*Reason, *ChainReason)


class ChainFound(NamedTuple):
    """`mapping` and its `cost`, `None` where nothing can run; `score`: of the objective, else infinite; `evaluations`:
    mappings scored; `rejected`: how many of them each reason refused; `interrupted`: by the user."""

    mapping: FusedMapping | None
    cost: ChainCost | None
    score: float
    evaluations: int
    rejected: dict[Reason | ChainReason, int]
    interrupted: bool


class Herd(NamedTuple):
    """Points and their scores, best first; `REFUSED` or more for those that cannot run."""

    keys: Float[Array, "N G"]
    scores: Float[Array, " N"]


def find_chain_mapping(
    chain: Chain,
    architecture: Architecture,
    space: ChainSpace,
    fusion: Fusion,
    objective: str = "edp",
    seed: int = 0,
    effort: Effort = Effort(),  # noqa: B008 -- immutable
    report: Report | None = None,
) -> ChainFound:
    """Search a space for the least EDP, energy or cycles.

    **Arguments:** scalar leaves of one point; `fusion`: that of the space; `objective`: of `OBJECTIVES` of
    `jaxperf.loopnest.search`; `report`: called with mappings scored and at most to come.
    **Returns:** what was found; an interruption by the user returns the best until then.
    """
    with jax.enable_x64(False):
        at = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), (chain, architecture, space))
        keys, walked = _evolve(at, fusion, objective, seed, effort, report)
    best = ChainFound(None, None, np.inf, walked.evaluations, walked.rejected, walked.interrupted)
    for row in keys:
        mapping = decoded(space, jnp.asarray(row, space.shared.primes.dtype), fusion.level)
        cost = chain_cost(chain, architecture, mapping, fusion)
        score = float(_score(cost, objective))
        if int(cost.reason) == 0 and score < best.score:
            best = best._replace(mapping=mapping, cost=cost, score=score)
    return best


def _evolve(
    at: tuple[Chain, Architecture, ChainSpace],
    fusion: Fusion,
    objective: str,
    seed: int,
    effort: Effort,
    report: Report | None,
) -> tuple[np.ndarray, Walked]:
    """The keys of the best points that can run, and how the search went."""

    def step(herd: Herd, now: PRNGKeyArray) -> Step:
        herd, rejected = _next_herd(*at, herd, now, fusion, objective)
        return Step(herd, herd.scores[0], rejected)

    key, first = jax.random.split(jax.random.key(seed))
    herd = Herd(jax.random.uniform(first, (SURVIVORS, len(key_blocks(at[2])))), jnp.full(SURVIVORS, jnp.inf))
    walked = walk(step, herd, key, effort, REASONS, report, CHILDREN)
    keys, scores = (np.asarray(leaf[:RESCORED]) for leaf in walked.state)
    return keys[scores < REFUSED], walked


def _next_herd(
    chain: Chain,
    architecture: Architecture,
    space: ChainSpace,
    herd: Herd,
    key: PRNGKeyArray,
    fusion: Fusion,
    objective: str,
) -> tuple[Herd, Int[Array, " R"]]:
    """The best of a herd, its children and newcomers; and how many of these each reason refused.

    Three compiled calls: in one, XLA:CPU fuses the decoding into the cost and runs it once for every number in it.
    """
    tried = _tried(space, herd, key)
    scores, reasons = _scored(chain, architecture, _mappings(space, tried, fusion.level), fusion, objective)
    return _best(herd, tried, scores), _counted(reasons)


@functools.partial(jax.jit, static_argnames=("level",))
def _mappings(space: ChainSpace, keys: Float[Array, "N G"], level: int) -> Any:
    return jax.vmap(lambda each: decoded(space, each, level))(keys)


@functools.partial(jax.jit, static_argnames=("fusion", "objective"))
def _scored(
    chain: Chain, architecture: Architecture, mappings: Any, fusion: Fusion, objective: str
) -> tuple[Float[Array, " N"], Int[Array, " N"]]:
    """Scores and reasons of mappings with a leading axis."""

    def one(mapping: FusedMapping) -> tuple[Scalar, Int[Array, ""]]:
        cost = chain_cost(chain, architecture, mapping, fusion)
        return _score(cost, objective), cost.reason

    return jax.vmap(one)(mappings)


@jax.jit
def _counted(reasons: Int[Array, " N"]) -> Int[Array, " R"]:
    return jnp.stack([jnp.sum(reasons & int(reason) != 0) for reason in REASONS])


@jax.jit
def _tried(space: ChainSpace, herd: Herd, key: PRNGKeyArray) -> Float[Array, "N G"]:
    """Children and newcomers."""
    mating, fresh = jax.random.split(key)
    strangers = jax.random.uniform(fresh, (CHILDREN // FRESH, herd.keys.shape[1]))
    return jnp.concatenate([_children(space, herd, mating), strangers])


def _children(space: ChainSpace, herd: Herd, key: PRNGKeyArray) -> Float[Array, "N G"]:
    """All keys of a loop's factors, and of a level's order, are those of one of two parents; a few are drawn anew."""
    elite, other, mixing, moving, drawing = jax.random.split(key, 5)
    number, width, blocks = CHILDREN - CHILDREN // FRESH, herd.keys.shape[1], key_blocks(space)
    one = herd.keys[jax.random.randint(elite, (number,), 0, ELITE)]
    two = herd.keys[jax.random.randint(other, (number,), 0, SURVIVORS)]
    drawn = jax.random.uniform(mixing, (number, width))
    together = drawn[: number // 2, np.asarray(blocks)]
    mixed = jnp.concatenate([together, drawn[number // 2 :]]) < BIAS
    child = jnp.where(mixed, one, two)
    picked = jax.random.randint(moving, (MOVES, number), 0, width)
    for position, drawn in zip(picked, jax.random.uniform(drawing, (MOVES, number)), strict=True):
        child = child.at[jnp.arange(number), position].set(drawn)
    return child


@jax.jit
def _best(herd: Herd, tried: Float[Array, "N G"], new: Float[Array, " N"]) -> Herd:
    """The best survivors; of points that score the same only one counts, or all would soon be alike."""
    every, keys = jnp.concatenate([herd.scores, new]), jnp.concatenate([herd.keys, tried])
    order = jnp.argsort(every)
    scores = every[order]
    repeated = jnp.concatenate([jnp.zeros(1, bool), scores[1:] == scores[:-1]]) & (scores < REFUSED)
    chosen = jnp.argsort(jnp.where(repeated, jnp.inf, scores))[:SURVIVORS]
    return Herd(keys[order[chosen]], scores[chosen])


def _score(cost: ChainCost, objective: str) -> Scalar:
    """The objective; of what cannot run, how many reasons all stages have together, beyond any objective, so that
    stages become feasible one by one."""
    reasons = [cost.reason, *(stage.reason for stage in cost.stages)]
    bits = functools.reduce(jnp.add, [jax.lax.population_count(each) for each in reasons])
    return jnp.where(cost.reason == 0, getattr(cost, objective), REFUSED * bits.astype(cost.energy.dtype))
