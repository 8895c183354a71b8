"""A traced program before its kernels are known: steps on values of known shape.

Both front ends (`jaxperf.io.jaxpr_graph`, `jaxperf.io.onnx_graph`) write this form; `jaxperf.io.lowering` turns it into
a `Graph` of kernels.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxperf.models.graph import Op

FLOATING = ("fp", "bf", "tf", "complex")


class Kind(enum.Enum):
    """What a step is to the device."""

    PRODUCT = "product"  # a matrix product or a convolution: one kernel
    STREAM = "stream"  # elementwise work or a reduction: fuses with its neighbours
    VIEW = "view"  # another order, a part or a repetition of a value: no kernel where its reader can do it
    ALIAS = "alias"  # the same bytes under another shape: never a kernel
    KERNEL = "kernel"  # another memory-bound kernel of its own: gather, scatter, pooling, sort
    FREE = "free"  # no kernel: the edge of a loop
    COLLECTIVE = "collective"  # named, not timed
    UNKNOWN = "unknown"  # taken for the movement of its bytes, counted and named


@dataclass(frozen=True)
class Value:
    """An array: its shape, number format ("fp32", "int64", "bool") and bytes per element."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: float

    @property
    def size(self) -> int:
        """Elements [1]."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> float:
        """Size in memory [byte]."""
        return self.size * self.itemsize

    @property
    def is_floating(self) -> bool:
        """Whether its elements are floating-point numbers."""
        return self.dtype.startswith(FLOATING)


@dataclass(frozen=True)
class Step:
    """One primitive or operator, run `count` times.

    `flops` of one run [FLOP]; `ops`: its kernels where the kind does not tell them; `read`, `written`: bytes moved by
    one run where these are not all of its inputs and outputs [byte]; `scope`: the loops it stands in; `in_place`: its
    outputs take no memory of their own; `row_wise`: "norm" or "softmax" and the columns of a row, of an operator that
    is one by itself.
    """

    name: str
    operation: str
    kind: Kind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: float = 0.0
    ops: tuple[Op, ...] = ()
    read: float | None = None
    written: float | None = None
    scope: tuple[str, ...] = ()
    count: float = 1.0
    in_place: bool = False
    row_wise: tuple[str, float] | None = None


@dataclass(frozen=True)
class Program:
    """Steps in the order of their data, the values they name, and what a reader should know (`notes`).

    `inputs`, `parameters`, `outputs`: names of values; `parameters` are those that stay from one run to the next.
    """

    name: str
    steps: tuple[Step, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def bytes_of(self, names: Sequence[str]) -> float:
        """Bytes of some values, each counted once [byte]."""
        return sum(self.values[name].nbytes for name in dict.fromkeys(names))


def without_dead_steps(steps: Sequence[Step], outputs: Sequence[str]) -> tuple[Step, ...]:
    """The steps that some output depends on: compilers drop the others."""
    needed = set(outputs)
    kept = []
    for step in reversed(steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            kept.append(step)
    return tuple(reversed(kept))
