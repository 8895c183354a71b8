"""A pipeline whose stages differ by chance: the distribution of its max-plus makespan.

The 1F1B schedule of stages that take A_1 ... A_p for one microbatch (forward and backward, in one proportion) ends at

    T = max_j [ (m - b (p - 1 - j)) A_j + 2 b sum_(s > j) A_s + b sum_(s < j) A_s ],  j = 0 ... p - 1, b = 1

where stage j is the bottleneck: it works through all but the microbatches that fill the stages behind it, and waits for
the round trip through those at the start and at the end. With equal A this is (m + b (p - 1)) A. `b` scales the bubble:
1 / v for v interleaved chunks, smaller for schedules that fill it, which this formula then only approximates.

From stage to stage it is a recursion: with w_j = m - b (p - j),

    V_j = max(V_(j - 1) + b A_j, w_j A_j),    T = V_(p - 1) + b sum_s A_s

so the pace Y_j = V_j / w_j is a running maximum that forgets: Y_j = max(A_j, Y_(j - 1) + b / w_j (A_j - Y_(j - 1))).
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, safe_sqrt
from jaxperf.training.stochastic.gauss import cdf, tails
from jaxperf.training.stochastic.grid import (
    END,
    Distribution,
    masses,
    mixture,
    moments,
    nodes,
    scaled,
    score,
    score_at,
    value_at,
)
from jaxperf.training.stochastic.group import GroupTime
from jaxperf.training.stochastic.waiting import turning, waiting

POINTS = 129
MOST_STAGES = 128  # the recursion has this many steps; those beyond the pipeline's own are skipped
LOWEST, HIGHEST = -6.0, 7.5  # scores of a stage that the pace is followed over: one in 10^9 and in 10^13
SMALLEST_MASS = 1e-30
UNRESOLVED = 1e3  # roundings: a smaller difference of probabilities is noise
LEAST_SHARE = 1e-3  # of a micro-batch, for a stage that leads in none


class Pace(eqx.Module):
    """Y_j of the stages so far: `scores` of P(Y_j <= y) on a grid; `mean` and `variance` of the sum of their A where
    Y_j <= y."""

    scores: Float[Array, " grid"]
    mean: Float[Array, " grid"]
    variance: Float[Array, " grid"]


def pipeline_time(stage: GroupTime, microbatches: Scalar, stages: Scalar, bubble: Scalar) -> Distribution:
    """T over the nominal time of one microbatch on one stage.

    The law of the pace is exact for independent stages; the sum of A given the pace enters by its moments. Jitter
    between microbatches adds along the critical path, and makes stages wait for each other (`waiting`).

    **Arguments:** `stage`: what each of the equal stages draws from; `microbatches` [1]; `stages` up to `MOST_STAGES`,
    NaN beyond; `bubble`: b above [1].
    """
    mean, _ = moments(stage.persistent)
    excess = _covered(scaled(stage.persistent, jnp.ones_like(mean), -mean))
    pace, mass, total, variance = _sums_given_pace(excess, _last_pace(excess, microbatches, stages, bubble))
    length = microbatches + bubble * (stages - 1.0)
    able = jnp.minimum(stages, microbatches / jnp.maximum(bubble, LEAST_SHARE))
    waits = waiting(stage, excess, microbatches, able)
    leading = waits.leading(pace, mass)
    means = mean * length + (microbatches - bubble) * pace + bubble * total + waits.mean(leading)
    means = means + turning(stage.jitter, mean, microbatches, stages, bubble)
    means = jnp.where(stages <= MOST_STAGES, means, jnp.nan)
    added, waited = bubble * safe_sqrt(variance), waits.meetings * waits.slowest.rest
    others = added**2 + waited**2 + 2.0 * waits.slowest.alike * added * waited  # the same stages are in both
    chance = waits.variance(leading) + (length - waits.meetings) * stage.jitter**2
    return mixture(means, safe_sqrt(others + chance), mass)


def _covered(stage: Distribution) -> Distribution:
    """The same on an even grid of values that leaves out what no pipeline reaches."""
    low, high = value_at(stage, as_float((LOWEST, HIGHEST)))
    values = low + (high - low) * jnp.linspace(0.0, 1.0, POINTS)
    return Distribution(values, score_at(stage, values))


def _last_pace(stage: Distribution, microbatches: Scalar, stages: Scalar, bubble: Scalar) -> Pace:
    """Y of the last stage, for stages with a mean of zero."""
    zero = jnp.zeros_like(stage.values)
    _, spread = moments(stage)

    def follow(pace: Pace, index: Scalar) -> tuple[Pace, None]:
        behind = stages - index
        weight = microbatches - bubble * behind
        # an earlier stage never waits for its own microbatches
        leads = (behind > 0.0) & (weight >= 0.0)
        only_adds = Pace(pace.scores, pace.mean, pace.variance + jnp.where(behind > 0.0, spread**2, 0.0))
        return lax.cond(leads, lambda: _one_more(stage, pace, weight, bubble), lambda: only_adds), None

    nobody = Pace(zero + END, zero, zero)
    pace, _ = lax.scan(follow, nobody, jnp.arange(MOST_STAGES, dtype=zero.dtype))
    return pace


def _one_more(stage: Distribution, pace: Pace, weight: Scalar, bubble: Scalar) -> Pace:
    """P(Y_j <= y) = integral over a <= y of P(Y_(j - 1) <= y + b / w_(j - 1) (y - a)) dF(a), and moments alike."""
    y = stage.values
    a, mass = nodes(stage)
    inside = jnp.tril(jnp.ones((POINTS, POINTS - 1), y.dtype), -1) * mass[None, :]
    scores, sums, variances = _interpolated(pace, bubble / jnp.maximum(weight - bubble, LEAST_SHARE))
    lower, upper = (inside * each for each in tails(scores))
    missed = jnp.sum(upper, axis=1) + cdf(-stage.scores)
    reached = jnp.sum(lower, axis=1)
    share = lower / jnp.maximum(reached, SMALLEST_MASS)[:, None]
    sums = sums + a[None, :]
    mean = jnp.sum(share * sums, axis=1)
    variance = jnp.sum(share * (variances + (sums - mean[:, None]) ** 2), axis=1)
    return Pace(score(reached, missed), mean, variance)


def _interpolated(pace: Pace, ahead: Scalar) -> tuple[Float[Array, "grid cells"], ...]:
    """The three of `pace` at y + ahead (y - a), for y at each point and a at each middle of the even grid."""
    point = jnp.arange(POINTS, dtype=pace.scores.dtype)
    place = point[:, None] + ahead * (point[:, None] - point[None, :-1] - 0.5)
    place = jnp.clip(place, 0.0, POINTS - 1.0)
    below = jnp.minimum(place.astype(jnp.int32), POINTS - 2)
    share = place - below.astype(place.dtype)
    bend = 0.5 * share * (1.0 - share)

    def at(each: Float[Array, " grid"]) -> Float[Array, "grid cells"]:
        slope = jnp.asarray(jnp.gradient(each))
        curved = jnp.asarray(jnp.gradient(slope))  # left out, the error would add up over the stages
        return each[below] + share * jnp.diff(each)[below] - bend * curved[below]

    return at(pace.scores), at(pace.mean), at(pace.variance)


def _sums_given_pace(stage: Distribution, pace: Pace) -> tuple[Float[Array, " cells"], ...]:
    """(pace, its probability, mean and variance of the sum of A given it) of each cell of the grid."""
    middle = 0.5 * (stage.values[1:] + stage.values[:-1])
    reached = cdf(pace.scores)
    mass = jnp.diff(reached)
    known = mass > UNRESOLVED * jnp.finfo(mass.dtype).eps
    mass = jnp.where(known, mass, 1.0)
    mean = jnp.where(known, jnp.diff(reached * pace.mean) / mass, middle)  # a stage far above all others leads alone
    square = jnp.where(known, jnp.diff(reached * (pace.variance + pace.mean**2)) / mass, middle**2)
    return middle, masses(pace.scores), mean, jnp.maximum(square - mean**2, 0.0)
