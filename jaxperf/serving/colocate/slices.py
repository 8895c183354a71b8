"""A slice of a device that is divided in hardware (MIG): a device of its own, smaller in everything that is divided."""

from __future__ import annotations

from typing import TypeVar

from hwspecs.errors import InputError
from jaxperf.core.device import Device
from jaxperf.core.numerics import as_float, floor_div
from jaxperf.core.sustained import CalibratedDevice

AnyDevice = TypeVar("AnyDevice", Device, CalibratedDevice)


def slice_of(device: AnyDevice, slices: int) -> AnyDevice:
    """One of `slices` equal parts: floor(cores / slices) cores and the arithmetic that goes with them; equal parts of
    bandwidth and capacity of the memory, of the last cache and of the power. Launching, links and the shares of the
    peaks that kernels reach stay. One slice is the device itself, bit for bit.

    **Raises:** `InputError` for more slices than cores.
    """
    parts = as_float(slices)
    cores = floor_div(device.num_cores, parts)
    if float(cores) < 1.0:
        raise InputError(f"{slices} slices: the device has {float(device.num_cores):g} cores, and each needs one.")
    share = cores / device.num_cores
    divided = ("memory_bandwidth", "memory_capacity", "l2_capacity", "tdp", "idle_power")
    return device.replace(
        num_cores=cores,
        peak_flops=device.peak_flops * share,
        vector_flops=device.vector_flops * share,
        **{name: getattr(device, name) / parts for name in divided},
    )
