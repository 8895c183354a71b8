"""The roofline with efficiencies applied per resource before the overlap (Williams, Waterman, Patterson, CACM 2009).

Fitted efficiencies come with their own launch floor and with how much of the shorter resource shows: see
`partial_overlap`, which costs a square root where the p-norm of `core.numerics.overlap` costs powers.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import Utilization
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div, overlap

LEAST_TIME = 1e-18  # stands under a fraction where a kernel multiplies nothing; its square is no zero in float32 [s]
LEAST_SQUARE = 1e-36  # keeps the slope of a square root finite where a kernel does nothing [s^2]


def matrix_peak(device: Device, number_format: NumberFormat) -> Float[Array, ""]:
    """Dense matrix peak of the device in that format, or of the format that stands in for it [FLOP/s]."""
    return device.peak_flops[number_format.compute]


def wave_stretch(device: Device, blocks: Scalar) -> Scalar:
    """How much longer equal `blocks` take than on cores that never idle, ceil(blocks / cores) cores / blocks [1]."""
    return ceil_div(blocks, device.num_cores) * device.num_cores / blocks


def busiest_time(device: Device, blocks: Scalar, block_flops: Scalar, number_format: NumberFormat) -> Scalar:
    """Time of the core with most of `blocks` equal blocks at its share of the matrix peak [s]."""
    waves = ceil_div(blocks, device.num_cores)
    return waves * block_flops * device.num_cores / matrix_peak(device, number_format)


def operand_itemsize(device: Device, weights: NumberFormat, activations: NumberFormat) -> Float[Array, ""]:
    """Bytes of one activation entering the matrix unit: left unquantized where the device lacks the format [byte]."""
    native = device.native[weights.compute] > 0.0
    return jnp.where(native, weights.operand_itemsize, activations.itemsize)


def kernel_cost(
    device: Device,
    utilization: Utilization,
    *,
    compute: Scalar,
    flops: Scalar,
    bytes_moved: Scalar,
    stretch: Scalar | float = 1.0,
) -> Cost:
    """t = overlap(core, bytes / bandwidth / e_memory) + floor.

    core = ((compute / e_compute)^4 + (flops power)^4)^(1/4) where a power limit is known: the busiest core sets the
    pace of the arithmetic, but power is drawn by those that work, so that the limit knows the useful FLOP alone.

    **Arguments:** `compute`: time of the busiest core at its peak rate [s]; `flops`: useful FLOP; `bytes_moved`: to
    and from device memory [byte]; `stretch`: how much longer the transfer takes because too few cores ask for data
    (>= 1).
    **Returns:** `Cost` with the floor as its latency: the fitted one, else the device's launch latency.
    """
    busy_compute = compute / utilization.compute
    if utilization.power is not None:
        busy_compute = under_power_limit(busy_compute, flops * utilization.power)
    busy_memory = bytes_moved * stretch / (device.memory_bandwidth * utilization.memory)
    if utilization.exposed is None:
        busy = overlap(busy_compute, busy_memory)
    else:
        busy = partial_overlap(busy_compute, busy_memory, utilization.exposed)
    floor = device.launch_latency if utilization.floor is None else utilization.floor
    return Cost(
        time=busy + floor,
        compute=busy_compute,
        memory=busy_memory,
        network=as_float(0.0),
        latency=floor,
        flops=flops,
        bytes_moved=bytes_moved,
        launches=1.0,
    )


def under_power_limit(core: Scalar, drawn: Scalar) -> Scalar:
    """t = (core^4 + drawn^4)^(1/4): the longer, with a corner as soft as that of the fit (`calibration.sustained`).

    **Arguments:** `core`: arithmetic at full clock; `drawn`: that its energy takes at the power limit [s].
    **Returns:** combined time [s]; written so that neither time underflows in float32.
    """
    longest = jnp.maximum(core, drawn)
    shorter = jnp.minimum(core, drawn) / jnp.maximum(longest, LEAST_TIME)
    square = shorter * shorter
    return longest * jnp.sqrt(jnp.sqrt(1.0 + square * square))


def partial_overlap(a: Scalar, b: Scalar, exposed: Scalar) -> Scalar:
    """t = sqrt(max(a, b)^2 + exposed min(a, b)^2): the exact maximum at 0, the p-norm with p = 2 at 1.

    **Arguments:** `a`, `b`: times [s]; `exposed` in [0, 1] [1].
    **Returns:** combined time [s].
    """
    longest, shortest = jnp.maximum(a, b), jnp.minimum(a, b)
    return jnp.sqrt(longest * longest + exposed * shortest * shortest + LEAST_SQUARE)
