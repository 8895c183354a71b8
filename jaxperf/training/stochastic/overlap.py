"""Moments of the larger of two random times, and of a communication that random compute should hide."""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.stats import norm

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.training.stochastic.gauss import tails


def clark_max(
    first: tuple[Scalar, Scalar], second: tuple[Scalar, Scalar], correlation: Scalar
) -> tuple[Scalar, Scalar]:
    """(mean, standard deviation) of max(X, Y) of two jointly normal times, exact (Clark, Operations Research 9, 1961).

    E = m1 Phi(a) + m2 Phi(-a) + theta phi(a), theta^2 = s1^2 + s2^2 - 2 rho s1 s2, a = (m1 - m2) / theta.

    **Arguments:** `first`, `second`: (mean, standard deviation) [s]; `correlation`: rho [1].
    """
    (mean1, std1), (mean2, std2) = first, second
    theta = safe_sqrt(std1**2 + std2**2 - 2.0 * correlation * std1 * std2)
    apart = theta > 0.0
    a = (mean1 - mean2) / jnp.where(apart, theta, 1.0)
    a = jnp.where(apart, a, jnp.where(mean1 >= mean2, jnp.inf, -jnp.inf))
    density = theta * norm.pdf(a)
    larger, smaller = tails(a)
    mean = mean1 * larger + mean2 * smaller + density
    square = (mean1**2 + std1**2) * larger + (mean2**2 + std2**2) * smaller + (mean1 + mean2) * density
    return mean, safe_sqrt(jnp.maximum(square - mean**2, 0.0))


def exposed_normal(
    communication: tuple[Scalar, Scalar], cover: tuple[Scalar, Scalar], correlation: Scalar
) -> tuple[Scalar, Scalar]:
    """(mean, standard deviation) of max(0, communication - cover): what compute of time `cover` does not hide [s]."""
    (sent, sent_std), (hidden, hidden_std) = communication, cover
    std = safe_sqrt(sent_std**2 + hidden_std**2 - 2.0 * correlation * sent_std * hidden_std)
    nothing = jnp.zeros_like(std)
    return clark_max((sent - hidden, std), (nothing, nothing), nothing)
