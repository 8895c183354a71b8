"""Read an operation graph as NeuSight writes it: a CSV of nodes with their kernels, shapes and edges.

Columns Name, OpName, FwOps, BwOps, AccOps, Prev, Next, InputShapes, OutputShape; lists and sets are Python literals.
Such a file often holds one layer of a model that repeats it: then `layers` says how often. The layer reaches from the
first to the last node named after layer 0, and over the residual sum that follows.
"""

from __future__ import annotations

import ast
import csv
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.op_graph_gradients import backward_ops, gradient_sums, learned
from jaxperf.io.op_graph_kernels import ITEMSIZE, TRANSPOSING, Row, accumulate_ops, forward_ops
from jaxperf.models.graph import Graph, Node, Op

COLUMNS = ("Name", "OpName", "FwOps", "BwOps", "AccOps", "Prev", "InputShapes", "OutputShape")
_LAYER = re.compile(r"(?:^|_)(?:h|layers?|block)_(\d+)_")
LARGEST = 2.0**53  # a size above is no count of elements
_NUMBER = re.compile(r"_\d+$")
_AFTER_LAYER = ("misc", "dropout", "VECadd")  # kinds that may stand between a layer's last module and its residual sum


def read_op_graph(path: str | Path, layers: int | None = None) -> Graph:
    """The graph of a file.

    **Arguments:** `layers`: how many layers the model has, where the file holds one of them.
    **Raises:** `InputError` naming file and line for a file that cannot be read, a missing column, a row that is not
    understood, and what `Graph` refuses; and where one layer is there and `layers` is not given.
    """
    read = [_row(path, line, record) for line, record in _records(path)]
    if not read:
        raise InputError(f"{path} has no nodes.")
    before = [names for _, names in read]
    rows = _marked([row for row, _ in read], before)
    inside = _layer_nodes(rows)
    if inside and layers is None:
        raise InputError(f"{path} holds one layer of its model; the number of layers of the model is needed.")
    repeats = [float(layers or 1) if position in inside else 1.0 for position in range(len(rows))]
    sums = gradient_sums(rows, before, repeats)
    nodes = tuple(
        _node(row, names, times, sums.get(row.name, ()))
        for row, names, times in zip(rows, before, repeats, strict=True)
    )
    try:
        return Graph(Path(path).stem, nodes)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _records(path: str | Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            for name in COLUMNS:
                if name not in names:
                    raise InputError(f"{path} has no column '{name}'.{did_you_mean(name, names)}")
            return [(reader.line_num, record) for record in reader]
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"'{path}' is not a CSV of operations ({error}).") from None


def _row(path: str | Path, line: int, record: Mapping[str, str]) -> tuple[Row, tuple[str, ...]]:
    """The node of a line and the names of those it reads."""
    found: dict[str, Any] = {}
    for name in COLUMNS[2:]:
        text = (record[name] or "").strip()
        try:
            found[name] = set() if text == "set()" else ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise InputError(f"{path}, line {line}, column '{name}': {text[:60]!r} is not a Python literal.") from None
    name, kind = record["Name"], record["OpName"]
    try:
        row = Row(
            name=name,
            stem=_NUMBER.sub("", name),
            kind=kind,
            forward=[_entry(entry) for entry in found["FwOps"]],
            backward=[_entry(entry) for entry in found["BwOps"]],
            accumulate=[_entry(entry) for entry in found["AccOps"]],
            inputs=tuple(_shape(shape) for shape in found["InputShapes"]),
            output=_shape(found["OutputShape"]),
            transposed=False,
        )
        _kernels(row)
        return row, tuple(sorted(_name(each) for each in found["Prev"]))
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise InputError(f"{path}, line {line}: node '{name}' is not understood ({error}).") from None


def _entry(entry: Any) -> tuple[str, tuple[Any, ...]]:
    word, sizes = entry
    if not isinstance(word, str):
        raise TypeError(f"an operation is called {word!r}")
    return word, tuple(sizes)


def _shape(shape: Any) -> tuple[float, ...]:
    """A shape; "(1,)" of a number of the host too."""
    sizes = tuple(float(size) for size in shape)
    if not all(0.0 <= size <= LARGEST for size in sizes):
        raise ValueError(f"a shape is {shape!r}")
    return sizes or (1.0,)


def _name(other: Any) -> str:
    if not isinstance(other, str):
        raise TypeError(f"it reads {other!r}, which is no name")
    return other


def _layer_nodes(rows: list[Row]) -> set[int]:
    """Positions of the nodes of layer 0, where no other layer is there; else none."""
    places = [
        (position, found.group(1).strip("0")) for position, row in enumerate(rows) if (found := _LAYER.search(row.name))
    ]
    if not places or any(later for _, later in places):
        return set()
    first, last = places[0][0], places[-1][0]
    position = last + 1
    while position < len(rows) and rows[position].kind in _AFTER_LAYER:
        if rows[position].kind == "VECadd":
            last = position
        position += 1
    return set(range(first, last + 1))


def _marked(rows: list[Row], before: list[tuple[str, ...]]) -> list[Row]:
    """The rows, told what their places in the graph mean."""
    transposed, gradient = _transposed(rows, before), learned(rows, before)
    return [replace(row, transposed=row.name in transposed, learned=row.name in gradient) for row in rows]


def _transposed(rows: list[Row], before: list[tuple[str, ...]]) -> set[str]:
    """Names of the nodes that read a transposed tensor."""
    stems = {row.name: row.stem for row in rows}
    return {
        row.name
        for row, names in zip(rows, before, strict=True)
        if any(stems.get(name, "").split("~")[-1] in TRANSPOSING for name in names)
    }


def _kernels(row: Row) -> dict[str, Any]:
    return {"forward": forward_ops(row), "backward": backward_ops(row), "accumulate": accumulate_ops(row)}


def _node(row: Row, before: tuple[str, ...], repeats: float, sums: tuple[Op, ...]) -> Node:
    """`sums`: of the gradients of its output, before its own backward pass."""
    kernels = _kernels(row)
    placeholder = not row.inputs and not before
    return Node(
        row.name,
        "input" if placeholder else row.kind,
        before=before,
        output_bytes=ITEMSIZE * math.prod(row.output),
        repeats=repeats,
        **{**kernels, "backward": sums + kernels["backward"]},
    )
