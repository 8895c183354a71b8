"""What a search keeps of the layouts it evaluates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxperf.sweeps.pareto import non_dominated
from jaxperf.training.layout_checks import TrainingReason
from jaxperf.training.search.space import GROUP_FIELDS, Columns


@dataclass
class Found:
    """What a search has found so far.

    `layouts`, `metrics`: columns of the best layout of each split that has one, best first; `front`: columns and
    metrics of the layouts that no other beats in both time and memory; `saving`: of the best layouts with each way to
    save memory that was tried; `splits` there were, layouts `tried` and `feasible` [1]; `reasons`: how many splits and
    layouts failed for each `TrainingReason`; `least_memory` that any split needs, infinite where none was looked at
    [byte]; `savers` of memory that were tried; `interrupted`: whether the search was stopped.
    """

    layouts: Columns = field(default_factory=dict)
    metrics: Columns = field(default_factory=dict)
    front: Columns = field(default_factory=dict)
    saving: Columns = field(default_factory=dict)
    splits: int = 0
    tried: int = 0
    feasible: int = 0
    reasons: Counter[TrainingReason] = field(default_factory=Counter)
    least_memory: float = np.inf
    savers: Sequence[str] = ()
    interrupted: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.layouts.values()), ()))


def append(kept: Columns, columns: Columns, rows: np.ndarray) -> None:
    """Add these rows of some columns to others."""
    for name, values in columns.items():
        kept[name] = np.concatenate([kept[name], values[rows]]) if name in kept else values[rows]


def trim(front: Columns) -> None:
    """Drop what a later chunk beats, and equals: of layouts with the same time and memory one is enough."""
    alive = np.flatnonzero(non_dominated([front["time"], front["memory.total"]]))
    _, first = np.unique(np.stack([front["time"][alive], front["memory.total"][alive]]), axis=1, return_index=True)
    for name, values in front.items():
        front[name] = values[alive[np.sort(first)]]


def best_first(found: Found, score: np.ndarray) -> Found:
    """Best first; of splits that differ in the micro-batch alone the best one."""
    if not len(found):
        return found
    chosen = best_of_groups(found.layouts, score)
    found.layouts = {name: values[chosen] for name, values in found.layouts.items()}
    found.metrics = {name: values[chosen] for name, values in found.metrics.items()}
    return found


def best_of_groups(layouts: Columns, score: np.ndarray) -> np.ndarray:
    """The row of the best layout of each group of devices, best first."""
    order = np.argsort(score, kind="stable")
    groups = np.stack([layouts[name][order] for name in GROUP_FIELDS])
    _, first = np.unique(groups, axis=1, return_index=True)
    return order[np.sort(first)]
