"""Operations on maps [images, channels, side, side]: convolutions, batch and group norms, pooling, resizing."""

from __future__ import annotations

from jaxperf.models.workloads import kernels
from jaxperf.models.workloads.kernels import stream
from jaxperf.models.workloads.tape import Tape, Tensor


def output_side(side: float, kernel: float, stride: float, padding: float) -> float:
    """Positions a kernel takes along a side of a map: floor((side + 2 padding - kernel) / stride) + 1."""
    return (side + 2 * padding - kernel) // stride + 1


def convolution(
    tape: Tape,
    x: Tensor,
    channels: int,
    kernel: int,
    name: str,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    bias: bool = False,
) -> Tensor:
    """A square convolution; backward dX (a transposed convolution) and dW, each of the same FLOP as forward, and db.

    `groups` of channels are convolved apart (depthwise: as many groups as channels). The kernels of the backward pass
    are given the forward pass's shape, which has their FLOP and, of dX and dW together, their activations.
    """
    images, inputs, side, _ = x.shape
    out = output_side(side, kernel, stride, padding)
    op = kernels.convolution(images * groups, inputs // groups, channels // groups, side, kernel, stride, padding)
    weights = channels * (inputs // groups) * kernel * kernel
    y = images * channels * out * out
    summed = [stream("bias gradient", y, channels, channels)] if bias else []
    parameters = (weights, channels) if bias else (weights,)
    backward = [op] * (1 + x.gradient) + summed
    return tape.record(name, "convolution", (x,), (images, channels, out, out), [op], backward, parameters)


def batch_norm(tape: Tape, x: Tensor, name: str) -> Tensor:
    """Norm of each channel over images and positions (arXiv:1502.03167); statistics take one more read in training.

    Backward one kernel sums over x and dY, and one reads both again for dX.
    """
    n, channels = x.elements, x.shape[1]
    forward = [stream("batch norm", n, n, channels)]
    if tape.training:
        forward.insert(0, stream("batch statistics", n, 2 * channels, channels))
    backward = [stream("sum", 2 * n, 2 * channels, channels), stream("norm gradient", 2 * n, n, channels)]
    return tape.record(name, "norm", (x,), x.shape, forward, backward, (channels, channels))


def group_norm(tape: Tape, x: Tensor, groups: int, name: str) -> Tensor:
    """Norm of each group of channels of an image (arXiv:1803.08494): moments by rows, then a pointwise kernel."""
    n, images, channels = x.elements, x.shape[0], x.shape[1]
    rows = images * groups
    forward = [stream("moments", n, 2 * rows, rows), stream("group norm", n, n, rows)]
    backward = [stream("sum", 2 * n, 2 * images * channels, images * channels), stream("norm gradient", 2 * n, n, rows)]
    return tape.record(name, "norm", (x,), x.shape, forward, backward, (channels, channels))


def pool(tape: Tape, x: Tensor, kernel: int, padding: int = 0) -> Tensor:
    """The maximum of each window, two apart; backward each gradient goes to the index kept (8 bytes an element)."""
    images, channels, side, _ = x.shape
    out = output_side(side, kernel, 2, padding)
    y = images * channels * out * out
    kept = y * (1 + 8 / tape.itemsize)
    forward, backward = stream("max pool", x.elements, kept, images * channels), stream("max pool", kept, x.elements)
    return tape.record("pool", "pool", (x,), (images, channels, out, out), [forward], [backward])


def average(tape: Tape, x: Tensor) -> Tensor:
    """The mean over all positions, [images, channels]."""
    images, channels = x.shape[0], x.shape[1]
    y = images * channels
    return tape.record("average", "pool", (x,), (images, channels), [stream("mean", x.elements, y, y)],
                       [stream("divu", y, x.elements, y)])  # fmt: skip


def doubled(tape: Tape, x: Tensor) -> Tensor:
    """Each position written four times (nearest neighbour); backward their gradients are summed."""
    images, channels, side, _ = x.shape
    y = 4 * x.elements
    shape = (images, channels, 2 * side, 2 * side)
    forward, backward = stream("upsample", x.elements, y, x.rows), stream("sum", y, x.elements, x.rows)
    return tape.record("upsample", "resize", (x,), shape, [forward], [backward])
