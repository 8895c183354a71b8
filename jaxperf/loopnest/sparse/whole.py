"""Shares of counts as whole words: a product that should be whole is taken to be, whatever its last bits say."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from jaxperf.core.numerics import ceil_div, floor_div

ULPS = 16.0  # what a few roundings can have moved a product by, in units of its last place


def round_down(x: Array) -> Array:
    """The largest integer not above `x`, from zero; straight-through derivative."""
    return floor_div(x * (1.0 + ULPS * float(jnp.finfo(x.dtype).eps)), jnp.ones_like(x))


def round_up(x: Array) -> Array:
    """The smallest integer not below `x`, from zero; straight-through derivative."""
    return ceil_div(x * (1.0 - ULPS * float(jnp.finfo(x.dtype).eps)), jnp.ones_like(x))
