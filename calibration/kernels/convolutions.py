"""How a library computes a convolution in fp32: as a product, or by one of Winograd's two minimal filterings.

Of a convolution of 3 x 3 with stride 1, Lavin and Gray's F(2 x 2, 3 x 3) multiplies 4 x 4 numbers for 2 x 2 outputs,
in one kernel, and F(4 x 4, 3 x 3) 6 x 6 for 4 x 4, as 36 products between kernels that transform inputs, filters and
outputs (arXiv:1509.09308). With N images of S x S outputs, C input and K output channels,

    product    [N S^2, 9 C] x [9 C, K], whose left-hand side is gathered on the way
    F(2)       blocks of 32 channels and 4 x 8 tiles of one image, 16 multiplications a tile and input channel
    F(4)       36 products [N ceil(S/4)^2, C] x [C, K], and the transforms' reads and writes

cuDNN takes what it expects to be the fastest; here that is the least of three estimates at the datasheet's rates.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from calibration.kernels.asked import Shape, way
from calibration.kernels.formats import Formats
from calibration.kernels.vector_products import busiest_batch_flops, busiest_flops
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div
from jaxperf.kernels.roofline import matrix_peak

FILTER = 3.0  # rows and columns of the filters that have a minimal filtering
SMALL, LARGE = 2.0, 4.0  # outputs a side of a tile of F(2) and F(4)
CHANNELS, TILES_HIGH, TILES_WIDE = 32.0, 4.0, 8.0  # of a block of F(2), as its kernels are named ("tile148")
FILLING = 30.0  # input channels in whose time a block of F(2) fills its pipeline and transforms its outputs
# How much longer than their bytes at the datasheet's bandwidth the transforms of activations and of filters take, the
# latter with a stride of all filters; between 2.1 and 3.3, and 3.0 and 5.2, on each of five GPUs.
ACTIVATIONS, FILTERS = 2.3, 4.8
LAUNCH = 25e-6  # of each further kernel, from the host [s]
EXPECTED = 1.2  # of the arithmetic's time over that at the datasheet's rate, in the estimates
FP32 = 4.0  # bytes of a number for which a library has minimal filterings on vector units


class Algorithm(eqx.Module):
    """One way: `busy`, FLOP of the busiest core, `flops` of all [FLOP]; `beside`: time of the kernels around it [s]."""

    busy: Scalar
    flops: Scalar
    beside: Scalar


NAMES = tuple(Algorithm.__dataclass_fields__)


def side(x: Shape) -> Scalar:
    """Rows and columns of the output [1]."""
    return floor_div(x["input_size"] + 2.0 * x["padding"] - x["kernel_size"], x["stride"]) + 1.0


def chosen(device: Device, x: Shape, f: Formats) -> Algorithm:
    """The algorithm with the least expected time."""
    rate = matrix_peak(device, f.weights)
    filtered = (x["kernel_size"] == FILTER) & (x["stride"] == 1.0) & (f.weights.operand_itemsize >= FP32)
    best = as_product(device, x)
    least = _expected(best, device, rate)
    for other in (in_one_kernel(device, x), apart(device, x)):
        time = jnp.where(filtered, _expected(other, device, rate), jnp.inf)
        best = Algorithm(*(jnp.where(time < least, getattr(other, n), getattr(best, n)) for n in NAMES))
        least = jnp.minimum(time, least)
    return best


def _expected(way: Algorithm, device: Device, rate: Scalar) -> Scalar:
    return EXPECTED * way.busy * device.num_cores / rate + way.beside


def as_product(device: Device, x: Shape) -> Algorithm:
    """The product whose left-hand side is gathered from the input."""
    rows, depth = x["batch"] * side(x) ** 2, x["input_channels"] * x["kernel_size"] ** 2
    busy = busiest_flops(device, rows, x["output_channels"], depth, as_float(1.0))
    return Algorithm(busy, 2.0 * rows * x["output_channels"] * depth, jnp.zeros_like(rows))


def in_one_kernel(device: Device, x: Shape) -> Algorithm:
    """F(2 x 2, 3 x 3), whose filters alone are transformed before."""
    across = ceil_div(side(x), as_float(SMALL))
    tiles = ceil_div(across, as_float(TILES_HIGH)) * ceil_div(across, as_float(TILES_WIDE)) * x["batch"]
    blocks = tiles * ceil_div(x["output_channels"], as_float(CHANNELS))
    numbers = (SMALL + FILTER - 1.0) ** 2
    block = 2.0 * numbers * CHANNELS * TILES_HIGH * TILES_WIDE * (x["input_channels"] + FILLING)
    flops = 2.0 * numbers * x["batch"] * across**2 * x["input_channels"] * x["output_channels"]
    filters = x["input_channels"] * x["output_channels"] * (FILTER**2 + numbers) * FP32
    beside = 0.5 * FILTERS * filters / device.memory_bandwidth + LAUNCH
    return Algorithm(ceil_div(blocks, device.num_cores) * block, flops, beside)


def apart(device: Device, x: Shape) -> Algorithm:
    """F(4 x 4, 3 x 3), each transform and the products in a kernel of its own."""
    inputs, outputs = x["input_channels"], x["output_channels"]
    tiles = x["batch"] * ceil_div(side(x), as_float(LARGE)) ** 2
    numbers = as_float((LARGE + FILTER - 1.0) ** 2)
    busy = busiest_batch_flops(device, tiles, outputs, inputs, numbers, way(x, "batch_tiles"))
    pixels = x["batch"] * (inputs * x["input_size"] ** 2 + outputs * side(x) ** 2)
    activations = (pixels + numbers * tiles * (inputs + outputs)) * FP32
    filters = inputs * outputs * (FILTER**2 + numbers) * FP32
    beside = (ACTIVATIONS * activations + FILTERS * filters) / device.memory_bandwidth + 3.0 * LAUNCH
    return Algorithm(busy, 2.0 * numbers * tiles * inputs * outputs, beside)
