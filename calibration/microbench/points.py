"""Which kernels a run measures, in which order: every operation takes its turn, so that a short run has some of all."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets.schema import FAMILIES, KernelTable
from calibration.kernels.demand import POINTS
from calibration.kernels.inputs import prepare
from calibration.microbench.grid import draw
from calibration.microbench.operation import Operation, Sizes


@dataclass(frozen=True)
class Point:
    """One kernel to measure; `state`: where it finds its operands, "resident" (called again and again) or "cold"."""

    operation: Operation
    sizes: Sizes
    dtype: str
    state: str


def points(
    operations: Sequence[Operation],
    dtypes: Sequence[str],
    states: Sequence[str],
    device: str,
    count: int,
    between: tuple[float, float],
    seed: int,
    directories: Sequence[str | Path] = (),
) -> list[Point]:
    """`count` sizes an operation, the same for its formats and states.

    **Arguments:** `dtypes`: only these formats, if any; `between`: sizes whose roofline on `device` is shorter than the
    first or longer than the second are not drawn [s].
    """
    turns = []
    least, most = between

    def asked(operation: Operation, sizes: list[Sizes]) -> np.ndarray:
        times = shortest_times(operation, sizes, device, directories)
        return (least <= times) & (times <= most)

    for operation in operations:
        kept = [dtype for dtype in operation.dtypes if not dtypes or dtype in dtypes]
        for turn, sizes in enumerate(draw(operation, count, seed, functools.partial(asked, operation)) if kept else ()):
            turns += [(turn, Point(operation, sizes, dtype, state)) for dtype in kept for state in states]
    return [point for _, point in sorted(turns, key=lambda entry: entry[0])]


def shortest_times(
    operation: Operation, sizes: Sequence[Sizes], device: str, directories: Sequence[str | Path] = ()
) -> np.ndarray:
    """Roofline times in the operation's slowest format [s]; those of a collective are of its bytes alone."""
    if operation.family not in POINTS:
        import hwspecs

        moved = np.array([operation.shape(each)["bytes"] for each in sizes], np.float64)
        return moved / hwspecs.load(device, directories).memory_bandwidth.si
    times = [prepare(wanted(operation, sizes, dtype, device), directories).roofline for dtype in operation.dtypes]
    return np.nanmax(np.stack([*times, np.zeros(len(sizes))]), axis=0)


def wanted(operation: Operation, sizes: Sequence[Sizes], dtype: str, device: str) -> KernelTable:
    """The kernels as rows without a time."""
    rows = len(sizes)
    columns = [operation.shape(each) for each in sizes]

    def text(value: str) -> np.ndarray:
        return np.full(rows, value, dtype=object)

    def number(name: str, default: float | None) -> np.ndarray:
        return np.array([each.get(name, default) for each in columns], np.float64)

    words: dict[str, Any] = {"op": text(operation.op)}
    return KernelTable(
        family=operation.family,
        row=np.arange(rows),
        device=text(device),
        framework=text("jax"),
        version=text(""),
        kernel=text(operation.kernel),
        dtype=text(dtype),
        cache=text(""),
        shape={column.name: number(column.name, column.default) for column in FAMILIES[operation.family]},
        latency=None,
        flag=np.zeros(rows, np.int64),
        text=words | {name: text(value) for name, value in operation.text.items()},
    )
