"""Gamma distributions by their mean and variance, and Poisson's by them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxperf.core.numerics import Scalar

SHORTEST = 1e-9  # in place of nothing, where something is divided by it
FRACTIONS = 6  # two by two, of a continued fraction


def gamma_tail(x: Scalar | Array, mean: Scalar | Array, variance: Scalar | Array) -> Array:
    """P(X > x) of a gamma distribution with this mean and variance: a cube root of it is nearly normal."""
    positive = x > 0.0
    mean, variance = jnp.maximum(mean, SHORTEST), jnp.maximum(variance, SHORTEST**2)
    ninth = variance / (9.0 * mean**2)
    root = jnp.exp(jnp.log(jnp.where(positive, x, mean) / mean) / 3.0)  # many times faster than cbrt
    normal = (root - 1.0 + ninth) / jnp.sqrt(ninth)
    return jnp.where(positive, 0.5 * jax.lax.erfc(normal * 0.5**0.5), 1.0)


def gamma_below(x: Scalar | Array, variation: Scalar | Array) -> Array:
    """P(X < x) of a gamma distribution with the mean 1 and this `variation` up to 1, its variance [1], for x up to 1.

    x^k e^-x M(1, k + 1, x) / k!, of x and its shape k both over the variation, by Gauss's continued fraction of the
    confluent hypergeometric M (DLMF 13.5): within 1e-6 for a variation of 1/10 and more, 1 % for 1/100.
    """
    shape = 1.0 / variation
    x, first = jnp.maximum(x, SHORTEST) * shape, shape + 1.0
    end = first + 2.0 * FRACTIONS
    for number in range(FRACTIONS, 0, -1):
        odd = first + (2.0 * number - 1.0) - (first + (number - 1.0)) * x / end
        end = first + (2.0 * number - 2.0) + number * x / odd
    start = jnp.exp(shape * jnp.log(x) - x - jax.lax.lgamma(first))
    return start / (1.0 - x / end)
