"""Matrix products and convolutions of any layout as the operations that kernel models know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxperf.io.program import Value
from jaxperf.models.graph import Op

# Formats whose products have kernels under their own name; others are taken for the format of their width.
PRODUCT_DTYPES = frozenset(("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"))
_BY_WIDTH = {8.0: "fp64", 4.0: "fp32", 2.0: "bf16", 1.0: "int8"}


def product_dtype(operands: Sequence[Value]) -> str:
    """The format a product of these operands is computed in: that of the widest."""
    widest = max(operands, key=lambda value: value.itemsize)
    return widest.dtype if widest.dtype in PRODUCT_DTYPES else _BY_WIDTH.get(widest.itemsize, "fp32")


def matrix_product(batch: int, m: int, n: int, k: int, dtype: str) -> tuple[Op, float]:
    """`batch` products [m, k] x [k, n], each with its own right-hand side, and their FLOP: 2 batch m n k."""
    family = "gemm" if batch == 1 else "bmm"
    return Op(family, {"batch": batch, "m": m, "n": n, "k": k}, dtype), 2.0 * batch * m * n * k


@dataclass(frozen=True)
class Convolution:
    """`spatial`: the input's extents; `out`: the output's; `padding`: (before, after) an axis; `spread`: spacing of the
    input's elements, above 1 where a strided convolution is transposed."""

    batch: int
    input_channels: int
    output_channels: int
    spatial: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    spread: tuple[int, ...]
    groups: int = 1

    @property
    def flops(self) -> float:
        """2 batch out (input channels / groups) kernel output channels, padding counted as is usual, over the spread:
        a transposed convolution skips the zeros between its input's elements [FLOP]."""
        taps = self.input_channels / self.groups * math.prod(self.kernel) / math.prod(self.spread)
        return 2.0 * self.batch * math.prod(self.out) * self.output_channels * taps


def convolution_op(conv: Convolution, dtype: str, moved: tuple[float, float]) -> Op:
    """The operation whose kernel computes a convolution.

    A square one without groups, spacing or dilation is the family "convolution"; one channel a group is a stream over
    its input and output (`moved`, elements), as there is no product to speak of; any other is the product it is
    computed as: groups x [batch out, in kernel] x [in kernel, out channels].
    """
    if conv.groups > 1 and conv.groups == conv.input_channels:
        rows = conv.batch * conv.input_channels
        return Op(
            "elementwise", {"elements_in": moved[0], "elements_out": moved[1], "rows": rows}, dtype, 1.0, "depthwise"
        )
    if _is_plain(conv):
        shape = {
            "batch": conv.batch,
            "input_channels": conv.input_channels,
            "output_channels": conv.output_channels,
            "input_size": conv.spatial[0],
            "kernel_size": conv.kernel[0],
            "stride": conv.stride[0],
            "padding": _symmetric(conv),
        }
        return Op("convolution", shape, dtype)
    rows = conv.batch * math.prod(conv.out)
    depth = conv.input_channels / conv.groups * math.prod(conv.kernel) / math.prod(conv.spread)
    family = "gemm" if conv.groups == 1 else "bmm"
    shape = {"batch": conv.groups, "m": rows, "n": conv.output_channels // conv.groups, "k": depth}
    return Op(family, shape, dtype)


def _is_plain(conv: Convolution) -> bool:
    """Whether the columns of the family "convolution" say all of it.

    A window of one position is a matrix product, and one larger than the output a sum over positions, as in the
    gradient of the weights: neither slides over anything.
    """
    axes = list(zip(conv.spatial, conv.out, conv.kernel, conv.stride, strict=True))
    single = conv.groups == 1 and set(conv.dilation) | set(conv.spread) == {1}
    if len(axes) != 2 or axes[0] != axes[1] or not single:
        return False
    if conv.kernel[0] == 1 or conv.kernel[0] > max(conv.out[0], conv.stride[0]):
        return False
    if min(min(pair) for pair in conv.padding) < 0:
        return False
    size, out, kernel, stride = axes[0]
    return (size + 2 * _symmetric(conv) - kernel) // stride + 1 == out


def _symmetric(conv: Convolution) -> int:
    """The padding of either side; of two unequal sides the larger, which gives the same output."""
    return max(max(pair) for pair in conv.padding)
