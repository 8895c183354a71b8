"""Stages that wait for each other because micro-batches differ: a pipeline as a group that meets every so often.

In a 1F1B pipeline the time of a step is the longest of all walks over its stages that cross one stage with each pass.
Two stages exchange their best walks after every micro-batch, so of two the slower one counts each time: exact. Stages
farther apart exchange them less often. Stages are taken here as a group (`slowest`) that meets every W
micro-batches, W between two limits:

- alike stages: the longest path in a strip, of the Kardar-Parisi-Zhang class, gains RATE (q - 1) / (q - 1 + c) standard
  deviations a micro-batch of q stages, whose correction goes as 1 / q, c such that two gain 1 / sqrt(pi), which is
  exact; its variance is that of two stages times (q / 2)^-1/2. W is what makes the group gain as much;
- stages so different that two at most compete for the slowest: W = (q + 1) / 3, the mean distance of two of q.

Between them W goes with r^2 / (r^2 + 2.7 d^0.32), r the spread between stages over the jitter of a micro-batch and
d = (q + 1) / 3. At both ends of a step all walks run through the last stage, which leaves m - 2 (q' / 2)^0.426
micro-batches to wait for, q' the stages less a few that short steps do not reach, and what `turning` adds. The rate and
the numbers of the last two sentences are observations on simulations of 2 to 32 stages (docs/stochastic.md), not laws.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic.gauss import cdf
from jaxperf.training.stochastic.grid import Distribution, evenly, largest_of, moments, nodes, normal
from jaxperf.training.stochastic.group import SMALLEST, GroupTime
from jaxperf.training.stochastic.slowest import Slowest, slowest_of

RATE = 1.345  # that the longest path in a wide strip gains in a micro-batch, of its jitter
PAIR_RATE, PAIR_VARIANCE = math.pi**-0.5, 1.0 - 1.0 / math.pi  # mean and variance of the larger of two normals
FORWARD = 1.0 / 3.0  # of a micro-batch's time on a stage
MIXED, MIXED_EXPONENT = 2.7, 0.32  # squared spread over jitter half-way between the limits, of two and by distance
ENDS = 0.426  # exponent of the micro-batches that all walks share
UNREACHED = 0.157  # share of the stages that walks leave out in a step of as many micro-batches
SLOWEST = 0.35  # of the way from the pace of a step to its slowest stage, where the stage is that others wait for


class Waiting(eqx.Module):
    """`meetings`: micro-batches after which stages have waited for each other [1]; `slowest`: of the stages, averaged
    over the micro-batches between two meetings; `kept`: of its variance, what stages leave that meet no sooner than
    their walks do [1]."""

    meetings: Scalar
    between: Scalar
    kept: Scalar
    slowest: Slowest

    def leading(self, pace: Float[Array, " cells"], mass: Float[Array, " cells"]) -> Float[Array, " cells"]:
        """What the stage takes that others wait for, where a step has this `pace`, of probability `mass`: between it
        and the slowest of all stages at as rare a draw, which short steps work at for a few micro-batches only."""
        return pace + SLOWEST * (self.slowest.at_same_rank(mass) - pace)

    def mean(self, leading: Float[Array, " cells"]) -> Float[Array, " cells"]:
        """What a step waits where the `leading` stage takes that for a micro-batch."""
        wait = self.slowest.mean - self.slowest.part
        return self.meetings * evenly(leading, self.slowest.part, wait)

    def variance(self, leading: Float[Array, " cells"]) -> Float[Array, " cells"]:
        """What waiting leaves of the jitter of the micro-batches that are waited for, where the `leading` stage takes
        that."""
        return self.meetings * self.between * self.kept * evenly(leading, self.slowest.part, self.slowest.jitter) ** 2


def waiting(stage: GroupTime, even: Distribution, microbatches: Scalar, stages: Scalar) -> Waiting:
    """How `stages` that draw their time from `stage` wait for each other in a step.

    **Arguments:** `even`: the persistent part of `stage` less its mean, on an even grid; `stages`: those that can be
    the bottleneck [1].
    """
    mean, spread = moments(stage.persistent)
    distance = (stages + 1.0) / 3.0
    apart = spread**2 / (spread**2 + MIXED * distance**MIXED_EXPONENT * stage.jitter**2)
    alike, kept = _alike(stages)
    between = alike + apart * (distance - alike)
    # where a schedule hides its bubble, more stages can lead than there are micro-batches: flat beyond the largest
    crowd = jnp.minimum(stages, microbatches * (4.0 * UNREACHED) ** (-1.0 / 3.0))
    reached = crowd * (1.0 - UNREACHED * (crowd / microbatches) ** 3)
    meetings = jnp.maximum(microbatches - 2.0 * (0.5 * reached) ** ENDS, 0.0)
    jitters = stage.jitter_at(mean + nodes(even)[0])
    slowest = slowest_of(even, jitters / safe_sqrt(between), stages)
    return Waiting(meetings, between, kept + apart * (1.0 - kept), slowest)


def turning(jitter: Scalar, mean: Scalar, microbatches: Scalar, stages: Scalar, bubble: Scalar) -> Scalar:
    """What walks gain on average that turn around before the last stage's first or last pass.

    Such a walk leaves out one pass of the last stage, `slack`, and crosses from the passes of one micro-batch to those
    of the next at the stage where that is longest. With D_s the sums of their differences, a random walk of p - 1 steps
    and of std `spread` at its end, it gains E max(0, max_s D_s - slack), and max_s D_s goes as |D_(p - 1)|.
    """
    gained = jnp.zeros_like(jitter)
    for crossed in (FORWARD, 1.0 - FORWARD):
        spread = jitter * safe_sqrt(2.0 * crossed * bubble * (stages - 1.0)) + SMALLEST
        slack = (1.0 - crossed) * bubble * mean / spread
        density = jnp.exp(-0.5 * slack**2) / math.sqrt(2.0 * math.pi)
        gained = gained + 2.0 * spread * (density - slack * cdf(-slack))
    return gained * jnp.clip(microbatches - 1.0, 0.0, 1.0)


def _alike(stages: Scalar) -> tuple[Scalar, Scalar]:
    """(W, share of a group's variance) of alike stages; of one or two, which meet each time, 1 and 1."""
    q = jnp.maximum(stages, 2.0)
    largest, spread = moments(largest_of(normal(jnp.zeros_like(q), jnp.ones_like(q)), q))
    rate = RATE * (q - 1.0) / (q - 2.0 + RATE / PAIR_RATE)
    return (largest / rate) ** 2, PAIR_VARIANCE * (0.5 * q) ** -0.5 / spread**2
