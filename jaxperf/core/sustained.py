"""What a device sustains of its datasheet rates in each kernel family, by level and format class: fitted numbers.

Who a device is decides what was measured of it, so these go with the device as a second set of arrays, never as
fields of `Device`; stacked, both are one sweep axis.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from jaxperf.core.device import Device
from jaxperf.core.efficiency import FAMILIES, LEVELS, Efficiencies, SustainedEfficiency
from jaxperf.core.formats import NumberFormat, as_index
from jaxperf.core.numerics import as_float

CLASSES = ("32-bit", "16-bit", "8-bit", "4-bit")
ROOFLINE = "roofline"
RATE_LEVELS = (*LEVELS, ROOFLINE)
MATRIX_FAMILIES = ("gemm", "moe")  # multiply the weights in their format; all others work on activations


def format_class(compute: str) -> str:
    """The class of a format of `COMPUTE_FORMATS`; what is wider than 16 bits counts as 32."""
    narrow = {"bf16": "16-bit", "fp16": "16-bit", "fp8": "8-bit", "int8": "8-bit", "fp4": "4-bit", "int4": "4-bit"}
    return narrow.get(compute, "32-bit")


class Rates(eqx.Module):
    """Of one family [levels of `RATE_LEVELS`, `CLASSES`]: `compute` and `memory`, shares of the peaks [1]; `floor`:
    launch and drain [s]; `exposed` [1] and `power` [s/FLOP]: see `Utilization`."""

    compute: Float[Array, "*batch levels classes"] = eqx.field(converter=as_float)
    memory: Float[Array, "*batch levels classes"] = eqx.field(converter=as_float)
    floor: Float[Array, "*batch levels classes"] = eqx.field(converter=as_float)
    exposed: Float[Array, "*batch levels classes"] = eqx.field(converter=as_float)
    power: Float[Array, "*batch levels classes"] = eqx.field(converter=as_float)


class Sustained(eqx.Module):
    """The rates of every family of `FAMILIES`, those that nobody measured at their assumed values; `columns`: the place
    in `CLASSES` of the rates of kernels in each of `COMPUTE_FORMATS`, which are those of its stand-in where the device
    has no units for it; numbers, as `jax.grad` of a whole device takes no integers."""

    rates: dict[str, Rates]
    columns: Float[Array, "*batch formats"] = eqx.field(converter=as_float)


class CalibratedDevice(eqx.Module):
    """A device and what it sustains: stands wherever a point function takes a `Device`, and shows its fields."""

    device: Device
    sustained: Sustained

    def replace(self, **changes: Any) -> CalibratedDevice:
        """A copy with some leaves of the device changed; its shares of the peaks stay."""
        return dataclasses.replace(self, device=self.device.replace(**changes))

    def __getattr__(self, name: str) -> Any:
        if name in Device.__dataclass_fields__:
            return getattr(self.device, name)
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")


def sustained_efficiencies(
    sustained: Sustained,
    level: Int[Array, ""],
    link: Float[Array, ""],
    weights: NumberFormat,
    activations: NumberFormat,
) -> Efficiencies:
    """The efficiencies of one deployment.

    **Arguments:** `sustained`: leaves [levels, classes]; `level`: index into `RATE_LEVELS`; `link`: share of the link
    rate that collectives reach [1]. Kernels of `MATRIX_FAMILIES` take the class of `weights`, all others and plain
    products that of `activations`.
    **Returns:** `Efficiencies` of scalars.
    """
    columns = as_index(sustained.columns)
    of_weights, of_activations = columns[weights.compute], columns[activations.compute]

    def efficiency(family: str, column: Int[Array, ""]) -> SustainedEfficiency:
        rates = sustained.rates[family]
        leaves = (rates.compute, rates.memory, rates.floor, rates.exposed, rates.power)
        return SustainedEfficiency(*(leaf[level, column] for leaf in leaves))

    per_family = {
        family: efficiency(family, of_weights if family in MATRIX_FAMILIES else of_activations) for family in FAMILIES
    }
    return Efficiencies(**per_family, plain_gemm=efficiency("gemm", of_activations), link=link)
