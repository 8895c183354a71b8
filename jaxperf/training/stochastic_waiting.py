"""Stages that wait for each other because micro-batches differ: a pipeline as a group that meets every so often.

In a 1F1B pipeline the time of a step is the longest of all walks over its stages that cross one stage with each pass.
Two stages exchange their best walks after every micro-batch, so of two the slower one counts each time: exact. Stages
farther apart exchange them less often. Stages are taken here as a group (`stochastic_group`) that meets every W
micro-batches, W between two limits:

- alike stages: the walk wanders and gains as the longest path in a strip does (Kardar-Parisi-Zhang); event by event,
  W = (q / 2)^0.35 for q stages;
- stages so different that two at most compete for the slowest: W = (q + 1) / 3, the mean distance of two of q.

Between them W goes with r^2 / (r^2 + 4), r the spread between stages over the jitter of a micro-batch. At both ends of
a step all walks run through the last stage, which leaves m - 2 (q / 2)^0.45 micro-batches to wait for. The exponents
and the 4 are observations on simulations of 2 to 64 stages (docs/stochastic.md), not laws.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic_grid import Distribution, moments, nodes
from jaxperf.training.stochastic_group import GroupTime, Slowest, slowest_of

ALIKE = 0.35  # exponent of the micro-batches between meetings of alike stages
MIXED = 4.0  # squared spread over jitter half-way between the limits
ENDS = 0.45  # exponent of the micro-batches that all walks share


class Waiting(eqx.Module):
    """`meetings`: micro-batches after which stages have waited for each other [1]; `slowest`: of the stages, averaged
    over the micro-batches `between` two meetings [1]."""

    meetings: Scalar
    between: Scalar
    slowest: Slowest

    def mean(self, pace: Float[Array, " cells"]) -> Float[Array, " cells"]:
        """What a step waits where the slowest stage takes `pace` for a micro-batch."""
        wait = self.slowest.mean - self.slowest.part
        return self.meetings * jnp.interp(pace, self.slowest.part, wait)

    def variance(self, pace: Float[Array, " cells"]) -> Float[Array, " cells"]:
        """What waiting leaves of the jitter of the micro-batches that are waited for, where the slowest stage takes
        `pace`."""
        return self.meetings * self.between * jnp.interp(pace, self.slowest.part, self.slowest.jitter) ** 2


def waiting(stage: GroupTime, even: Distribution, microbatches: Scalar, stages: Scalar) -> Waiting:
    """How `stages` that draw their time from `stage` wait for each other in a step.

    **Arguments:** `even`: the persistent part of `stage` less its mean, on an even grid; `stages`: those that can be
    the bottleneck [1].
    """
    mean, spread = moments(stage.persistent)
    apart = spread**2 / (spread**2 + MIXED * stage.jitter**2)
    half = 0.5 * stages
    between = half**ALIKE + apart * ((stages + 1.0) / 3.0 - half**ALIKE)
    meetings = jnp.maximum(microbatches - 2.0 * half**ENDS, 0.0)
    jitters = stage.jitter_at(mean + nodes(even)[0])
    return Waiting(meetings, between, slowest_of(even, jitters / safe_sqrt(between), stages))
