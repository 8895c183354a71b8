"""Phi of a normal score, both tails of it and its logarithm, each by one complementary error function.

`jax.scipy.special.ndtr` says the same by three of them, two of which XLA writes out in full wherever it is called: four
fifths of the program of a step's distribution were that. erfc keeps the precision of the small tail by itself.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax.scipy.special import erfc
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar

ROOT_HALF = math.sqrt(0.5)
LEAST_SKEW = 1e-4  # stands for none
LEAST_GAMMA = 1e-6  # of a gamma variable, over its mean


def cdf(score: Float[Array, ...]) -> Float[Array, ...]:
    """P(Z <= score) of a standard normal Z, precise where it is small."""
    return 0.5 * erfc(-ROOT_HALF * score)


def tails(score: Float[Array, ...]) -> tuple[Float[Array, ...], Float[Array, ...]]:
    """(P(Z <= score), P(Z > score)), each precise where it is small."""
    above = score > 0.0
    smaller = cdf(jnp.where(above, -score, score))
    return jnp.where(above, 1.0 - smaller, smaller), jnp.where(above, smaller, 1.0 - smaller)


def log_cdf(score: Float[Array, ...]) -> Float[Array, ...]:
    """ln P(Z <= score), precise at both ends; for scores above -37, below which the probability is no 64-bit number."""
    lower, upper = tails(score)
    return jnp.where(score > 0.0, jnp.log1p(-upper), jnp.log(lower))


def gamma_score(x: Float[Array, ...], skew: Scalar) -> Float[Array, ...]:
    """The normal score of P(X <= x) where X is a gamma variable less its mean, over its standard deviation, of this
    `skew` (mirrored where it is negative): Wilson and Hilferty (PNAS 17, 1931)."""
    skew = jnp.where(jnp.abs(skew) > LEAST_SKEW, skew, LEAST_SKEW)
    root = jnp.expm1(jnp.log1p(jnp.maximum(0.5 * skew * x, LEAST_GAMMA - 1.0)) / 3.0)
    return 6.0 / skew * root + skew / 6.0
