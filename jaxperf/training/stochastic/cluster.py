"""The step time of a whole cluster as a distribution: who waits for whom, from a group of ranks to all replicas.

The order is that of the run: ranks of a group wait for each other at every collective (`group`), stages of a
pipeline at every microbatch (`pipeline`), replicas once a step; all of them share a common factor. Maxima
over replicas are exact, F(t)^n, given the common factor, over which they are averaged. PRISM (arXiv 2510.15596) works
on the same ground; the formulas here are ours.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, safe_sqrt
from jaxperf.training.efficiencies import assumed_table
from jaxperf.training.stochastic.gauss import log_cdf
from jaxperf.training.stochastic.grid import (
    POINTS,
    Distribution,
    largest_of,
    masses,
    normal_grid,
    plus_normal,
    scaled,
    score,
    score_at,
    score_of_log,
    value_at,
)
from jaxperf.training.stochastic.group import SMALLEST, group_time
from jaxperf.training.stochastic.overlap import exposed_normal
from jaxperf.training.stochastic.pipeline import pipeline_time

EDGE = 6.0  # scores covered to each side: one in 10^9


class Variation(eqx.Module):
    """Coefficients of variation [1]: `static` of a rank (silicon, cooling; the same in every step), which is the
    `rank_spread` of `TrainingEfficiencies`; `dynamic` of one segment of work on one rank, `common` of what the ranks of
    a domain share (a hall's temperature, the power cap), `network` of the communication of a step; `domain`: devices
    that share one common factor [1]."""

    static: Float[Array, "*batch"] = eqx.field(converter=as_float)
    dynamic: Float[Array, "*batch"] = eqx.field(converter=as_float)
    common: Float[Array, "*batch"] = eqx.field(converter=as_float)
    network: Float[Array, "*batch"] = eqx.field(converter=as_float)
    domain: Float[Array, "*batch"] = eqx.field(converter=as_float)


class Synchronization(eqx.Module):
    """Who waits for whom in a step, and for how much work.

    `busy`: time of one microbatch on one stage [s]; `microbatches` of a replica; `stages` of its pipeline (at most
    `MOST_STAGES`); `bubble`: what a stage waits at start and end, in microbatches for each stage before the last;
    `members`: ranks of a stage that wait for each other `segments` times in a microbatch; `replicas` that wait for each
    other at the end of the step; `network`: exposed communication of the step, `reduction`: communication among the
    replicas that the last `cover` of compute hides, `rest`: what does not vary [s].
    """

    busy: Float[Array, "*batch"] = eqx.field(converter=as_float)
    microbatches: Float[Array, "*batch"] = eqx.field(converter=as_float)
    stages: Float[Array, "*batch"] = eqx.field(converter=as_float)
    bubble: Float[Array, "*batch"] = eqx.field(converter=as_float)
    members: Float[Array, "*batch"] = eqx.field(converter=as_float)
    segments: Float[Array, "*batch"] = eqx.field(converter=as_float)
    replicas: Float[Array, "*batch"] = eqx.field(converter=as_float)
    network: Float[Array, "*batch"] = eqx.field(converter=as_float)
    reduction: Float[Array, "*batch"] = eqx.field(converter=as_float)
    cover: Float[Array, "*batch"] = eqx.field(converter=as_float)
    rest: Float[Array, "*batch"] = eqx.field(converter=as_float)

    @property
    def nominal(self) -> Scalar:
        """The step time without any variation [s]."""
        exposed = jnp.maximum(self.reduction - self.cover, 0.0)
        return self.busy * (self.microbatches + self.bubble * (self.stages - 1.0)) + self.network + exposed + self.rest


# Judgement, not measurement: single products are reported to spread by up to 14 % (PRISM); the jitter of a segment and
# what a hall shares are guesses.
RANGES = {
    "dynamic": (0.01, 0.02, 0.05),
    "common": (0.005, 0.01, 0.02),
    "network": (0.05, 0.10, 0.30),
}


def assumed_variation(level: int = 1) -> Variation:
    """The assumed sizes: low (0), nominal (1) or high (2) of `RANGES` and of `rank_spread` in `assumed_training.toml`,
    one common factor for the whole cluster."""
    static = sorted(size for size in assumed_table()["rank_spread"].values() if not isinstance(size, str))[level]
    return Variation(static=static, domain=jnp.inf, **{name: sizes[level] for name, sizes in RANGES.items()})


def step_distribution(step: Synchronization, variation: Variation) -> Distribution:
    """The distribution of the step time [s] over steps and clusters of one point."""
    group = group_time(variation.static, variation.dynamic, step.members, step.segments)
    replica = pipeline_time(group, step.microbatches, step.stages, step.bubble)
    together = jnp.clip(variation.domain / (step.members * step.stages), 1.0, step.replicas)
    slowest = slowest_replica(replica, step.replicas, together, variation.common)
    computed = scaled(slowest, step.busy, step.rest)
    sent, cover = (step.reduction, variation.network * step.reduction), (step.cover, variation.static * step.cover)
    exposed, spread = exposed_normal(sent, cover, jnp.zeros_like(step.cover))
    return plus_normal(computed, step.network + exposed, safe_sqrt((variation.network * step.network) ** 2 + spread**2))


def slowest_replica(replica: Distribution, replicas: Scalar, together: Scalar, common: Scalar) -> Distribution:
    """The slowest of all replicas, `together` of which share a common factor 1 + c, c normal.

    F(t) = [ E_c F_replica(t / (1 + c))^R ]^(n / R): exact given the quadrature over c.
    """
    scores = normal_grid()
    factors = 1.0 + jnp.maximum(common, SMALLEST) * 0.5 * (scores[1:] + scores[:-1])
    domains = replicas / together
    values = _covering(replica, together, domains, common)
    inside = together * log_cdf(score_at(replica, values[:, None] / factors[None, :]))
    weights = masses(scores)
    one = score(jnp.exp(inside) @ weights, -jnp.expm1(inside) @ weights)
    return largest_of(Distribution(values, one), domains)


def _covering(replica: Distribution, together: Scalar, domains: Scalar, common: Scalar) -> Float[Array, " grid"]:
    """Values that the slowest replica can take: `EDGE` scores to each side of both of its causes."""
    ends = log_cdf(as_float((-EDGE, EDGE)))  # of the largest of n, a score where ln F is an n-th of that
    slowest = value_at(replica, score_of_log(ends / (together * jnp.stack([jnp.ones_like(domains), domains]))))
    factor = 1.0 + jnp.maximum(common, SMALLEST) * score_of_log(ends / domains)
    low, high = slowest * factor
    return low + (high - low) * jnp.linspace(0.0, 1.0, POINTS)
