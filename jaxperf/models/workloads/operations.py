"""Operations of a framework on a tape: each records one node with the kernels that PyTorch launches in eager mode.

The backward kernels are those of PyTorch's derivative formulas (tools/autograd/derivatives.yaml and the kernels it
names): a product needs one product for each operand, a pointwise function one kernel that reads the gradient and what
was saved, an addition none. Shapes are in elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxperf.models.workloads import kernels
from jaxperf.models.workloads.kernels import HOST, bmm, gemm, movement, stream
from jaxperf.models.workloads.tape import Tape, Tensor

# --- products ---------------------------------------------------------------------------------------------------------


def linear(tape: Tape, x: Tensor, features: float, name: str, bias: bool = True, shared: bool = False) -> Tensor:
    """y = x W + b: forward one GEMM; backward dX = dY W^T, dW = dY^T X, and db the sum of dY over its rows."""
    rows, depth = x.rows, x.shape[-1]
    backward = [gemm(rows, depth, features)] if x.gradient else []
    backward.append(gemm(features, depth, rows))
    if bias:
        backward.append(stream("bias gradient", rows * features, features, features))
    return tape.record(
        name,
        "linear",
        (x,),
        (*x.shape[:-1], features),
        forward=[gemm(rows, features, depth)],
        backward=backward,
        parameters=(depth * features, features) if bias else (depth * features,),
        shared=shared,
    )


def matmul(tape: Tape, a: Tensor, b: Tensor, name: str = "matmul") -> Tensor:
    """[..., m, k] x [..., k, n]: backward one batched product for each operand."""
    batch, (m, k), n = math.prod(a.shape[:-2]), a.shape[-2:], b.shape[-1]
    backward = [bmm(batch, m, k, n)] * a.gradient + [bmm(batch, k, n, m)] * b.gradient
    return tape.record(name, "matmul", (a, b), (*a.shape[:-1], n), [bmm(batch, m, n, k)], backward)


# --- pointwise --------------------------------------------------------------------------------------------------------


def pointwise(tape: Tape, x: Tensor, note: str, backward: int | None = 1, name: str = "") -> Tensor:
    """One elementwise kernel.

    `backward`: tensors of x's size that the backward kernel reads beside the gradient; `None` for no kernel.
    """
    n, rows = x.elements, x.rows
    grads = [] if backward is None else [stream(note, (1 + backward) * n, n, rows)]
    forward = [stream(note, n, n, rows)]
    return tape.record(name or note, "elementwise", (x,), x.shape, forward, grads)


def scaled(tape: Tape, x: Tensor, note: str = "mulu", name: str = "") -> Tensor:
    """x times or over a number: the gradient is scaled in the same way."""
    return pointwise(tape, x, note, backward=0, name=name)


def shifted(tape: Tape, x: Tensor) -> Tensor:
    """x plus a number: the gradient passes without a kernel."""
    return pointwise(tape, x, "addu", backward=None)


def add(tape: Tape, x: Tensor, y: Tensor, name: str = "add") -> Tensor:
    """x + y: the gradient passes to both without a kernel, but is summed over the axes along which y was repeated."""
    backward = [stream("sum", x.elements, y.elements, y.rows)] if y.gradient and y.elements < x.elements else []
    read = x.elements + y.elements
    return tape.record(name, "elementwise", (x, y), x.shape, [stream("add", read, x.elements, x.rows)], backward)


def multiply(tape: Tape, x: Tensor, y: Tensor, name: str = "mul") -> Tensor:
    """x y: one product for each gradient, which is then summed over the axes along which y was repeated."""
    elements, other = x.elements, y.elements
    backward = [stream("mul", elements + other, elements, x.rows)] if x.gradient else []
    if y.gradient:
        backward.append(stream("mul", 2 * elements, elements, x.rows))
        if other < elements:
            backward.append(stream("sum", elements, other, y.rows))
    forward = [stream("mul", elements + other, elements, x.rows)]
    return tape.record(name, "elementwise", (x, y), x.shape, forward, backward)


def power(tape: Tape, x: Tensor) -> Tensor:
    """x**p: the gradient is dY (p x**(p - 1)) in three kernels."""
    elements, rows = x.elements, x.rows
    single = [stream("powu", elements, elements, rows), stream("mulu", elements, elements, rows)]
    backward = [*single, stream("mul", 2 * elements, elements, rows)]
    return tape.record("pow", "elementwise", (x,), x.shape, [stream("powu", elements, elements, rows)], backward)


def dropout(tape: Tape, x: Tensor) -> Tensor:
    """Written with its mask of one byte an element, which the backward kernel reads; only a call in inference."""
    elements, masked = x.elements, x.elements * (1 + 1 / tape.itemsize)
    if not tape.training:
        return tape.record("dropout", "view", (x,), x.shape, [HOST])
    forward, backward = stream("dropout", elements, masked, x.rows), stream("dropout", masked, elements, x.rows)
    return tape.record("dropout", "dropout", (x,), x.shape, [forward], [backward])


def chosen(tape: Tape, x: Tensor, mask: float, name: str = "where") -> Tensor:
    """x where a mask of `mask` one-byte elements says so, else a number; the gradient is chosen in the same way."""
    op = stream("where", x.elements + mask / tape.itemsize, x.elements, x.rows)
    return tape.record(name, "elementwise", (x,), x.shape, [op], [op])


# --- rows -------------------------------------------------------------------------------------------------------------


def softmax(tape: Tape, x: Tensor) -> Tensor:
    """Rows of the last axis: the gradient is the product of dY and y, and a kernel that reads it and y once more.

    (aten/src/ATen/native/cuda/SoftMax.cu: `tmp = grad * output`, then the row kernel.)
    """
    elements, rows = x.elements, x.rows
    backward = [stream("mul", 2 * elements, elements, rows), stream("softmax gradient", 2 * elements, elements, rows)]
    return tape.record("softmax", "softmax", (x,), x.shape, [kernels.softmax(rows, x.shape[-1])], backward)


def layer_norm(tape: Tape, x: Tensor, name: str, bias: bool = True, weight: bool = True) -> Tensor:
    """One kernel forward; backward one for dX, which reads x and dY, and one reduction for the weight and bias."""
    elements, columns = x.elements, x.shape[-1]
    backward = [stream("norm gradient", 2 * elements, elements, x.rows)]
    if weight:
        backward.append(stream("norm weight gradient", 2 * elements, (1 + bias) * columns, columns))
    parameters = (columns,) * (1 + bias) if weight else ()
    return tape.record(name, "norm", (x,), x.shape, [kernels.norm(x.rows, columns)], backward, parameters)


def rms_norm(tape: Tape, x: Tensor, name: str, weight: bool = True) -> Tensor:
    """x / sqrt(mean(x**2) + eps) w, as the six kernels of the eager class (arXiv:1910.07467)."""
    with tape.scope(name):
        scale = shifted(tape, mean(tape, power(tape, x)))
        scale = inverse_root(tape, scale)
        normed = multiply(tape, x, scale)
        return _weighted(tape, normed) if weight else normed


def _weighted(tape: Tape, x: Tensor) -> Tensor:
    """x times one trained weight for each column, whose gradient is a product summed over the rows."""
    elements, columns, rows = x.elements, x.shape[-1], x.rows
    forward = stream("mul", elements + columns, elements, rows)
    backward = [forward, stream("mul", 2 * elements, elements, rows), stream("sum", elements, columns, columns)]
    return tape.record("scale", "elementwise", (x,), x.shape, [forward], backward, (columns,))


def mean(tape: Tape, x: Tensor) -> Tensor:
    """Over the last axis: the gradient is divided and spread over it."""
    forward, backward = stream("mean", x.elements, x.rows, x.rows), stream("divu", x.rows, x.elements, x.rows)
    return tape.record("mean", "mean", (x,), (*x.shape[:-1], 1), [forward], [backward])


def inverse_root(tape: Tape, x: Tensor) -> Tensor:
    """1 / sqrt(x): the gradient is -dY y**3 / 2 in three kernels."""
    n, rows = x.elements, x.rows
    backward = [stream("powu", n, n, rows), stream("mulu", n, n, rows), stream("mul", 2 * n, n, rows)]
    return tape.record("rsqrt", "elementwise", (x,), x.shape, [stream("rsqrt", n, n, rows)], backward)


# --- tables and movement ----------------------------------------------------------------------------------------------


def embedding(tape: Tape, ids: Tensor, entries: int, width: int, name: str, shared: bool = False) -> Tensor:
    """Rows of a table: backward the table's gradient is filled with zeros and the rows of dY are added to it."""
    looked = ids.elements * width * tape.itemsize
    backward = [movement(0, entries * width * tape.itemsize), movement(2 * looked, looked)]
    return tape.record(
        name,
        "embedding",
        (ids,),
        (*ids.shape, width),
        forward=[kernels.lookup(ids.elements, width)],
        backward=backward,
        parameters=(entries * width,),
        shared=shared,
    )


def view(tape: Tape, x: Tensor, *shape: float, name: str = "view", others: Sequence[Tensor] = ()) -> Tensor:
    """Another shape, order or part of the same memory: a call without a kernel."""
    return tape.record(name, "view", (x, *others), shape, [HOST], [HOST])


def part(tape: Tape, x: Tensor, *shape: float, name: str = "getitem") -> Tensor:
    """A slice: no kernel forward; backward a gradient of the whole is filled with zeros and the part written."""
    whole, piece = x.elements * tape.itemsize, math.prod(shape) * tape.itemsize
    return tape.record(name, "view", (x,), shape, [HOST], [movement(piece, whole)])


def split(tape: Tape, x: Tensor, widths: Sequence[float]) -> tuple[Tensor, ...]:
    """Parts of the last axis, without a kernel; backward their gradients are joined by one copy."""
    size = x.elements * tape.itemsize
    joined = tape.record("split", "view", (x,), x.shape, [HOST], [movement(size, size)])
    return tuple(_piece(tape, joined, width, index) for index, width in enumerate(widths))


def _piece(tape: Tape, x: Tensor, width: float, index: int) -> Tensor:
    """One output of a split: the same node for its readers, so that no sum of gradients is counted."""
    source = Tensor(x.node, x.shape, gradient=False)
    return tape.record(f"part{index}", "view", (source,), (*x.shape[:-1], width), [HOST], gradient=x.gradient)


def contiguous(tape: Tape, x: Tensor, *shape: float, name: str = "contiguous") -> Tensor:
    """A copy in the order of its axes, in another shape if one is given; the gradient passes as a view."""
    size = x.elements * tape.itemsize
    return tape.record(name, "copy", (x,), shape or x.shape, [movement(size, size)], [HOST])


def joined(tape: Tape, parts: Sequence[Tensor], shape: tuple[float, ...], name: str = "cat") -> Tensor:
    """One copy of several tensors; backward their parts are views."""
    size = math.prod(shape) * tape.itemsize
    return tape.record(name, "copy", tuple(parts), shape, [movement(size, size)], [HOST])


def filled(tape: Tape, *shape: float, name: str = "full") -> Tensor:
    """A tensor made on the device from a number."""
    elements = math.prod(shape)
    return tape.record(name, "fill", (), shape, [stream("fill", 0, elements)], gradient=False)


# --- loss -------------------------------------------------------------------------------------------------------------


def cross_entropy(tape: Tape, scores: Tensor, name: str = "loss") -> Tensor:
    """Log-softmax of each row and the mean of what it gives the right class; backward zeros with one entry a row, and
    the gradient of the log-softmax, which reads them and the output."""
    n, rows, classes = scores.elements, scores.rows, scores.shape[-1]
    forward = [kernels.softmax(rows, classes), stream("nll", 2 * rows, 1, rows)]
    backward = [stream("fill", 0, n, rows), stream("nll", 2 * rows, rows, rows)]
    backward.append(stream("softmax gradient", 2 * n, n, rows))
    return tape.record(name, "loss", (scores,), (1,), forward, backward)
