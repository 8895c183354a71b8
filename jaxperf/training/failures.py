"""How often a cluster is interrupted, and how many spare devices keep it whole."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, ndtr
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, floor_div

HOUR = 3600.0
DAY = 24.0 * HOUR
HALVINGS = 24  # of a range of 16 million spares
MANY = 32768.0  # devices from which float32 has lost more of the beta function than the normal law leaves out

# Llama 3 (arXiv:2407.21783, section 3.3.4; the same in datacenterdynamics.com's report of it): 419 unexpected
# interruptions of 16,384 H100 in 54 days, from all causes.
LLAMA3_DEVICES, LLAMA3_INTERRUPTIONS, LLAMA3_PERIOD = 16384, 419, 54.0 * DAY


class Failures(eqx.Module):
    """`device_mtbf`: device-seconds of work for each interruption, whatever its cause [s]; `restart`: from the
    interruption to the first step, without the work that is done again [s]; `repair`: until a failed device is back
    [s]."""

    device_mtbf: Float[Array, "*batch"] = eqx.field(converter=as_float)
    restart: Float[Array, "*batch"] = eqx.field(converter=as_float)
    repair: Float[Array, "*batch"] = eqx.field(converter=as_float)


def observed_device_mtbf(devices: float, interruptions: float, period: float) -> float:
    """Device-seconds for each interruption, from what a run reports; `period` [s]."""
    return devices * period / interruptions


def assumed_failures() -> Failures:
    """The rate of Llama 3's run (50,700 device-hours an interruption); ten minutes to restart and a day to repair are
    assumptions (2 to 30 minutes and hours to weeks are reported)."""
    mtbf = observed_device_mtbf(LLAMA3_DEVICES, LLAMA3_INTERRUPTIONS, LLAMA3_PERIOD)
    return Failures(device_mtbf=mtbf, restart=600.0, repair=DAY)


def cluster_mtbf(failures: Failures, devices: Scalar) -> Scalar:
    """Mean time between interruptions of `devices` that must all work: independent and memoryless, MTBF / n [s]."""
    return failures.device_mtbf / devices


def enough_spares(failures: Failures, devices: Scalar, spares: Scalar) -> Scalar:
    """Probability that of `devices` + `spares` at least `devices` work: a binomial tail.

    A device is out with probability q = repair / (MTBF + repair); P(X <= k) of X ~ Binomial(n + k, q) is the
    regularized incomplete beta function I_(1-q)(n, k + 1), of `MANY` devices and more by the normal law of its cube
    root (Camp 1951, Paulson 1942), whose least spares are one off at most.
    """
    working = failures.device_mtbf / (failures.device_mtbf + failures.repair)
    exact = betainc(jnp.minimum(devices, MANY), spares + 1.0, working)
    of_devices, of_spares = 1.0 / (9.0 * devices), 1.0 / (9.0 * (spares + 1.0))
    root = jnp.cbrt(devices * failures.repair / ((spares + 1.0) * failures.device_mtbf))
    normal = ndtr((1.0 - of_spares - (1.0 - of_devices) * root) / jnp.sqrt(of_spares + of_devices * root**2))
    return jnp.where(devices < MANY, exact, normal)


def spares_for(failures: Failures, devices: Scalar, confidence: Scalar) -> Scalar:
    """The least number of spares with which `enough_spares` reaches `confidence`, by bisection; infinite where not even
    `2 ** HALVINGS` are enough.

    Every interruption counts as the loss of a device, whatever its cause: an upper bound.
    """
    two = jnp.full_like(devices, 2.0)

    def halve(_: int, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        few, many = ends
        middle = floor_div(few + many, two)
        enough = enough_spares(failures, devices, middle) >= confidence
        return jnp.where(enough, few, middle), jnp.where(enough, middle, many)

    most = jnp.full_like(devices, 2.0**HALVINGS)
    _, found = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(devices), most))
    none = enough_spares(failures, devices, jnp.zeros_like(devices)) >= confidence
    ever = enough_spares(failures, devices, most) >= confidence
    return jnp.where(none, 0.0, jnp.where(ever, found, jnp.inf))
