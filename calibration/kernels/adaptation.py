"""What an adaptation did: the rows of each device that a family learned from, how far off it is on them, and how far
where it did not learn from a row's shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.datasets.schema import KernelTable, Read
from calibration.kernels.adapt import rows_of_adaptation
from calibration.kernels.fit import sample_all
from calibration.kernels.local import left_out
from calibration.kernels.parameters import Parameters
from calibration.kernels.predict import predict_table

MOST_SCORED = 2000  # rows of a device in a file: as many as tell a median error of 5 % to a fifth of a percent


@dataclass(frozen=True)
class Adaptation:
    """One device and family: its software, rows learned from, and the median of |predicted / measured - 1| on these
    very rows, by the parameters before and after [1]; NaN where these predict none of them. `left_out`: that of each
    row as it is predicted without the rows of its shape, those of an earlier adaptation included [1]."""

    family: str
    device: str
    software: tuple[str, ...]
    rows: int
    before: float
    after: float
    left_out: float


@dataclass(frozen=True)
class FileUsed:
    """How many of a file's rows were learned from."""

    path: str
    rows: int
    used: int


def adaptations(
    before: Parameters, after: Parameters, reads: Sequence[Read], directories: Sequence[str] = ()
) -> tuple[list[Adaptation], list[FileUsed]]:
    """What `adapt` made of the files: a row a family and device, and a row a file."""
    tables: dict[tuple[str, str], list[KernelTable]] = {}
    used: Counter[str] = Counter()
    for read, family, data in rows_of_adaptation(before, reads, directories):
        used[read.path] += len(data.table)
        devices = data.table.device.astype(str)
        for device in np.unique(devices).tolist():
            tables.setdefault((family, device), []).append(data.table.take(np.flatnonzero(devices == device)))
    found = [
        Adaptation(
            family,
            device,
            tuple(sorted({name for table in own for name in _software(table)})),
            sum(map(len, own)),
            _error(before, own, directories),
            _error(after, own, directories),
            float(np.median(np.abs(np.expm1(-left_out(after.families[family], device))))),
        )
        for (family, device), own in sorted(tables.items())
    ]
    return found, [FileUsed(read.path, read.rows, used[read.path]) for read in reads]


def _software(table: KernelTable) -> set[str]:
    """Framework, version and kernel of the rows, as far as they state them."""
    columns = (table.framework.astype(str), table.version.astype(str), table.kernel.astype(str))
    return {" ".join(filter(None, words)) or "unstated" for words in zip(*columns, strict=True)}


def _error(parameters: Parameters, tables: Sequence[KernelTable], directories: Sequence[str]) -> float:
    errors = np.concatenate([_errors(parameters, table, directories) for table in tables])
    known = errors[np.isfinite(errors)]
    return float(np.median(known)) if len(known) else float("nan")


def _errors(parameters: Parameters, table: KernelTable, directories: Sequence[str]) -> np.ndarray:
    some = table.take(sample_all(len(table), MOST_SCORED, 0))
    predicted = 1e-6 * predict_table(some, parameters, directories)["predicted_us"]
    return np.abs(predicted / some.measured - 1.0)
