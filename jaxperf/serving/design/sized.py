"""A device like another one, with other cores, memory, clock and links: which of its facts follow, and how.

A core does in a cycle what it did, so that peaks go with cores and clock. With M = energy per byte x bandwidth of the
base, what its memory draws, the power that the chip is built for is, all over the base's,

    TDP = (TDP_base - M) cores clock^3 + M bandwidth

(C V^2 f, with the voltage in proportion to the clock, as in `techniques.power`) and so is its idle power. Dies grow
with the cores. L2, the launch of kernels and what kernels sustain of their peaks stay those of the base, and links cost
nothing: this is a chip of its family and process, not another architecture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwspecs.changed import origin_of
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.core.relative_energy import (
    Standing,
    left_to_operations,
    memory_power,
    paid_clock,
    standing_draw,
    whole_parts,
)
from jaxperf.core.sustained import CalibratedDevice, Sustained

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from hwspecs.values import Value

SIZES = ("num_cores", "memory_bandwidth", "clock_rate", "link_bandwidth")  # facts behind `Sizes`, in its order
UNBOUNDED = 1e18  # byte, of a memory whose size is what it has to hold


def size_of(spec: DeviceSpec, name: str) -> Value:
    """The fact of `SIZES` of a device."""
    return getattr(spec.node if name == "link_bandwidth" else spec, name)


class PowerParts(eqx.Module):
    """Of the base [W]: what its `memory` draws at the whole bandwidth, the `rest` of its TDP; the same of the limit
    that its design has at the clock of its origin (`whole_limit`), which is higher for a user's device that is capped;
    `clock` over that of its origin [1]; `standing`: drawn whatever it does, of its area and as a share of the limit."""

    memory: Float[Array, ""] = eqx.field(converter=as_float)
    rest: Float[Array, ""] = eqx.field(converter=as_float)
    whole_memory: Float[Array, ""] = eqx.field(converter=as_float)
    whole_rest: Float[Array, ""] = eqx.field(converter=as_float)
    clock: Float[Array, ""] = eqx.field(converter=as_float)
    standing: Float[Array, ""] = eqx.field(converter=as_float)
    standing_share: Float[Array, ""] = eqx.field(converter=as_float)


class Sizes(eqx.Module):
    """`cores`, memory `bandwidth`, `clock` and bandwidth of `links` over those of the base [1]."""

    cores: Float[Array, ""] = eqx.field(converter=as_float)
    bandwidth: Float[Array, ""] = eqx.field(converter=as_float)
    clock: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    links: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)


def power_parts(spec: DeviceSpec, facts: Mapping[str, float]) -> PowerParts:
    """The parts of a device's power; `facts`: the `power` of a `SustainedTable`."""
    memory, standing, origin = memory_power(spec), standing_draw(spec, facts), origin_of(spec) or spec
    whole_memory, whole_rest = whole_parts(origin, spec)
    clock = spec.clock_rate.si / origin.clock_rate.si
    return PowerParts(memory, spec.tdp.si - memory, whole_memory, whole_rest, clock, standing.power, standing.share)


def design_power(parts: PowerParts, sizes: Sizes) -> Scalar:
    """The TDP of the device of these sizes [W]."""
    return parts.rest * sizes.cores * sizes.clock**3 + parts.memory * sizes.bandwidth


def sized(base: CalibratedDevice, parts: PowerParts, sizes: Sizes, holds_all: bool = False) -> CalibratedDevice:
    """The base with these sizes.

    **Arguments:** `holds_all`: whether its memory is as large as what it has to hold, so that it bounds nothing.
    """
    tdp = design_power(parts, sizes)
    facts = {
        "peak_flops": base.peak_flops * sizes.cores * sizes.clock,
        "vector_flops": base.vector_flops * sizes.cores * sizes.clock,
        "num_cores": base.num_cores * sizes.cores,
        "memory_bandwidth": base.memory_bandwidth * sizes.bandwidth,
        "link_bandwidth": base.link_bandwidth * sizes.links,
        "tdp": tdp,
        "idle_power": base.idle_power * tdp / base.tdp,
    }
    facts |= {"memory_capacity": as_float(UNBOUNDED)} if holds_all else {}
    longer = _wait(parts, sizes) / _wait(parts, Sizes(1.0, 1.0))
    rates = {
        family: dataclasses.replace(each, power=each.power * longer) for family, each in base.sustained.rates.items()
    }
    return CalibratedDevice(base.device.replace(**facts), Sustained(rates, base.sustained.columns))


def _wait(parts: PowerParts, sizes: Sizes) -> Scalar:
    """Energy of an operation over what the power limit leaves to operations: how long it has one wait, in proportion
    (`power_time`)."""
    limit, memory = design_power(parts, sizes), parts.whole_memory * sizes.bandwidth
    cores = parts.whole_rest * sizes.cores
    clock = paid_clock(parts.clock * sizes.clock, (limit - memory) / cores, jnp)
    standing = Standing(parts.standing * sizes.cores, parts.standing_share)
    return clock**2 / left_to_operations(limit, cores * clock**3 + memory, standing, jnp)
