"""Gamma distributions by their mean and variance, and Poisson's by them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxperf.core.numerics import Scalar

SHORTEST = 1e-9  # in place of nothing, where something is divided by it


def gamma_tail(x: Scalar | Array, mean: Scalar | Array, variance: Scalar | Array) -> Array:
    """P(X > x) of a gamma distribution with this mean and variance: a cube root of it is nearly normal."""
    positive = x > 0.0
    mean, variance = jnp.maximum(mean, SHORTEST), jnp.maximum(variance, SHORTEST**2)
    ninth = variance / (9.0 * mean**2)
    root = jnp.exp(jnp.log(jnp.where(positive, x, mean) / mean) / 3.0)  # many times faster than cbrt
    normal = (root - 1.0 + ninth) / jnp.sqrt(ninth)
    return jnp.where(positive, 0.5 * jax.lax.erfc(normal * 0.5**0.5), 1.0)
