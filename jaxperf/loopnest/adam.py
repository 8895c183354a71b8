"""A step of Adam (Kingma & Ba, ICLR 2015) that follows noisy slopes."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

MEMORY, SQUARES, TINY = 0.8, 0.95, 1e-8  # decay of the mean and of the mean square, a step
Tree = TypeVar("Tree")


class Moments(NamedTuple):
    """`mean`, `square`: of the slopes until now, as trees of what is stepped; `age`: steps taken [1]."""

    mean: Any
    square: Any
    age: Float[Array, ""]


def no_moments(at: Any) -> Moments:
    """Before the first step of a tree."""
    nothing = jax.tree.map(jnp.zeros_like, at)
    return Moments(nothing, nothing, jnp.zeros((), jax.tree.leaves(at)[0].dtype))


def adam_step(at: Tree, slope: Tree, before: Moments, rate: float) -> tuple[Tree, Moments]:
    """A step of `rate` against the slopes; one that is not finite counts as none."""
    slope = jax.tree.map(lambda each: jnp.where(jnp.isfinite(each), each, 0.0), slope)
    age = before.age + 1.0
    mean = jax.tree.map(lambda old, new: MEMORY * old + (1.0 - MEMORY) * new, before.mean, slope)
    square = jax.tree.map(lambda old, new: SQUARES * old + (1.0 - SQUARES) * new * new, before.square, slope)
    unbiased = (1.0 - MEMORY**age, 1.0 - SQUARES**age)
    stepped = jax.tree.map(
        lambda x, m, v: x - rate * (m / unbiased[0]) / (jnp.sqrt(v / unbiased[1]) + TINY), at, mean, square
    )
    return stepped, Moments(mean, square, age)
