"""A random time as values and normal scores on a fixed grid: maxima are exact, mixtures need one matrix product.

A `Distribution` says P(T <= values[i]) = Phi(scores[i]). Scores instead of probabilities keep both tails to full
precision, which a maximum over 10^5 ranks needs: its bulk lies at the 1 - 10^-5 quantile of one rank.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic.gauss import gamma_score, log_cdf, tails

LOWEST, HIGHEST = -8.0, 12.0  # standard deviations covered; a maximum has its long tail above
POINTS = 201
END = 8.0  # normal scores beyond it are not told apart
LEAST = 0.5 * math.erfc(END * math.sqrt(0.5))  # the probability beyond it, 6e-16

# A mixture of nodes narrower than about half their distance would be a staircase.
NARROWEST = 0.5
CELL = 1.0 / 12.0  # variance that probability gains by lying in the middle of its cell, in squares of its width
TINY = 1e-30


class Distribution(eqx.Module):
    """P(T <= `values`) = Phi(`scores`), both rising; `values`, which are even, in [s] or the unit of what is random."""

    values: Float[Array, " grid"]
    scores: Float[Array, " grid"]


def normal_grid() -> Float[Array, " points"]:
    """Evenly spaced normal scores from -`END` to `END`."""
    return jnp.linspace(-END, END, POINTS)


def normal(mean: Scalar, std: Scalar) -> Distribution:
    """The normal distribution on the grid."""
    scores = normal_grid()
    return Distribution(mean + std * scores, scores)


def scaled(distribution: Distribution, factor: Scalar, shift: Scalar) -> Distribution:
    """`factor` T + `shift` for a positive factor."""
    return Distribution(factor * distribution.values + shift, distribution.scores)


def largest_of(distribution: Distribution, count: Scalar) -> Distribution:
    """The largest of `count` independent ones: F(t)^n, so q_p = F^-1(p^(1/n)) without interpolation.

    **Arguments:** `count`: positive, need not be an integer [1].
    """
    return Distribution(distribution.values, score_of_log(count * log_cdf(distribution.scores)))


def score_of_log(log_probability: Float[Array, " grid"]) -> Float[Array, " grid"]:
    """The normal score of a probability given by its logarithm, precise where it is near one."""
    return score(jnp.exp(log_probability), -jnp.expm1(log_probability))


def score(lower: Float[Array, " grid"], upper: Float[Array, " grid"]) -> Float[Array, " grid"]:
    """The normal score of P(T <= t) = `lower`, P(T > t) = `upper`, from the smaller of the two."""
    below = lower < upper
    tail = ndtri(jnp.clip(jnp.where(below, lower, upper), LEAST, 0.5))
    return jnp.where(below, tail, -tail)


def nodes(distribution: Distribution) -> tuple[Float[Array, " cells"], Float[Array, " cells"]]:
    """(middle, probability) of each cell of the grid; the probabilities sum to one."""
    return 0.5 * (distribution.values[:-1] + distribution.values[1:]), masses(distribution.scores)


def masses(scores: Float[Array, " grid"]) -> Float[Array, " cells"]:
    """The probability between neighbouring scores; they sum to one."""
    below, above = tails(scores)
    mass = jnp.where(scores[:-1] + scores[1:] > 0.0, above[:-1] - above[1:], below[1:] - below[:-1])
    return mass / jnp.sum(mass)


def moments(distribution: Distribution) -> tuple[Scalar, Scalar]:
    """(mean, standard deviation)."""
    middle, mass = nodes(distribution)
    return weighted_moments(middle, jnp.zeros_like(middle), mass)


def weighted_moments(
    means: Float[Array, " n"], stds: Float[Array, " n"], weights: Float[Array, " n"]
) -> tuple[Scalar, Scalar]:
    """(mean, standard deviation) of a mixture of n parts."""
    mean = jnp.sum(weights * means)
    return mean, safe_sqrt(jnp.sum(weights * ((means - mean) ** 2 + stds**2)))


def quantile(distribution: Distribution, probability: Float[Array, ...]) -> Float[Array, ...]:
    """The values that T does not exceed with these probabilities, linear in the normal score between grid points."""
    return value_at(distribution, ndtri(probability))


def value_at(distribution: Distribution, score: Float[Array, ...]) -> Float[Array, ...]:
    """The values whose normal scores these are."""
    return jnp.interp(score, distribution.scores, distribution.values)


def score_at(distribution: Distribution, values: Float[Array, ...]) -> Float[Array, ...]:
    """The normal scores of P(T <= values)."""
    return evenly(values, distribution.values, distribution.scores)


def evenly(x: Float[Array, ...], grid: Float[Array, " grid"], y: Float[Array, " grid"]) -> Float[Array, ...]:
    """`y` at `x`: `jnp.interp` on a `grid` of even points, its ends apart, by an index in place of a search."""
    last = grid.shape[0] - 1
    place = jnp.clip((x - grid[0]) / (grid[-1] - grid[0]) * last, 0.0, float(last))
    left = jnp.minimum(place.astype(jnp.int32), last - 1)
    return y[left] + (place - left.astype(place.dtype)) * (y[left + 1] - y[left])


def binned(
    values: Float[Array, "grid n"], amounts: tuple[Float[Array, "grid n"], ...]
) -> tuple[Float[Array, " grid"], tuple[Float[Array, " grid"], ...]]:
    """(grid, each of `amounts` on it): evenly over `values`, each amount shared by the two points beside its value."""
    last = values.shape[0] - 1
    low, high = jnp.min(values), jnp.max(values)
    place = (values - low) / (high - low) * last
    left = jnp.minimum(place.astype(jnp.int32), last - 1)
    share = place - left.astype(place.dtype)
    empty = jnp.zeros(last + 1, values.dtype)
    shared = tuple(empty.at[left].add(each * (1.0 - share)).at[left + 1].add(each * share) for each in amounts)
    return low + (high - low) * jnp.linspace(0.0, 1.0, last + 1), shared


def mixture(
    means: Float[Array, " n"], stds: Float[Array, " n"], weights: Float[Array, " n"], skew: Scalar | None = None
) -> Distribution:
    """A mixture of normals whose means run through neighbouring nodes: F(t) = sum_i w_i Phi((t - m_i) / s_i); of gamma
    distributions where they have a `skew`.

    Standard deviations below half the distance of the nodes are raised to it, and the weights sharpened by as much:
    left in, it would make a tail of 10^-5 4 % too heavy.

    **Arguments:** `weights` sum to one.
    """
    steps = jnp.abs(jnp.asarray(jnp.gradient(means)))
    least = NARROWEST * steps
    resolved = jnp.minimum(stds, least) / jnp.maximum(steps, TINY)
    weights = sharpened(weights, NARROWEST**2 - resolved**2 + CELL)
    stds = jnp.maximum(stds, least)
    mean, std = weighted_moments(means, stds, weights)
    values = mean + std * jnp.linspace(LOWEST, HIGHEST, POINTS)
    z = (values[:, None] - means[None, :]) / stds[None, :]
    lower, upper = tails(z if skew is None else gamma_score(z, skew))
    return Distribution(values, score(lower @ weights, upper @ weights))


def sharpened(weights: Float[Array, " n"], excess: Float[Array, " n"]) -> Float[Array, " n"]:
    """Weights of even nodes less a variance that they hold too much of, in squares of their distance: w - (e w)'' / 2.

    Their sum stays; no weight gives up more than half of itself to either side, so none gets negative.
    """
    moved = 0.5 * jnp.diff(excess * weights)
    most = 0.5 * jnp.minimum(weights[:-1], weights[1:])
    return weights - jnp.diff(jnp.clip(moved, -most, most), prepend=0.0, append=0.0)


def plus_normal(distribution: Distribution, mean: Scalar, std: Scalar) -> Distribution:
    """T plus an independent normal time."""
    middle, mass = nodes(distribution)
    return mixture(middle + mean, jnp.full_like(middle, 1.0) * std, mass)
