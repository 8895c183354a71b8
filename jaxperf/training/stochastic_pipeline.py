"""A pipeline whose stages differ by chance: the distribution of its max-plus makespan.

The 1F1B schedule of stages that take A_1 ... A_p for one microbatch (forward and backward, in one proportion) ends at

    T = max_j [ (m - b (p - 1 - j)) A_j + 2 b sum_(s > j) A_s + b sum_(s < j) A_s ],  j = 0 ... p - 1, b = 1

where stage j is the bottleneck: it works through all but the microbatches that fill the stages behind it, and waits for
the round trip through those at the start and at the end. With equal A this is (m + b (p - 1)) A. `b` scales the bubble:
1 / v for v interleaved chunks, smaller for schedules that fill it, which this formula then only approximates.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic_grid import (
    Distribution,
    log_masses,
    mixture,
    moments,
    nodes,
    score_at,
)
from jaxperf.training.stochastic_group import GroupTime, given_part, given_slowest

MOST_STAGES = 128  # the arrays have this many columns; stages beyond the pipeline's own are masked
LOOSENESS = 0.85  # 0.7 to 1.1 over 2-32 stages, 8-128 microbatches, jitter of 0.25 to 2 times the spread of stages
LEAST_WEIGHT = 0.5  # of a stage's excess where there are as many microbatches as stages behind it
SMALLEST_MASS = 1e-30


def pipeline_time(stage: GroupTime, microbatches: Scalar, stages: Scalar, bubble: Scalar) -> Distribution:
    """T over the nominal time of one microbatch on one stage.

    With a the mean of A and w_j = m - b (p - j), the bottleneck exceeds its share by at most u with probability
    prod_j F(a + u / w_j), stages taken as independent; given which it is and u, every other stage is truncated at its
    own threshold, and their sum enters by its moments. Jitter between microbatches adds along the critical path, and
    makes stages wait for each other (`_waiting`).

    **Arguments:** `stage`: what each of the equal stages draws from; `microbatches` [1]; `stages` up to `MOST_STAGES`,
    NaN beyond; `bubble`: b above [1].
    """
    behind = jnp.arange(1.0, MOST_STAGES + 1.0)  # p - j for j = p - 1 ... : the last stage first
    exists = behind <= stages
    candidate = exists & (bubble * behind <= microbatches)  # an earlier stage never waits for its own microbatches
    weight = jnp.where(candidate, jnp.maximum(microbatches - bubble * behind, LEAST_WEIGHT), 1.0)
    mean, _ = moments(stage.persistent)
    excess = jnp.maximum(microbatches - bubble, LEAST_WEIGHT) * (stage.persistent.values - mean)
    limits = mean + excess[:, None] / weight[None, :]  # what each stage may take where the bottleneck has this excess
    limits = jnp.where(candidate[None, :], limits, stage.persistent.values[-1])
    middle = 0.5 * (limits[:-1] + limits[1:])

    wins, mass = _bottleneck(stage.persistent, limits, candidate)
    own = middle * (microbatches - bubble * (behind - 1.0))[None, :] + microbatches * _waiting(stage, middle, stages)
    rest, variance = _others(*_truncated(stage.persistent, middle), exists, bubble)
    jitter = (microbatches + bubble * (stages - 1.0)) * stage.jitter**2
    means = jnp.where(stages <= MOST_STAGES, jnp.sum(wins * (own + rest), axis=1), jnp.nan)
    spread = jnp.sum(wins * ((own + rest - means[:, None]) ** 2 + variance), axis=1)
    return mixture(means, safe_sqrt(spread + jitter), mass)


def _waiting(stage: GroupTime, slowest: Float[Array, "cells stages"], stages: Scalar) -> Float[Array, "cells stages"]:
    """What jitter adds to each microbatch where the slowest stage takes `slowest`.

    A 1F1B stage runs ahead of its neighbours by the microbatches in flight only. Event by event, p stages lose what
    they would by waiting for all each `LOOSENESS` sqrt(p) microbatches: an observation on simulations, not a law.
    """
    part, mass = nodes(stage.persistent)
    averaged = stage.jitter / safe_sqrt(LOOSENESS * safe_sqrt(stages))
    x, given = given_part(part, mass, averaged)
    return jnp.interp(slowest, part, given_slowest(x, given, mass, stages) - part)


def _bottleneck(
    stage: Distribution, limits: Float[Array, "grid stages"], exists: Bool[Array, " stages"]
) -> tuple[Float[Array, "cells stages"], Float[Array, " cells"]]:
    """(probability that a stage is the bottleneck, given the cell of the excess; probability of the cell)."""
    logs = jnp.where(exists[None, :], log_ndtr(score_at(stage, limits)), 0.0)
    hazards = jnp.diff(logs, axis=0) + jnp.where(exists, SMALLEST_MASS, 0.0)[None, :]
    return hazards / jnp.sum(hazards, axis=1, keepdims=True), log_masses(jnp.sum(logs, axis=1))


def _truncated(
    stage: Distribution, limits: Float[Array, "cells stages"]
) -> tuple[Float[Array, "cells stages"], Float[Array, "cells stages"]]:
    """(mean, variance) of a stage that is known to take no longer than its limit."""
    middle, mass = nodes(stage)
    centre = jnp.sum(middle * mass)
    sums = [jnp.cumsum(mass * (middle - centre) ** order) for order in range(3)]
    below, first, second = (jnp.interp(limits, stage.values[1:], each) for each in sums)
    below = jnp.maximum(below, SMALLEST_MASS)
    mean = first / below
    return centre + mean, jnp.maximum(second / below - mean**2, 0.0)


def _others(
    means: Float[Array, "cells stages"],
    variances: Float[Array, "cells stages"],
    exists: Bool[Array, " stages"],
    bubble: Scalar,
) -> tuple[Float[Array, "cells stages"], Float[Array, "cells stages"]]:
    """(mean, variance) of b sum_(s < j) A_s + 2 b sum_(s > j) A_s, for each j; the last stage is the first column."""
    return _around(means, exists, bubble, 2.0 * bubble), _around(variances, exists, bubble**2, (2.0 * bubble) ** 2)


def _around(
    terms: Float[Array, "cells stages"], exists: Bool[Array, " stages"], before: Scalar, after: Scalar
) -> Float[Array, "cells stages"]:
    terms = jnp.where(exists[None, :], terms, 0.0)
    through = jnp.cumsum(terms, axis=1)
    return before * (through[:, -1:] - through) + after * (through - terms)
