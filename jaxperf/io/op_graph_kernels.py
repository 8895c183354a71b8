"""Which kernels a node of a NeuSight operation graph launches, from what its row states and its tensors' shapes.

Those of the backward pass are in `jaxperf.io.op_graph_gradients`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxperf.models.graph import Op
from jaxperf.models.workloads.kernels import stream

Shape = tuple[float, ...]
ITEMSIZE = 4.0  # these graphs are fp32 throughout [byte]
# Functions that return a view or a number: nothing is launched.
VIEWS = frozenset(
    "size getattr getitem view permute transpose unsqueeze squeeze expand split chunk finfo dim type type_as to float "
    "dtype device contiguous_view output assert detach numel".split()
)
COPIES_TRANSPOSED = frozenset(("reshape", "contiguous"))  # copy where they read a transposed tensor
TRANSPOSING = frozenset(("transpose", "permute"))
CREATIONS = frozenset("ones zeros full arange tensor empty ones_like zeros_like full_like".split())
TABLES = re.compile(r"embed|wpe$|wte$")  # modules that look rows up
DROPOUT = re.compile(r"dropout|_drop$")
MASK = 1.0 / ITEMSIZE  # of an element, that its mask of one byte takes
LEAST_ELEMENTS = 2.0  # a result of one element is a number of the host
TWO_OPERANDS = ("add", "sub", "mul", "div", "pow")
ROW_WISE = {"softmax": "softmax", "ln": "norm"}


@dataclass(frozen=True)
class Row:
    """One node as written: `stem` is its name without the number; `inputs`, `output`: shapes [1]; `transposed`: whether
    it reads a transposed tensor; `learned`: whether its output has a gradient."""

    name: str
    stem: str
    kind: str
    forward: Sequence[Any]
    backward: Sequence[Any]
    accumulate: Sequence[Any]
    inputs: tuple[Shape, ...]
    output: Shape
    transposed: bool
    learned: bool = False


def forward_ops(row: Row) -> tuple[Op, ...]:
    """The kernels of the forward pass."""
    if row.kind == "fused":
        return _fused(row)
    if row.kind == "EMBEDDING" or (row.kind == "misc" and TABLES.search(row.stem) and row.inputs):
        return (_lookup(row.output),)
    if row.kind == "getitem" and row.stem == "getitem":
        return _gathered(row)
    if row.kind == "dropout":
        n = elements_of(row.output)
        return (stream("dropout", n, (1.0 + MASK) * n, n / row.output[-1]),)
    if row.kind == "contiguous":
        return (_moved(row.inputs, row.output),) if row.transposed else ()
    computed = tuple(op for entry in row.forward for op in stated(entry, row.inputs))
    return computed or _unstated(row)


def accumulate_ops(row: Row) -> tuple[Op, ...]:
    """The kernels that add a gradient to what is there."""
    return tuple(op for entry in row.accumulate for op in stated(entry, ()))


def stated(entry: Sequence[Any], inputs: tuple[Shape, ...]) -> tuple[Op, ...]:
    """One entry such as ['Linear', (8192, 1024, 4096)]; `inputs` of the node tell a scalar operand from a tensor."""
    word, sizes = entry
    if word == "Linear":
        m, k, n = sizes  # (M x N) . (N x K): the second is the reduction
        return (Op("gemm", {"m": m, "n": n, "k": k}, note="linear"),)
    if word == "BMM":
        batch, m, k, n = sizes
        return (Op("bmm", {"batch": batch, "m": m, "n": n, "k": k}, note="bmm"),)
    if word == "MEM":
        shapes = [tuple(float(size) for size in shape) for shape in sizes]
        return (_moved(tuple(shapes[:-1]), shapes[-1]),) if elements_of(shapes[-1]) >= LEAST_ELEMENTS else ()
    if word.startswith("VEC"):
        rows, columns = (float(size) for size in sizes)
        return (_vector(word[3:], rows, columns, inputs),)
    return ()  # a collective: the distributed layer's


def _vector(word: str, rows: float, columns: float, inputs: tuple[Shape, ...]) -> Op:
    """A row-wise or an elementwise operation on `rows` x `columns`; a small second operand is a scalar's or a
    broadcast one's."""
    if word in ROW_WISE:
        return Op(ROW_WISE[word], {"rows": rows, "columns": columns}, note=word)
    elements = rows * columns
    read = elements * (2.0 if word in TWO_OPERANDS else 1.0)
    known = sum(elements_of(shape) for shape in inputs)
    if known and known < read:
        read = max(known, elements)
        word = word + "u" if word in TWO_OPERANDS and known < 1.1 * elements else word
    return Op("elementwise", {"elements_in": read, "elements_out": elements, "rows": rows}, note=word)


def _fused(row: Row) -> tuple[Op, ...]:
    """One kernel that reads each input once and writes the output once, where any of the parts computes."""
    if not any(word != "MEM" or elements_of(sizes[-1]) >= LEAST_ELEMENTS for word, sizes in row.forward):
        return ()
    read = max(sum(elements_of(shape) for shape in row.inputs), 1.0)
    written = elements_of(row.output)
    if written < LEAST_ELEMENTS:
        return ()
    rows = written / row.output[-1]
    return (Op("elementwise", {"elements_in": read, "elements_out": written, "rows": rows}, note="fused"),)


def _gathered(row: Row) -> tuple[Op, ...]:
    """Indexing by a mask copies the rows it chooses; a slice is a view."""
    by_mask = sum(elements_of(shape) > 1.0 for shape in row.inputs) > 1 and elements_of(row.output) >= LEAST_ELEMENTS
    return (_moved((row.output,), row.output),) if by_mask else ()


def _unstated(row: Row) -> tuple[Op, ...]:
    """The kernel of a row that states none: of an unknown function the movement of its tensors, under its name."""
    if not row.inputs and row.stem not in CREATIONS:
        return ()  # an input or a parameter
    if elements_of(row.output) < LEAST_ELEMENTS or row.stem in VIEWS or DROPOUT.search(row.stem):
        return ()
    if row.stem in CREATIONS:
        return (_moved((), row.output),)
    if row.stem in COPIES_TRANSPOSED:
        return (_moved(row.inputs, row.output),) if row.transposed else ()
    return (_moved(row.inputs, row.output, row.stem),)


def _lookup(output: Shape) -> Op:
    return Op("embedding", {"rows": elements_of(output) / output[-1], "columns": output[-1]}, note="embedding")


def _moved(inputs: tuple[Shape, ...], output: Shape, note: str = "") -> Op:
    read = ITEMSIZE * sum(elements_of(shape) for shape in inputs if elements_of(shape) > 1.0)
    return Op("memory", {"bytes_in": read, "bytes_out": ITEMSIZE * elements_of(output)}, note=note)


def elements_of(shape: Sequence[float]) -> float:
    return float(math.prod(shape))
