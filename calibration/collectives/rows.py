"""The measured collectives of files as one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.datasets import format_of, read_nccl_log, read_table
from calibration.datasets.schema import KernelTable, Read
from calibration.datasets.text import Column, joined, repeated
from hwspecs.errors import InputError
from hwspecs.registry import Directory

FAMILY = "collective"
TEXT = ("op", "topology")
IDENTITY = ("device", "framework", "version", "kernel", "dtype", "cache")


def read_collectives(path: str | Path, directories: Sequence[Directory] = ()) -> Read:
    """A table of collectives, or the log of a run of nccl-tests.

    **Raises:** `InputError` for a file that cannot be read, or that holds no collective.
    """
    kind = format_of(path)
    read = read_nccl_log(path).read if kind == "nccl_log" else read_table(path, FAMILY, directories=directories)
    if read.table(FAMILY) is None:
        reason = f": {read.located(read.problems[0])}" if read.problems else "."
        raise InputError(f"{path} has no row that can be used{reason}")
    return read


def measured_collectives(paths: Sequence[str | Path]) -> KernelTable:
    """The collectives of files that state their times, one table. **Raises:** `InputError` where one has none."""
    tables = [measured_table(read_collectives(path), path) for path in paths]
    return tables[0] if len(tables) == 1 else _one_after_the_other(tables)


def measured_table(read: Read, path: str | Path) -> KernelTable:
    """The collectives of a file that was read. **Raises:** `InputError` where it states no times."""
    table = read.table(FAMILY)
    if table is None or table.latency is None:
        raise InputError(f"{path} has no measured times; name the column latency_us (or _s, _ms, _ns).")
    return table


def _one_after_the_other(tables: Sequence[KernelTable]) -> KernelTable:
    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(table, name) for table in tables])

    shapes = {name: np.concatenate([table.shape[name] for table in tables]) for name in tables[0].shape}
    text: dict[str, Column] = {
        name: joined([table.text.get(name, repeated("", len(table))) for table in tables]) for name in TEXT
    }
    return KernelTable(
        family=FAMILY,
        row=join("row"),
        **{name: joined([getattr(table, name) for table in tables]) for name in IDENTITY},
        shape=shapes,
        latency=np.concatenate([table.measured for table in tables]),
        flag=join("flag"),
        text=text,
    )
