"""Which kernels the backward pass of a NeuSight operation graph launches.

The rows name operations of the forward pass for it. Where PyTorch's derivative formulas (tools/autograd/
derivatives.yaml and the kernels it names, gradient mode off as in `loss.backward()`) launch others, these take their
place; they are those of `jaxperf.models.workloads.operations`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from jaxperf.io.op_graph_kernels import ITEMSIZE, MASK, Row, elements_of, forward_ops, stated
from jaxperf.models.graph import Op
from jaxperf.models.workloads.kernels import movement, stream

LEARNS = frozenset(("Linear", "EMBEDDING", "VECln"))  # kinds of nodes with parameters
SPLITS = frozenset(("split", "chunk", "unbind"))  # whose parts' gradients are joined by one copy, not summed
NUMBERS = frozenset("size getattr dim finfo dtype device numel".split())  # read a tensor's properties, not its values


def backward_ops(row: Row) -> tuple[Op, ...]:
    """The kernels of a node's own backward pass; gradients of views and of sums are passed on as they are."""
    if row.learned and row.stem in SPLITS and row.inputs:
        size = ITEMSIZE * elements_of(row.inputs[0])
        return (movement(size, size),)
    if row.backward:
        formula = FORMULAS.get(row.kind)
        return formula(row) if formula else _stated(row)
    unknown = [op for op in forward_ops(row) if row.learned and op.family == "memory" and op.note]
    return tuple(map(_returned, unknown))


def _stated(row: Row) -> tuple[Op, ...]:
    return tuple(op for entry in row.backward if entry[0] != "MEM" for op in stated(entry, ()))


def _returned(op: Op) -> Op:
    """Of an unknown function: dY and what was read, into the gradient of the latter."""
    read, written = op.shape["bytes_in"], op.shape["bytes_out"]
    return movement(read + written, read)


def _linear(row: Row) -> tuple[Op, ...]:
    """A product for each operand, and the bias's gradient: dY summed over its rows."""
    if not row.accumulate or len(row.accumulate) < 2:
        return _stated(row)
    return (*_stated(row), stream("bias gradient", elements_of(row.output), row.output[-1], row.output[-1]))


def _operands(row: Row) -> tuple[Op, ...]:
    """One kernel for each tensor operand: dY with the other operand, or with a number."""
    tensors = sum(elements_of(shape) > 1.0 for shape in row.inputs)
    if tensors != 1:
        return _stated(row)
    n = elements_of(row.output)
    return (stream(row.kind.removeprefix("VEC").removesuffix("u") + "u", n, n, _rows(row)),)


def _pointwise(row: Row) -> tuple[Op, ...]:
    """One kernel that reads dY and the saved input or output."""
    n = elements_of(row.output)
    return (stream(row.kind.removeprefix("VEC"), 2.0 * n, n, _rows(row)),)


def _softmax(row: Row) -> tuple[Op, ...]:
    """The product of dY and y, and a kernel that reads it and y once more (aten/src/ATen/native/cuda/SoftMax.cu)."""
    n, rows = elements_of(row.output), _rows(row)
    return stream("mul", 2.0 * n, n, rows), stream("softmax gradient", 2.0 * n, n, rows)


def _norm(row: Row) -> tuple[Op, ...]:
    """dX from x and dY, and the reduction of both for weight and bias."""
    n, columns = elements_of(row.output), row.output[-1]
    return stream("norm gradient", 2.0 * n, n, _rows(row)), stream(
        "norm weight gradient", 2.0 * n, 2.0 * columns, columns
    )


def _dropout(row: Row) -> tuple[Op, ...]:
    n = elements_of(row.output)
    return (stream("dropout", (1.0 + MASK) * n, n, _rows(row)),)


def _chosen(row: Row) -> tuple[Op, ...]:
    """dY where the mask says so, else 0."""
    n = elements_of(row.output)
    return (stream("where", (1.0 + MASK) * n, n, _rows(row)),)


def _table(row: Row) -> tuple[Op, ...]:
    """The table's gradient is filled with zeros, and the rows of dY are added to it."""
    (table, *_) = (sizes[0] for word, sizes in row.backward if word == "MEM")
    looked = ITEMSIZE * elements_of(row.output)
    return movement(0.0, ITEMSIZE * elements_of(table)), movement(2.0 * looked, looked)


FORMULAS: Mapping[str, Callable[[Row], tuple[Op, ...]]] = MappingProxyType(
    {
        "Linear": _linear,
        **dict.fromkeys(("VECmul", "VECmulu", "VECdiv", "VECdivu"), _operands),
        **dict.fromkeys(("VECtanh", "VECgelu", "VECrelu"), _pointwise),
        "VECsoftmax": _softmax,
        "VECln": _norm,
        "dropout": _dropout,
        "where": _chosen,
        "EMBEDDING": _table,
    }
)


def _rows(row: Row) -> float:
    return elements_of(row.output) / row.output[-1]


def learned(rows: Sequence[Row], before: Sequence[Sequence[str]]) -> frozenset[str]:
    """Names of the nodes whose output has a gradient: those with parameters, and what is computed from it; none in a
    graph without a backward pass."""
    found: set[str] = set()
    for row, names in zip(rows, before, strict=True):
        value = row.stem not in NUMBERS and (elements_of(row.output) > 1.0 or row.stem in SPLITS)
        if value and (row.kind in LEARNS or not found.isdisjoint(names)):
            found.add(row.name)
    return frozenset(found) if any(row.backward for row in rows) else frozenset()


def gradient_sums(
    rows: Sequence[Row], before: Sequence[Sequence[str]], repeats: Sequence[float]
) -> Mapping[str, tuple[Op, ...]]:
    """By node, the additions of the gradients that come back from all who read its output: one for each after the
    first. What the one layer of a file reads from outside stands for the input of each of its repetitions."""
    times = {row.name: each for row, each in zip(rows, repeats, strict=True) if row.learned}
    readers: Counter[tuple[str, float]] = Counter()
    for row, names in zip(rows, before, strict=True):
        if row.learned:
            readers.update((name, times[row.name]) for name in names if name in times)
    sums: dict[str, float] = defaultdict(float)
    for (name, each), count in readers.items():
        sums[name] += (count - 1) * max(each / times[name], 1.0)
    summed = [row for row in rows if sums.get(row.name) and row.stem not in SPLITS]
    return {row.name: (dataclasses.replace(_sum(row), count=sums[row.name]),) for row in summed}


def _sum(row: Row) -> Op:
    n = elements_of(row.output)
    return stream("sum", 2.0 * n, n, _rows(row))
