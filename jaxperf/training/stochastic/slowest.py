"""The largest of static parts with a new normal part each time: who is slowest, and what is left to the others.

X = max_r(s_r + e_r) has P(X <= x) = E_s[Phi((x - s) / d_s)]^g. Where the slowest static part is known, or the slowest
two, the others are independent and truncated at it, which gives mean and variance of X exactly.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic.gauss import cdf, log_cdf
from jaxperf.training.stochastic.grid import (
    HIGHEST,
    LOWEST,
    NARROWEST,
    POINTS,
    Distribution,
    masses,
    nodes,
    score_of_log,
    weighted_moments,
)

LOG_FLOOR = 1e-30
LEAST_REACHED = 1e-9  # a smaller probability of X <= x is no part of a third moment
REACHED, STRIDE = slice(30, 171), 5  # of the points: those from -5 to 9 standard deviations of one member

Cells = Float[Array, " cells"]
Points = Float[Array, " grid"]
Given = Float[Array, "grid cells"]
Pairs = Float[Array, "cells cells"]


class Slowest(eqx.Module):
    """`mean` = E[X | the slowest static part is `part`], `weights` of the slowest being there; `rest`: std of what
    other static parts add to that, `alike`: its correlation with their sum; `jitter`: std of X where all static parts
    are known, by the slowest: a part far above the others is alone with its own."""

    part: Cells
    weights: Cells
    mean: Cells
    rest: Scalar
    alike: Scalar
    jitter: Cells

    def at_same_rank(self, mass: Float[Array, " n"]) -> Float[Array, " n"]:
        """The slowest static parts that are reached as often as cells of this probability are."""
        return jnp.interp(jnp.cumsum(mass) - 0.5 * mass, jnp.cumsum(self.weights) - 0.5 * self.weights, self.part)


def slowest_of(static: Distribution, dynamic: Cells, members: Scalar) -> Slowest:
    """The largest of `members` that have a static part each and a new normal one each time, of std `dynamic` where the
    static part is in each cell of its grid."""
    part, mass = nodes(static)
    x, given = given_part(part, mass, dynamic)
    mean, variance = given_slowest(x, given, mass, members)
    weights = masses(score_of_log(members * log_cdf(static.scores)))
    _, explained = weighted_moments(mean, jnp.zeros_like(mean), weights)
    rest = safe_sqrt(jnp.maximum(variance_of_mean(x, given, mass, members) - explained**2, 0.0))

    sums, own = sum_given_slowest(part, mass, members)
    together = covariance_with_sum(x, given, part, mass, members)
    together = together - jnp.sum(weights * (sums - jnp.sum(weights * sums)) * mean)
    alike = jnp.clip(together / jnp.maximum(rest * safe_sqrt(jnp.sum(weights * own)), LOG_FLOOR), 0.0, 1.0)
    return Slowest(part, weights, mean, rest, alike, safe_sqrt(jnp.maximum(variance - rest**2, 0.0)))


def given_part(part: Cells, mass: Cells, dynamic: Cells) -> tuple[Points, Given]:
    """(x, P(s + e <= x | s)) for static parts of these values and masses, and a normal e of std `dynamic`, raised to
    what the distance of the values resolves."""
    dynamic = jnp.maximum(dynamic, NARROWEST * jnp.max(jnp.diff(part)))
    mean, std = weighted_moments(part, dynamic, mass)
    x = mean + std * jnp.linspace(LOWEST, HIGHEST, POINTS)
    return x, cdf((x[:, None] - part[None, :]) / dynamic[None, :])


def variance_of_mean(x: Points, given: Given, mass: Cells, members: Scalar) -> Scalar:
    """Var E[X | all static parts]: of two X with the same static parts P(X1 <= x, X2 <= y) = E_s[Phi((x - s) / d_s)
    Phi((y - s) / d_s)]^g, whose Hoeffding integral is their covariance."""
    single = power(given @ mass, members)
    joint = power((given * mass[None, :]) @ given.T, members)
    return jnp.sum(joint - single[:, None] * single[None, :]) * (x[1] - x[0]) ** 2


def third_moment_of_mean(given: Given, mass: Cells, members: Scalar) -> Scalar:
    """E (M - E M)^3 of M = E[X | all static parts] in cubes of the distance of points, every `STRIDE`th of which is
    summed over: less the integral of the third cumulant of X <= x, of three X with the same static parts. That is

        F(x)^g F(y)^g F(z)^g [ (1 + r_xy + r_xz + r_yz + r_xyz)^g - 1 - sum of ((1 + r)^g - 1) over the pairs ]

    with r the central moments E_s of Phi((x - s) / d_s) / F(x), which no rounding of large probabilities spoils."""
    given = given[REACHED][::STRIDE]
    reached = given @ mass
    below = power(reached, members)
    some = below > LEAST_REACHED
    apart = jnp.where(some[:, None], given / jnp.where(some, reached, 1.0)[:, None] - 1.0, 0.0)
    pairs = (apart[:, None, :] * apart[None, :, :]).reshape(-1, mass.size)
    two = (pairs @ mass).reshape(reached.size, -1)
    three = (pairs @ (apart * mass[None, :]).T).reshape(*two.shape, -1)
    for axis in range(3):
        three = three + jnp.expand_dims(two, axis)
    three, two = (jnp.expm1(members * jnp.log1p(each)) for each in (three, two))
    for axis in range(3):
        three = three - jnp.expand_dims(two, axis)
    return -jnp.einsum("x,y,z,xyz", below, below, below, three) * float(STRIDE**3)


def covariance_with_sum(x: Points, given: Given, part: Cells, mass: Cells, members: Scalar) -> Scalar:
    """Cov(X, sum of all static parts) = -g integral of E[(s - E s) Phi((x - s) / d_s)] P(X of the others <= x)."""
    apart = mass * (part - jnp.sum(mass * part))
    return -members * jnp.sum((given @ apart) * power(given @ mass, members - 1.0)) * (x[1] - x[0])


def sum_given_slowest(part: Cells, mass: Cells, members: Scalar) -> tuple[Cells, Cells]:
    """(mean, variance) of the sum of all static parts where the slowest is `part`."""
    first, square = below(part[None, :], mass)[0], below(part[None, :] ** 2, mass)[0]
    others = members - 1.0
    return part + others * first, others * jnp.maximum(square - first**2, 0.0)


def given_slowest(x: Points, given: Given, mass: Cells, members: Scalar) -> tuple[Cells, Cells]:
    """(mean, variance) of X where the slowest static part is m: it, and members - 1 that are truncated at m."""
    cdf = given * power(below(given, mass), members - 1.0)
    missed, short = _integrals(x)
    return _moments(x, missed @ cdf, short @ cdf)


def given_two_slowest(x: Points, given: Given, mass: Cells, members: Scalar) -> tuple[Pairs, Pairs]:
    """(mean, variance) of X where the slowest static parts are m1 and m2: they, and members - 2 truncated at m2."""
    others = given * power(below(given, mass), members - 2.0)
    missed, short = _integrals(x)
    return _moments(x, (given * missed[:, None]).T @ others, (given * short[:, None]).T @ others)


def two_slowest(mass: Cells, members: Scalar) -> Pairs:
    """The probability that the slowest static part is in cell i and the next in cell j <= i."""
    edges = jnp.cumsum(mass)
    slowest = jnp.diff(power(edges, members), prepend=0.0)
    share = jnp.minimum(edges[None, :-1] / (edges - 0.5 * mass)[:, None], 1.0)  # of what is below i
    reached = jnp.where(jnp.tri(mass.size, mass.size - 1, -1, bool), power(share, members - 1.0), 1.0)
    return slowest[:, None] * jnp.diff(reached, axis=1, prepend=0.0, append=1.0)


def below(values: Given, mass: Cells) -> Given:
    """E[value | s <= m] for each m in the middle of a cell."""
    parts = values * mass[None, :]
    reached = jnp.maximum(jnp.cumsum(mass) - 0.5 * mass, LOG_FLOOR)
    return (jnp.cumsum(parts, axis=1) - 0.5 * parts) / reached[None, :]


def power(probability: Float[Array, ...], exponent: Scalar) -> Float[Array, ...]:
    """p^n for p in [0, 1], with a finite slope at p = 0."""
    return jnp.exp(exponent * jnp.log(jnp.clip(probability, LOG_FLOOR, 1.0)))


def _integrals(x: Points) -> tuple[Points, Points]:
    """Weights of F and of (x_end - x) F that integrate by trapezoids."""
    weights = (x[1] - x[0]) * jnp.ones_like(x).at[-1].set(0.5)
    return weights, weights * (x[-1] - x)


def _moments(x: Points, missed: Float[Array, ...], short: Float[Array, ...]) -> tuple[Array, Array]:
    """(mean, variance) from those integrals: E X = x_end - the first, E (x_end - X)^2 twice the second, whose slope of
    -1 at the end takes step^2 / 12 from the trapezoids (Euler-Maclaurin)."""
    square = 2.0 * short + (x[1] - x[0]) ** 2 / 6.0
    return x[-1] - missed, square - missed**2
