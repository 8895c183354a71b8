"""Reductions of a sweep on the fly: the best k points, the Pareto front, and how many rows have each value.

A reducer is a frozen description; its state is a `Selection`, the rows kept so far. Rows may arrive in any order and
in any pieces: the result depends only on the set of rows seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Integer, Shaped

from hwspecs.errors import InputError, did_you_mean
from jaxperf.sweeps.pareto import check_directions, minimization_key, non_dominated, not_dominated_by

Columns = Mapping[str, Shaped[np.ndarray, " rows"]]


@dataclass(frozen=True)
class Selection:
    """Rows kept by a reducer, with all their metrics.

    **Arguments:** `indices`: flat rows of the product, in C order of its axes. `metrics`: name -> value at each row.
    """

    indices: Integer[np.ndarray, " kept"]
    metrics: Mapping[str, Shaped[np.ndarray, " kept"]]

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, order: Integer[np.ndarray, " taken"] | Shaped[np.ndarray, " kept"]) -> Selection:
        return Selection(self.indices[order], {name: values[order] for name, values in self.metrics.items()})


@runtime_checkable
class Reducer(Protocol):
    """What the engine asks of a reduction."""

    def check(self, metrics: Sequence[str]) -> None:
        """**Raises:** `InputError` if the sweep lacks a metric this reducer needs."""

    def update(self, kept: Selection | None, start: int, columns: Columns) -> Selection:
        """The selection after also seeing consecutive rows, the first of which is row `start`.

        **Arguments:** `kept`: the selection so far; `None` at first. `columns`: every metric of the new rows, flat.
        """
        ...


@dataclass(frozen=True)
class TopK:
    """The `k` rows with the largest (or smallest) `metric`, best first; of equals, the earlier row.

    NaN never enters, nor do rows where the metric named by `where` is false, zero or NaN, or that named by `unless` is
    anything but zero.

    **Raises:** `InputError` if `k` is below one.
    """

    metric: str
    k: int
    largest: bool = True
    where: str | None = None
    unless: str | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"The number of best points must be at least one, not {self.k}.")

    def check(self, metrics: Sequence[str]) -> None:
        _require_metrics([self.metric, self.where, self.unless], metrics)

    def update(self, kept: Selection | None, start: int, columns: Columns) -> Selection:
        values = columns[self.metric]
        if kept is not None and len(kept) == self.k:  # nearly every row of a long sweep ends here
            worst = kept.metrics[self.metric][-1]
            candidates = values >= worst if self.largest else values <= worst
        else:
            candidates = values == values
        found = _append(kept, start, columns, _allowed(candidates, self.where, self.unless, columns))
        return self._best(found)

    def _best(self, found: Selection) -> Selection:
        key = minimization_key(found.metrics[self.metric], "max" if self.largest else "min")
        if len(key) > self.k:
            limit = np.partition(key, self.k - 1)[self.k - 1]
            found = found.take(np.flatnonzero(key <= limit))
            key = key[key <= limit]
        return found.take(np.lexsort((found.indices, key))[: self.k])


@dataclass(frozen=True)
class Pareto:
    """The rows that no other row beats: at least as good in every objective and better in one.

    Rows that tie in every objective are all kept. NaN in an objective never enters, nor do rows where the metric
    named by `where` is false, zero or NaN, or that named by `unless` is anything but zero.

    **Arguments:** `objectives`: metric -> "min" or "max".

    **Raises:** `InputError` for no objectives or another direction.
    """

    objectives: Mapping[str, Literal["min", "max"]]
    where: str | None = None
    unless: str | None = None

    def __post_init__(self) -> None:
        check_directions(list(self.objectives.values()))

    def check(self, metrics: Sequence[str]) -> None:
        _require_metrics([*self.objectives, self.where, self.unless], metrics)

    def update(self, kept: Selection | None, start: int, columns: Columns) -> Selection:
        keys = self._keys(columns)
        candidates = np.logical_and.reduce([key == key for key in keys])  # not NaN
        rows = _allowed(candidates, self.where, self.unless, columns)
        if kept is not None and len(kept):
            if len(rows) < len(keys[0]):
                keys = [key[rows] for key in keys]
            rows = rows[not_dominated_by(self._keys(kept.metrics), keys)]
        found = _append(kept, start, columns, rows)
        return found.take(np.flatnonzero(non_dominated(self._keys(found.metrics))))

    def _keys(self, columns: Columns) -> list[np.ndarray]:
        return [minimization_key(columns[name], direction) for name, direction in self.objectives.items()]


COUNTED = "rows"  # what `Count` adds to the metrics of its selection


@dataclass(frozen=True)
class Count:
    """How many rows have each value of `metric`, small whole numbers: the first row of each, in the order of the
    values, with the metric itself and `COUNTED`."""

    metric: str

    def check(self, metrics: Sequence[str]) -> None:
        _require_metrics([self.metric], metrics)

    def update(self, kept: Selection | None, start: int, columns: Columns) -> Selection:
        values = columns[self.metric]
        counts = np.bincount(values)
        found = {} if kept is None else dict(zip(kept.metrics[self.metric].tolist(), _pairs(kept), strict=True))
        for value in np.flatnonzero(counts).tolist():
            first, rows = found.get(value, (start + len(values), 0))
            found[value] = (min(first, start + int(np.argmax(values == value))), rows + int(counts[value]))
        firsts, rows = np.array([found[value] for value in sorted(found)], np.int64).reshape(-1, 2).T
        return Selection(firsts, {self.metric: np.array(sorted(found), values.dtype), COUNTED: rows})


def _pairs(counted: Selection) -> list[tuple[int, int]]:
    return list(zip(counted.indices.tolist(), counted.metrics[COUNTED].tolist(), strict=True))


def _allowed(
    candidates: Shaped[np.ndarray, " rows"], where: str | None, unless: str | None, columns: Columns
) -> Integer[np.ndarray, " allowed"]:
    if where is not None:
        candidates = candidates & (columns[where] > 0)
    if unless is not None:
        candidates = candidates & (columns[unless] == 0)
    return np.flatnonzero(candidates)


def _append(kept: Selection | None, start: int, columns: Columns, rows: Integer[np.ndarray, " new"]) -> Selection:
    new = Selection(rows + start, {name: values[rows] for name, values in columns.items()})
    if kept is None:
        return new
    metrics = {name: np.concatenate([values, new.metrics[name]]) for name, values in kept.metrics.items()}
    return Selection(np.concatenate([kept.indices, new.indices]), metrics)


def _require_metrics(needed: Sequence[str | None], metrics: Sequence[str]) -> None:
    for name in needed:
        if name is not None and name not in metrics:
            raise InputError(
                f"The sweep has no metric '{name}' (it has {', '.join(metrics)})." + did_you_mean(name, metrics)
            )


def update_all(
    reducers: Sequence[Reducer], kept: Sequence[Selection | None], start: int, columns: Columns
) -> list[Selection | None]:
    """Every reducer's selection after also seeing the rows from `start`."""
    return [reducer.update(one, start, columns) for reducer, one in zip(reducers, kept, strict=True)]
