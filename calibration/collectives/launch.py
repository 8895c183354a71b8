"""What the host needs to launch a call, where that is longer than the kernel: t = max(kernel, launch).

No table says how its kernels were launched. Where the law spends most of its time on no byte, a launched one by one
takes the same for every number of ranks and every size, one out of a graph follows the law. How is a matter of the
software, so all devices of a stack tell it together; how long is one of the host, so each cell has its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from calibration.collectives.names import kernel_of, stack_of
from calibration.collectives.points import Points


def launch_times(
    points: Points, measured: np.ndarray, known: np.ndarray, told: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Time of the launch by cell, 0 where the kernel's own is seen [s].

    **Arguments:** `measured` [R] [s]; `known`: places of the rows to learn from; `told`: times of other cells, which
    say how their stacks are launched and are kept.
    """
    before = dict(told or {})
    usual = _medians(before, stack_of)
    for stack, cells in _small(points, known):
        times = {cell: _constant(measured[rows]) for cell, rows in cells.items()}
        one_by_one = usual[stack] > 0.0 if stack in usual else _is_constant(points, measured, cells)
        before |= times if one_by_one else dict.fromkeys(times, 0.0)
    return before


def launch_of(times: Mapping[str, float], points: Points) -> np.ndarray:
    """Time of each row's launch [R] [s]: its cell's, else the median of its stack on other hosts, else of its kernel in
    other versions, else 0."""
    stacks, kernels = _medians(times, stack_of), _medians(times, kernel_of)
    names = zip(*(points.names[level] for level in ("cell", "stack", "kernel")), strict=True)
    found = [times.get(cell, stacks.get(stack, kernels.get(kernel, 0.0))) for cell, stack, kernel in names]
    return np.array(found, float)[points.group]


def _small(points: Points, known: np.ndarray) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Each stack, and by cell its rows in which the law spends most of the time on no byte."""
    rows = known[(points.law.empty > 0.5 * points.law.time)[known] & ~points.is_exchange[known]]
    stack, cell = points.named("stack")[rows], points.named("cell")[rows]
    for name in np.unique(stack):
        own = stack == name
        yield str(name), {str(each): rows[own & (cell == each)] for each in np.unique(cell[own])}


def _is_constant(points: Points, measured: np.ndarray, cells: Mapping[str, np.ndarray]) -> bool:
    """Whether one time a cell is nearer to its rows than the law times a constant, where there are several numbers of
    ranks to tell."""
    nearer = 0.0
    for rows in cells.values():
        if len(np.unique(points.numbers["ranks"][rows])) > 1:
            own, over_law = measured[rows], measured[rows] / points.time[rows]
            nearer += np.abs(_constant(over_law) / over_law - 1.0).sum() - np.abs(_constant(own) / own - 1.0).sum()
    return nearer > 0.0


def _constant(values: np.ndarray) -> float:
    """c of the least sum of |c / v - 1|: the median weighted by 1 / v."""
    ordered = np.sort(values)
    weight = np.cumsum(1.0 / ordered)
    return float(ordered[np.searchsorted(weight, 0.5 * weight[-1])])


def _medians(times: Mapping[str, float], whose: Callable[[str], str]) -> dict[str, float]:
    """The median time of the cells that have a name in common."""
    found: dict[str, list[float]] = {}
    for cell, time in times.items():
        found.setdefault(whose(cell), []).append(time)
    return {name: float(np.median(each)) for name, each in found.items()}
