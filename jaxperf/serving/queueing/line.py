"""The time of a step with several prompts as the straight line that requests meet.

A step grows with its prompts by stairs, not by a line: few short ones take no longer than memory does. Statistical
linearization (Booton 1954; Kazakov 1956) puts the line there that is closest in the mean square over the number that a
request meets. With Gauss's rule of two points for that distribution it is the line through both. The number is a
negative binomial one of Poisson autoregression: of steps that take s longer for each prompt, with the prompts that came
in the one before it, the variance is 1 / (1 - rho^2) of the mean, rho = lambda s (Fokianos, Rahbek and Tjostheim, JASA
104, 2009), and its two points follow from the mean, variance and skewness 2 D - 1 over the deviation (Meixner).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar


class Company(NamedTuple):
    """Others whose prompts wait for the step of a request's own or are in it: `others` in the mean, `after`: those in
    it that came behind the request [1]; `dispersion`: the variance of their number over its mean [1]."""

    others: Scalar
    after: Scalar
    dispersion: Scalar


class Line(NamedTuple):
    """`floor` + `each` k is the time of k prompts [s]."""

    floor: Scalar
    each: Scalar


def nobody(like: Scalar) -> Company:
    """The company of a request that is alone."""
    return Company(jnp.zeros_like(like), jnp.zeros_like(like), jnp.ones_like(like))


def points(company: Company, lengths: Scalar) -> tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]:
    """Few and many mean prompts, a request's own among them, and the weight of each [1]; the arguments of `met`."""
    dispersion = company.dispersion + lengths
    skew = 2.0 * dispersion - 1.0
    width = jnp.sqrt(skew**2 + 4.0 * dispersion * company.others)
    few = 1.0 + jnp.maximum(company.others + 0.5 * (skew - width), 0.0)
    many = 1.0 + company.others + 0.5 * (skew + width)
    return (few, 0.5 * (1.0 + skew / width)), (many, 0.5 * (1.0 - skew / width))


def met(time: Callable[[Scalar], Scalar], company: Company, lengths: Scalar) -> Line:
    """The line through the `time` [s] of as many mean prompts as a request and its `company` are at both points [1];
    `lengths`: their squared coefficient of variation, by which tokens are more dispersed than their number is [1]."""
    (few, _), (many, _) = points(company, lengths)
    first = time(few)
    each = (time(many) - first) / (many - few)
    return Line(first - each * few, each)
