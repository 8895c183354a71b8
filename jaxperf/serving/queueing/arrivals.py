"""Arrivals in bursts: what a request finds of others where the times between them are gamma's, Poisson's among them.

With phi(s) = (1 + c^2 s / lambda)^(-1 / c^2) the transform of a time between two, phi / (1 - phi) requests come in an
exponential time of mean 1 / s after an arrival: Poisson's lambda / s, and up to (c^2 - 1) / 2 more, its cluster (Cox,
Renewal Theory, 1962).
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.serving.queueing.gamma import gamma_below

FEWEST = 1e-6  # requests, in place of none
EVENEST = 0.01  # c^2 in place of less: as good as clockwork
STEEPEST = 40.0  # of an exponent: its square is a number in 32 bits


def float_or_none(variation: Scalar | float | None) -> Scalar | None:
    """A squared coefficient of variation as a number of the default precision [1], None (Poisson's) as it is."""
    return None if variation is None else as_float(variation)


def after_arrival(expected: Scalar, variation: Scalar | None) -> Scalar:
    """Requests that come after an arrival in a time in which `expected` come at random times [1].

    `variation`: squared coefficient of variation of the time between them [1]; here and below None for Poisson's.
    """
    if variation is None:
        return expected
    variation = jnp.maximum(variation, EVENEST)
    exponent = jnp.log1p(variation / jnp.maximum(expected, FEWEST)) / variation
    return 1.0 / jnp.expm1(jnp.minimum(exponent, STEEPEST))


def cluster(expected: Scalar, variation: Scalar | None) -> Scalar:
    """How many more `after_arrival` are than Poisson's [1]; negative where arrivals are even."""
    return after_arrival(expected, variation) - expected


def split_variation(variation: Scalar | float, engines: Scalar | float) -> Scalar:
    """Squared coefficient of variation of what each of the `engines` is given at random of all arrivals [1]: a gap is
    as many of theirs as a geometric number says, so that of many engines each has Poisson's."""
    return jnp.asarray(1.0 + (variation - 1.0) / engines)


def queue_found(utilization: Scalar, variation: Scalar | None) -> Scalar:
    """Requests that an arrival finds in front of exponential work [1]: sigma / (1 - sigma) with sigma = phi(mu (1 -
    sigma)), the probability that it finds any (GI/M/1; Kleinrock 1975). Poisson's: rho / (1 - rho).

    y = `after_arrival`(rho (1 + y)) by one of Newton's steps from heavy traffic's (c^2 + 1) / 2 of Poisson's and a
    third of a cluster: within half a percent for c^2 from 1 to 100, within 1 % from 1/4, and up to 12 % low of a
    queue of few (rho < 0.3) below.
    """
    rho = jnp.maximum(utilization, FEWEST)
    if variation is None:
        return rho / (1.0 - rho)
    variation = jnp.maximum(variation, EVENEST)
    start = 0.5 * rho / (1.0 - rho) * (1.0 + variation) + 0.35 * jnp.maximum(0.5 * (variation - 1.0), 0.0)
    come = rho * (1.0 + start)
    found = after_arrival(come, variation)
    slope = rho * found * (1.0 + found) / (come * (come + variation))
    return jnp.maximum(start + (found - start) / (1.0 - slope), 0.0)


def meets(utilization: Scalar, variation: Scalar | None, service: Scalar) -> Scalar:
    """Probability that an arrival finds work [1]; `service`: squared coefficient of variation of the work of one.

    In front of exponential work, and in bursts, GI/M/1's sigma. Even arrivals in front of works of one length T = rho /
    lambda find as much less than Poisson's as the next one comes less often in T, P(gap < T) / (1 - e^-rho) of rho, and
    what lies between is in proportion: beside Lindley's recursion from 6 % low to 12 % high for c^2 from 1/4 on and rho
    up to 0.9, at 1/10 within 25 % from rho = 0.35 on. Poisson's: rho.
    """
    queue = queue_found(utilization, variation)
    exponential = queue / (1.0 + queue)
    if variation is None:
        return exponential
    rho = jnp.clip(utilization, FEWEST, 1.0)
    even = rho * gamma_below(rho, jnp.clip(variation, EVENEST, 1.0)) / -jnp.expm1(-rho)
    found = even + jnp.minimum(service, 1.0) * (exponential - even)
    return jnp.where(variation < 1.0, found, exponential)


def work_found(utilization: Scalar, variation: Scalar | None, service: Scalar) -> Scalar:
    """Work that an arrival finds over what Poisson's finds [1]; `service`: squared coefficient of variation of the work
    of one.

    GI/M/1's, and what of heavy traffic's (c^2 + c_s^2) / (1 + c_s^2) is not exponential work's (Allen and Cunneen), of
    those that find any: found less often (`meets`), it is hardly less.
    """
    if variation is None:
        return jnp.ones_like(utilization)
    queue = queue_found(utilization, variation)
    exponential = queue * (1.0 - utilization) / jnp.maximum(utilization, FEWEST)
    often = meets(utilization, variation, service) * (1.0 + queue) / jnp.maximum(queue, FEWEST)
    return exponential * often * 2.0 * (variation + service) / ((1.0 + variation) * (1.0 + service))
