"""Lengths of requests as a steady state reads them: a few classes of equally long requests, tails resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar, as_float, safe_sqrt
from jaxperf.serving.simulator.workloads import draw_lengths

# Shares of the requests up to the end of each class, the shortest first: narrow where the longest are, which decide
# percentiles and the third moments of queues.
EDGES = (0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999, 1.0)
COUNTS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256)  # requests: all where few fit
NARROWEST = 0.5  # tokens: half of what a class of equal lengths is wide
DRAWN = 1 << 14  # lengths a distribution is divided by


class Lengths(eqx.Module):
    """Classes of requests, shortest first: mean length in `tokens` [1], their `share` of the requests [1], and the
    `variance` of the lengths inside the class [1]."""

    tokens: Float[Array, "*batch K"] = eqx.field(converter=as_float)
    share: Float[Array, "*batch K"] = eqx.field(converter=as_float)
    variance: Float[Array, "*batch K"] = eqx.field(converter=as_float)

    @property
    def mean(self) -> Scalar:
        """Mean length [1]."""
        return jnp.sum(self.share * self.tokens, axis=-1)

    @property
    def square(self) -> Scalar:
        """Mean square of the length [1]."""
        return jnp.sum(self.share * (self.tokens**2 + self.variance), axis=-1)

    @property
    def together(self) -> Scalar:
        """The shorter of two over the mean length: 1 of equal lengths, 1/2 of exponential ones [1].

        Of two in one class, whose lengths are even, the shorter is sigma / sqrt 3 below the mean.
        """
        shorter = jnp.minimum(self.tokens[..., :, None], self.tokens[..., None, :])
        pairs = self.share[..., :, None] * self.share[..., None, :]
        alike = jnp.sum(self.share**2 * safe_sqrt(self.variance / 3.0), axis=-1)
        return (jnp.sum(pairs * shorter, axis=(-2, -1)) - alike) / self.mean

    def inside(self, values: Float[Array, " K"]) -> Float[Array, " K"]:
        """Variance inside each class of what has these `values` at its mean length, a line from the class before it to
        the one behind it [unit of values^2]."""
        rise, run = (jnp.asarray(jnp.gradient(each)) for each in (values, self.tokens))
        return self.variance * (rise / jnp.where(run > 0.0, run, 1.0)) ** 2


def padded(lengths: Lengths, budget: Scalar) -> Scalar:
    """Requests in a row that fit in `budget` tokens when each counts as the longest of them, in the mean [1].

    k of them fit where none is longer than budget / k: the sum over k of F(budget / k)^k, by trapezoids where k is
    large; F is the distribution of lengths, even inside each class. At least one.
    """
    width = jnp.maximum(jnp.sqrt(3.0 * lengths.variance), NARROWEST)

    def fit(number: Scalar) -> Scalar:
        below = (budget / number + NARROWEST - lengths.tokens + width) / (2.0 * width)
        return jnp.sum(lengths.share * jnp.clip(below, 0.0, 1.0)) ** number

    number = np.asarray(COUNTS, float)
    return jnp.maximum(jnp.sum(jax.vmap(fit)(as_float(number)) * as_float(_trapezoids(number))), 1.0)


def _trapezoids(number: np.ndarray) -> np.ndarray:
    """Weights of the sum over all integers, from what is known at some of them: one where they are neighbours."""
    gaps = np.diff(number)
    return 0.5 * (np.concatenate([[1.0], gaps]) + np.concatenate([gaps, [1.0]]))


def lengths_of(values: np.ndarray) -> Lengths:
    """The classes of a sample of lengths, each value as likely as another.

    **Arguments:** `values` [N]: tokens, in any order.
    **Raises:** `InputError` where there is none, or one below a token.
    """
    ordered = np.sort(np.asarray(values, float))
    if not len(ordered) or not ordered[0] >= 1.0:
        raise InputError("lengths are at least one token each, and there is at least one of them.")
    ends = np.array([round(edge * len(ordered)) for edge in EDGES])
    starts = np.concatenate([[0], ends[:-1]])
    classes = [ordered[start:end] for start, end in zip(starts, ends, strict=True)]
    # A sample too small for the narrow classes leaves them empty: of no share, and as long as the next request.
    fill = [ordered[min(start, len(ordered) - 1)] for start in starts]
    tokens = [each.mean() if len(each) else default for each, default in zip(classes, fill, strict=True)]
    variance = [each.var() if len(each) else 0.0 for each in classes]
    return Lengths(tokens, (ends - starts) / len(ordered), variance)


def lengths_as(kind: Mapping[str, Any], where: str = "lengths") -> Lengths:
    """The classes of a distribution as workloads describe it: `fixed`, `uniform` or `lognormal`.

    **Raises:** `InputError` naming the part that is missing, unknown or out of range.
    """
    return lengths_of(draw_lengths(np.random.default_rng(0), kind, DRAWN, where))
