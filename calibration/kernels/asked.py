"""What the point functions of demands share: the kernel they are asked about, and what may run before it."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from calibration.kernels.formats import Formats
from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import constant_efficiency
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.elementwise import Stream, stream_cost

Shape = Mapping[str, Float[Array, ""]]  # the columns of a table, and the ways of its software (`ways_of`)
FULL = constant_efficiency(1.0, 1.0)


def way(x: Shape, name: str, otherwise: float = 0.0) -> Scalar:
    """A way of a kernel's software (`ways_of`); `otherwise` where a table tells nothing of it [1]."""
    return as_float(x.get(name, otherwise))


def does(x: Shape, name: str) -> Bool[Array, ""]:
    """Whether a kernel's software has a way; not where a table tells nothing of it."""
    return way(x, name) > 0.0


# Bytes read and written an element where PyTorch quantizes by elementary operations: to fp32 (2, 4), scaled (4, 4),
# bounded (4, 4), to 8 bits (4, 1).
READ_APART, WRITTEN_APART = 14.0, 13.0


def quantized(device: Device, x: Shape, elements: Scalar, f: Formats) -> Cost:
    """What writes the left-hand side in the weights' format before a product in it (`x["quantized"]`: 1, else 0), in
    one kernel or by elementary operations (`x["composed"]`: 1)."""
    apart = does(x, "composed")
    read = jnp.where(apart, READ_APART, f.activations.itemsize)
    written = jnp.where(apart, WRITTEN_APART, f.weights.itemsize)
    before = stream_cost(device, Stream(elements * read, elements * written), FULL)
    return as_float(does(x, "quantized")) * before
