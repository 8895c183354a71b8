"""Quantization of a matrix to a narrow format with scales, and back: per tensor, per channel or per block."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.elementwise import Stream, stream_cost, two_pass_reads

QUANTIZE_OPERATIONS = 5.0  # magnitude, maximum; times the scale, rounded, clipped: per element
DEQUANTIZE_OPERATIONS = 2.0  # zero point or conversion, times the scale: per element


class ScaleBlock(eqx.Module):
    """The part of a matrix that shares one scale: `rows` x `columns` elements [1], a scale of `itemsize` bytes.

    DeepSeek-V3 has (1, 128) for activations and (128, 128) for weights (arXiv 2412.19437); microscaling formats
    (1, 32) with one byte (OCP MX 1.0), NVFP4 (1, 16) with one byte.
    """

    rows: Float[Array, "*batch"] = eqx.field(converter=as_float)
    columns: Float[Array, "*batch"] = eqx.field(converter=as_float)
    itemsize: Float[Array, "*batch"] = eqx.field(converter=as_float, default=4.0)


def per_tensor_scale(rows: Scalar, columns: Scalar, itemsize: Scalar | float = 4.0) -> ScaleBlock:
    """One scale for a matrix of `rows` x `columns`."""
    return ScaleBlock(rows, columns, itemsize)


def per_channel_scale(columns: Scalar, itemsize: Scalar | float = 4.0) -> ScaleBlock:
    """One scale for each row (a token or an output channel) of `columns` elements."""
    return ScaleBlock(1.0, columns, itemsize)


def scale_count(rows: Scalar, columns: Scalar, block: ScaleBlock) -> Scalar:
    """Blocks that cover the matrix: ceil(rows / block rows) ceil(columns / block columns) [1]."""
    return ceil_div(rows, block.rows) * ceil_div(columns, block.columns)


@jax.jit
def quantize_cost(
    device: Device,
    rows: Scalar,
    columns: Scalar,
    itemsize: Scalar,
    stored_itemsize: Scalar,
    block: ScaleBlock,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Dynamic quantization: the largest magnitude of each block sets its scale, then its elements are divided by it.

    bytes = elements (reads x itemsize + stored) + scales; blocks too large to stay on chip are read twice.

    **Arguments:** `itemsize`: bytes of an element read; `stored_itemsize`: of one written, without its scale.
    **Returns:** `Cost` of scalars.
    """
    elements, scales = rows * columns, scale_count(rows, columns, block)
    reads = two_pass_reads(device, scales, elements / scales * itemsize)
    written = elements * stored_itemsize + scales * block.itemsize
    stream = Stream(elements * itemsize * reads, written, QUANTIZE_OPERATIONS * elements)
    return stream_cost(device, stream, efficiency)


@jax.jit
def dequantize_cost(
    device: Device,
    rows: Scalar,
    columns: Scalar,
    stored_itemsize: Scalar,
    itemsize: Scalar,
    block: ScaleBlock,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Stored elements and their scales read once, wide elements written.

    **Arguments:** `stored_itemsize`: bytes of an element read, without its scale; `itemsize`: of one written.
    **Returns:** `Cost` of scalars.
    """
    elements = rows * columns
    read = elements * stored_itemsize + scale_count(rows, columns, block) * block.itemsize
    return stream_cost(device, Stream(read, elements * itemsize, DEQUANTIZE_OPERATIONS * elements), efficiency)
