"""Ranks that wait for each other after every segment of work, as tensor-parallel ranks do at each collective.

Rank r takes 1 + s_r + e_rk of the nominal time for segment k, s static (the same in every segment of the step), e new
each time; the group takes the largest. Its time per segment is then random in two ways that pipelines tell apart: a
persistent part H(s) = E[max_r(s_r + e_rk) | s] and a jitter that averages out over segments.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic_grid import (
    HIGHEST,
    LOWEST,
    NARROWEST,
    POINTS,
    Distribution,
    masses,
    mixture,
    nodes,
    normal,
    score_of_log,
    weighted_moments,
)

SMALLEST = 1e-6  # standard deviation that stands for none
LOG_FLOOR = 1e-30


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
        return jnp.interp(value, self.persistent.values, self.jitters)


def even_jitter(persistent: Distribution, jitter: Scalar) -> GroupTime:
    """Groups that have the same `jitter` whatever their persistent part is."""
    return GroupTime(persistent, jnp.full_like(persistent.values, 1.0) * jitter)


class Slowest(eqx.Module):
    """X, the largest of static parts with a new normal part each time: `mean` = E[X | the slowest static part is
    `part`], `weights` of the slowest being there; `rest`: std of what other static parts add to that; `jitter`: std of
    X where all static parts are known, by the slowest: a part far above the others is alone with its own."""

    part: Float[Array, " cells"]
    weights: Float[Array, " cells"]
    mean: Float[Array, " cells"]
    rest: Scalar
    jitter: Float[Array, " cells"]


def group_time(static: Scalar, dynamic: Scalar, members: Scalar, segments: Scalar) -> GroupTime:
    """The time of a group for one microbatch, over its nominal time; H is taken for h(M) plus a normal of the variance
    that is left: exact in mean and variance, and in shape where either part dominates.

    **Arguments:** `static`, `dynamic`: coefficients of variation of a rank and of one segment [1]; `members`: ranks of
    the group [1]; `segments`: times that it synchronizes in one microbatch [1].
    """
    static, dynamic = jnp.maximum(static, SMALLEST), jnp.maximum(dynamic, SMALLEST)
    parts = normal(jnp.zeros_like(static), static)
    slowest = slowest_of(parts, jnp.full_like(parts.values[1:], dynamic), members)
    persistent = mixture(1.0 + slowest.mean, jnp.full_like(slowest.mean, 1.0) * slowest.rest, slowest.weights)
    jitters = jnp.interp(persistent.values, 1.0 + slowest.mean, slowest.jitter)
    return GroupTime(persistent, jitters / safe_sqrt(segments))


def slowest_of(static: Distribution, dynamic: Float[Array, " cells"], members: Scalar) -> Slowest:
    """The largest of `members` that have a static part each and a new normal one each time, of std `dynamic` where the
    static part is in each cell of its grid.

    X = max_r(s_r + e_r) has P(X <= x) = E_s[Phi((x - s) / d_s)]^g; two that share s_r have
    P(X1 <= x, X2 <= y) = E_s[Phi((x - s) / d_s) Phi((y - s) / d_s)]^g, whose Hoeffding integral is Var H. Given the
    slowest static part the others are independent and truncated, so mean and variance of X given max s = m are exact
    too.
    """
    part, mass = nodes(static)
    x, given = given_part(part, mass, dynamic)
    single = _power(given @ mass, members)
    joint = _power((given * mass[None, :]) @ given.T, members)
    covariance = jnp.sum(joint - single[:, None] * single[None, :]) * (x[1] - x[0]) ** 2

    mean, variance = given_slowest(x, given, mass, members)
    weights = masses(score_of_log(members * log_ndtr(static.scores)))
    _, explained = weighted_moments(mean, jnp.zeros_like(mean), weights)
    rest = safe_sqrt(jnp.maximum(covariance - explained**2, 0.0))
    return Slowest(part, weights, mean, rest, safe_sqrt(jnp.maximum(variance - rest**2, 0.0)))


def given_part(
    part: Float[Array, " cells"], mass: Float[Array, " cells"], dynamic: Float[Array, " cells"]
) -> tuple[Float[Array, " grid"], Float[Array, "grid cells"]]:
    """(x, P(s + e <= x | s)) for static parts of these values and masses, and a normal e of std `dynamic`, raised to
    what the distance of the values resolves."""
    dynamic = jnp.maximum(dynamic, NARROWEST * jnp.max(jnp.diff(part)))
    mean, std = weighted_moments(part, dynamic, mass)
    x = mean + std * jnp.linspace(LOWEST, HIGHEST, POINTS)
    return x, ndtr((x[:, None] - part[None, :]) / dynamic[None, :])


def given_slowest(
    x: Float[Array, " grid"], given: Float[Array, "grid cells"], mass: Float[Array, " cells"], members: Scalar
) -> tuple[Float[Array, " cells"], Float[Array, " cells"]]:
    """(mean, variance) of X where the slowest static part is m: it, and members - 1 that are truncated at m."""
    parts = given * mass[None, :]
    reached = jnp.maximum(jnp.cumsum(mass) - 0.5 * mass, LOG_FLOOR)
    below = (jnp.cumsum(parts, axis=1) - 0.5 * parts) / reached[None, :]
    cdf = given * _power(below, members - 1.0)
    # E X = x_end - integral of F, E (x_end - X)^2 = 2 integral of (x_end - x) F, whose slope of -1 at the end takes
    # step^2 / 12 from the trapezoids (Euler-Maclaurin)
    step, short = x[1] - x[0], x[-1] - x
    missed = jnp.trapezoid(cdf, dx=step, axis=0)
    square = 2.0 * jnp.trapezoid(short[:, None] * cdf, dx=step, axis=0) + step**2 / 6.0
    return x[-1] - missed, square - missed**2


def _power(probability: Float[Array, ...], exponent: Scalar) -> Float[Array, ...]:
    """p^n for p in [0, 1], with a finite slope at p = 0."""
    return jnp.exp(exponent * jnp.log(jnp.clip(probability, LOG_FLOOR, 1.0)))
