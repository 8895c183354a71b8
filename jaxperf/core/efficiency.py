"""The share of a datasheet rate that a kernel family reaches: bounded, one per resource, applied before the overlap.

Fitted ones come from `jaxperf.core.sustained`. Where there are none stand assumptions, kept with their reasons in
`assumed_efficiencies.toml`: a nominal value, and a low and a high one that bracket it. The high one is 1, the plain
roofline, so the low end of every time interval is a physical bound. Anything computed from them alone is to be called
"uncalibrated".
"""

from __future__ import annotations

import abc
import functools
import tomllib
from importlib import resources
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float

PROVENANCE = "uncalibrated: assumed efficiencies, the interval is a range of assumptions, not a statistical one"


LEVELS = ("low", "nominal", "high")


LEAST_UTILIZATION = 1e-6  # below it a sigmoid soon underflows to 0, and the time to infinity


FAMILIES = (
    "gemm",
    "attention_prefill",
    "attention_decode",
    "mla_decode",
    "moe",
    "elementwise",
    "linear_attention",
)


class Utilization(eqx.Module):
    """Fractions in (0, 1] of the peak arithmetic rate and of the peak bandwidth that a kernel sustains [1].

    What nobody fitted is `None`, which is structure. `floor`: what launching and draining add [s], else the device's
    launch latency; `exposed`: how much of the shorter of arithmetic and transfer shows beside the longer, 0 for perfect
    overlap, 1 for the root of the sum of their squares [1]; `power`: how long the power limit has a useful FLOP wait,
    the energy of one over what the limit leaves to them [s/FLOP].
    """

    compute: Float[Array, "*batch"]
    memory: Float[Array, "*batch"]
    floor: Float[Array, "*batch"] | None = None
    exposed: Float[Array, "*batch"] | None = None
    power: Float[Array, "*batch"] | None = None


class AbstractEfficiency(eqx.Module):
    """Maps one kernel on one device to the `Utilization` it reaches. Implementations are final and hold parameters."""

    @abc.abstractmethod
    def __call__(self, kernel: eqx.Module, device: eqx.Module) -> Utilization:
        """**Arguments:** `kernel`: the kernel's shape, scalar leaves; `device`: a `Device`, scalar leaves."""


class ConstantEfficiency(AbstractEfficiency):
    """The same utilization for every shape and device, stored as log-odds so that any real value is in (0, 1)."""

    compute_logit: Float[Array, "*batch"] = eqx.field(converter=as_float)
    memory_logit: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def __call__(self, kernel: eqx.Module, device: eqx.Module) -> Utilization:
        compute, memory = jax.nn.sigmoid(self.compute_logit), jax.nn.sigmoid(self.memory_logit)
        return Utilization(jnp.maximum(compute, LEAST_UTILIZATION), jnp.maximum(memory, LEAST_UTILIZATION))


def constant_efficiency(compute: float, memory: float) -> ConstantEfficiency:
    """From two fractions in (0, 1]; 1 itself is exact (log-odds of infinity)."""
    fractions = jnp.stack([as_float(compute), as_float(memory)])
    logits = jnp.log(fractions) - jnp.log1p(-fractions)
    return ConstantEfficiency(logits[0], logits[1])


class SustainedEfficiency(AbstractEfficiency):
    """Fitted on kernels of the family: the same for every shape, see `jaxperf.core.sustained`."""

    compute: Float[Array, "*batch"] = eqx.field(converter=as_float)
    memory: Float[Array, "*batch"] = eqx.field(converter=as_float)
    floor: Float[Array, "*batch"] = eqx.field(converter=as_float)
    exposed: Float[Array, "*batch"] = eqx.field(converter=as_float)
    power: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    def __call__(self, kernel: eqx.Module, device: eqx.Module) -> Utilization:
        return Utilization(self.compute, self.memory, self.floor, self.exposed, self.power)


class Efficiencies(eqx.Module):
    """One efficiency per kernel family, and the share of the link rate that collectives reach.

    `gemm` is of products with weights in their own format, `plain_gemm` of those that quantization leaves alone.
    """

    gemm: AbstractEfficiency
    plain_gemm: AbstractEfficiency
    attention_prefill: AbstractEfficiency
    attention_decode: AbstractEfficiency
    mla_decode: AbstractEfficiency
    moe: AbstractEfficiency
    elementwise: AbstractEfficiency
    linear_attention: AbstractEfficiency
    link: Float[Array, "*batch"] = eqx.field(converter=as_float)


def assumed_efficiencies(level: str = "nominal") -> Efficiencies:
    """The shipped assumptions at `level`: "low" (slow), "nominal" or "high" (1: the plain roofline)."""
    table = assumed_shares()
    per_family = {
        family: constant_efficiency(table[family]["compute"][level], table[family]["memory"][level])
        for family in FAMILIES
    }
    return Efficiencies(**per_family, plain_gemm=per_family["gemm"], link=table["link"]["bandwidth"][level])


@functools.cache
def assumed_shares() -> dict[str, Any]:
    """The shipped assumptions as they stand in the file: family -> resource -> level -> share [1]."""
    return tomllib.loads(resources.files("jaxperf.core").joinpath("assumed_efficiencies.toml").read_text())
