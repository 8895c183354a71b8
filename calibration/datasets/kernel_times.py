"""What a profiler knows of kernels: names, launches and times. Shapes only where the profiler recorded them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np

from calibration.datasets.schema import KernelTable, Problem


@dataclass(frozen=True)
class KernelTimes:
    """Kernels by name, the longest in total first.

    `kernel` [K] names as the profiler prints them; `launches` [K]; `total` [K] [s]; `median` [K] [s] of one launch,
    NaN where the profiler does not tell it. `device` is a name of hwspecs, "" where unknown or where there are several.
    `tables`: matrix products whose operation recorded the sizes of its operands; empty where nothing did, since a
    kernel's name does not tell its shape. `problems`: what could not be read, by line or event.
    """

    kernel: np.ndarray
    launches: np.ndarray
    total: np.ndarray
    median: np.ndarray
    device: str
    tables: tuple[KernelTable, ...]
    problems: tuple[Problem, ...]
    path: str

    def __len__(self) -> int:
        return len(self.kernel)


def summarize(
    launches: Iterable[tuple[str, float]],
    device: str,
    tables: tuple[KernelTable, ...],
    problems: tuple[Problem, ...],
    path: str,
) -> KernelTimes:
    """Kernels by name from single launches: pairs of name and time [s]."""
    times: dict[str, list[float]] = {}
    for name, time in launches:
        times.setdefault(name, []).append(time)
    rows = [(name, len(each), sum(each), median(each)) for name, each in times.items()]
    return from_rows(rows, device, tables, problems, path)


def from_rows(
    rows: list[tuple[str, int, float, float]],
    device: str,
    tables: tuple[KernelTable, ...],
    problems: tuple[Problem, ...],
    path: str,
) -> KernelTimes:
    """Kernels from rows of name, launches, total and median time [s]."""
    rows = sorted(rows, key=lambda row: -row[2])
    names, launches, total, middle = ([row[i] for row in rows] for i in range(4))
    return KernelTimes(
        np.array(names, object),
        np.array(launches, np.int64),
        np.array(total, np.float64),
        np.array(middle, np.float64),
        device,
        tables,
        problems,
        path,
    )
