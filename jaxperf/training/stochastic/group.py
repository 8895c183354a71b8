"""Ranks that wait for each other after every segment of work, as tensor-parallel ranks do at each collective.

Rank r takes 1 + s_r + e_rk of the nominal time for segment k, s static (the same in every segment of the step), e new
each time; the group takes the largest. Its time per segment is then random in two ways that pipelines tell apart: a
persistent part H(s) = E[max_r(s_r + e_rk) | s] and a jitter that averages out over segments.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic.grid import (
    CELL,
    Distribution,
    binned,
    evenly,
    masses,
    mixture,
    nodes,
    normal,
    weighted_moments,
)
from jaxperf.training.stochastic.slowest import (
    LOG_FLOOR,
    given_part,
    given_two_slowest,
    third_moment_of_mean,
    two_slowest,
    variance_of_mean,
)

SMALLEST = 1e-6  # standard deviation that stands for none
LEAST_REST, UNRESOLVED = 0.1, 1e-4  # of the variance, and in squares of the grid's steps: whose shape is no matter
SKEWEST = 1.0  # what several ranks add is no skewer


class GroupTime(eqx.Module):
    """Relative to the nominal time of a microbatch: `persistent` through the step, `jitters` std of one microbatch of
    a group whose persistent part is each of `persistent.values`."""

    persistent: Distribution
    jitters: Float[Array, " grid"]

    @property
    def jitter(self) -> Scalar:
        """Root of the mean square of `jitters`."""
        squares = self.jitters**2
        return safe_sqrt(jnp.sum(masses(self.persistent.scores) * 0.5 * (squares[1:] + squares[:-1])))

    def jitter_at(self, value: Float[Array, " cells"]) -> Float[Array, " cells"]:
        """`jitters` of groups with these persistent parts."""
        return evenly(value, self.persistent.values, self.jitters)


def even_jitter(persistent: Distribution, jitter: Scalar) -> GroupTime:
    """Groups that have the same `jitter` whatever their persistent part is."""
    return GroupTime(persistent, jnp.full_like(persistent.values, 1.0) * jitter)


def group_time(static: Scalar, dynamic: Scalar, members: Scalar, segments: Scalar) -> GroupTime:
    """The time of a group for one microbatch, over its nominal time; H is taken for its mean where the slowest two are
    known plus a gamma variable of the variance and the skewness that are left: exact in three moments, and in shape
    where either part dominates.

    **Arguments:** `static`, `dynamic`: coefficients of variation of a rank and of one segment [1]; `members`: ranks of
    the group [1]; `segments`: times that it synchronizes in one microbatch [1].
    """
    static, dynamic = jnp.maximum(static, SMALLEST), jnp.maximum(dynamic, SMALLEST)
    part, mass = nodes(normal(jnp.ones_like(static), static))
    x, given = given_part(part, mass, jnp.full_like(part, 1.0) * dynamic)
    mean, variance = given_two_slowest(x, given, mass, members)
    weights = two_slowest(mass, members)
    value, (share, varied) = binned(mean, (weights, weights * variance))
    alone = LOG_FLOOR * dynamic**2  # where no group is
    average, explained = weighted_moments(value, jnp.zeros_like(value), share)
    whole = variance_of_mean(x, given, mass, members)
    rest = jnp.maximum(whole - explained**2 + CELL * (value[1] - value[0]) ** 2, 0.0)  # which `mixture` sharpens
    unit = x[1] - x[0]
    third = third_moment_of_mean(given, mass, members) - jnp.sum(share * ((value - average) / unit) ** 3)
    least = jnp.maximum(LEAST_REST * whole / unit**2, UNRESOLVED)
    skew = jnp.clip(third / jnp.maximum(rest / unit**2, least) ** 1.5, -SKEWEST, SKEWEST)
    jitters = safe_sqrt(jnp.maximum((varied + alone) / (share + LOG_FLOOR) - rest, 0.0) / segments)
    persistent = mixture(value, jnp.full_like(value, 1.0) * safe_sqrt(rest), share, skew)
    return GroupTime(persistent, evenly(persistent.values, value, jitters))
