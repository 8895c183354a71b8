"""Row-wise softmax, as routers, samplers and attention without a fused kernel run it."""

from __future__ import annotations

import jax

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.numerics import Scalar, ceil_div
from jaxperf.kernels.elementwise import two_pass_reads
from jaxperf.kernels.roofline import kernel_cost

OPERATIONS = 5.0  # maximum, subtraction, exponential, sum, division: per element


@jax.jit
def softmax_cost(
    device: Device, rows: Scalar, columns: Scalar, itemsize: Scalar, efficiency: AbstractEfficiency
) -> Cost:
    """y = exp(x - max) / sum, one core a row, maximum and sum in one online pass (Milakov, Gimelshein 2018,
    arXiv 1805.02867).

    bytes = elements x itemsize x (reads + 1): one read where the rows in flight fit the L2, else two. The busiest
    core has ceil(rows / cores) rows.

    **Arguments:** `itemsize`: bytes of an element, in and out. **Returns:** `Cost` of scalars.
    """
    elements = rows * columns
    busiest = ceil_div(rows, device.num_cores) * columns * OPERATIONS
    return kernel_cost(
        device,
        efficiency(device, device),
        compute=busiest * device.num_cores / device.vector_flops,
        flops=OPERATIONS * elements,
        bytes_moved=elements * itemsize * (1.0 + two_pass_reads(device, rows, columns * itemsize)),
    )
