"""What the point functions of demands share: the kernel they are asked about, and what may run before it."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from calibration.kernels.formats import Formats
from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import constant_efficiency
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.elementwise import Stream, stream_cost

Shape = Mapping[str, Float[Array, ""]]  # the columns of a table, and the ways of its software (`ways_of`)
FULL = constant_efficiency(1.0, 1.0)


def quantized(device: Device, x: Shape, elements: Scalar, f: Formats) -> Cost:
    """What writes the left-hand side in the weights' format before a product in it (`x["quantized"]`: 1, else 0)."""
    before = stream_cost(device, Stream(elements * f.activations.itemsize, elements * f.weights.itemsize), FULL)
    return as_float(x.get("quantized", jnp.zeros_like(elements)) > 0.0) * before
