"""Which of a family's kernels share one model: those that the same units of a device compute.

A matrix product in fp32 runs on the vector units of most devices, and there its energy, its floor (eager tables) and
its efficiency have little to do with those of the matrix units; fitted together, each spoils the other's transfer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import as_text

VECTOR_FORMATS = ("fp32", "fp64")
ON_VECTOR_UNITS = {"gemm": "gemm_vector"}


def regimes(table: KernelTable) -> Iterator[tuple[str, np.ndarray]]:
    """The names of the models that a table's rows belong to, and the rows of each [M]."""
    vector = ON_VECTOR_UNITS.get(table.family)
    if vector is None:
        yield table.family, np.arange(len(table))
        return
    on_vector = as_text(table.dtype).among(VECTOR_FORMATS)
    for name, rows in ((table.family, ~on_vector), (vector, on_vector)):
        if rows.any():
            yield name, np.flatnonzero(rows)


def regime(table: KernelTable) -> str:
    """The model that all rows of a table belong to. Raises `ValueError` where that is not one."""
    (name,) = (name for name, _ in regimes(table))
    return name
