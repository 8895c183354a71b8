"""A device like another one, with other numbers of cores and another memory: which of its facts follow, and how.

A core does what it did and the clock stays, so that peaks go with the cores. With M = energy per byte x bandwidth of
the base, what its memory draws, the power that the chip is built for is

    TDP = (TDP_base - M) cores / cores_base + M bandwidth / bandwidth_base

and so is its idle power. Dies grow with the cores. L2, links, the launch of kernels and what kernels sustain of their
peaks stay those of the base: this is a chip of its family and process, not another architecture.
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
from jaxperf.core.relative_energy import Standing, left_to_operations, memory_power, standing_draw, whole_limit
from jaxperf.core.sustained import CalibratedDevice, Sustained

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

UNBOUNDED = 1e18  # byte, of a memory whose size is what it has to hold


class PowerParts(eqx.Module):
    """Of the base [W]: what its `memory` draws at the whole bandwidth, the `rest` of its TDP; the same of the limit
    that its design has (`whole_limit`), which is higher for a user's device that is capped; `standing`: drawn whatever
    it does, of its area and as a share of the limit."""

    memory: Float[Array, ""] = eqx.field(converter=as_float)
    rest: Float[Array, ""] = eqx.field(converter=as_float)
    whole_memory: Float[Array, ""] = eqx.field(converter=as_float)
    whole_rest: Float[Array, ""] = eqx.field(converter=as_float)
    standing: Float[Array, ""] = eqx.field(converter=as_float)
    standing_share: Float[Array, ""] = eqx.field(converter=as_float)


class Sizes(eqx.Module):
    """`cores` and memory `bandwidth` over those of the base [1]."""

    cores: Float[Array, ""] = eqx.field(converter=as_float)
    bandwidth: Float[Array, ""] = eqx.field(converter=as_float)


def power_parts(spec: DeviceSpec, facts: Mapping[str, float]) -> PowerParts:
    """The parts of a device's power; `facts`: the `power` of a `SustainedTable`."""
    memory, standing, origin = memory_power(spec), standing_draw(spec, facts), origin_of(spec) or spec
    whole_memory = memory_power(origin) * spec.memory_bandwidth.si / origin.memory_bandwidth.si
    rest, whole_rest = spec.tdp.si - memory, whole_limit(origin, spec) - whole_memory
    return PowerParts(memory, rest, whole_memory, whole_rest, standing.power, standing.share)


def design_power(parts: PowerParts, sizes: Sizes) -> Scalar:
    """The TDP of the device of these sizes [W]."""
    return parts.rest * sizes.cores + parts.memory * sizes.bandwidth


def sized(base: CalibratedDevice, parts: PowerParts, sizes: Sizes, holds_all: bool = False) -> CalibratedDevice:
    """The base with these sizes.

    **Arguments:** `holds_all`: whether its memory is as large as what it has to hold, so that it bounds nothing.
    """
    tdp = design_power(parts, sizes)
    facts = {
        "peak_flops": base.peak_flops * sizes.cores,
        "vector_flops": base.vector_flops * sizes.cores,
        "num_cores": base.num_cores * sizes.cores,
        "memory_bandwidth": base.memory_bandwidth * sizes.bandwidth,
        "tdp": tdp,
        "idle_power": base.idle_power * tdp / base.tdp,
    }
    facts |= {"memory_capacity": as_float(UNBOUNDED)} if holds_all else {}
    longer = _left(parts, Sizes(1.0, 1.0)) / _left(parts, sizes)
    rates = {
        family: dataclasses.replace(each, power=each.power * longer) for family, each in base.sustained.rates.items()
    }
    return CalibratedDevice(base.device.replace(**facts), Sustained(rates, base.sustained.columns))


def _left(parts: PowerParts, sizes: Sizes) -> Scalar:
    """What its power limit leaves to operations [W]."""
    whole = parts.whole_rest * sizes.cores + parts.whole_memory * sizes.bandwidth
    standing = Standing(parts.standing * sizes.cores, parts.standing_share)
    return left_to_operations(design_power(parts, sizes), whole, standing, jnp)
