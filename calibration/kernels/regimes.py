"""Which of a family's kernels share one model: those that the same units of a device compute.

A matrix product in fp32 runs on the vector units of most devices, and there its energy, its floor (eager tables) and
its efficiency have little to do with those of the matrix units; fitted together, each spoils the other's transfer.
Batches of products were measured in fp32 alone, so that those of matrix units have no model; single products of these
units are nearer to them (27 to 31 % on an H200, where the model of batches in fp32 is at 340 %).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import as_text

VECTOR_FORMATS = ("fp32", "fp64")
# Family -> the models of its products on matrix units and on vector units.
BY_UNITS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"gemm": ("gemm", "gemm_vector"), "bmm": ("bmm_matrix", "bmm")}
)
INSTEAD: Mapping[str, str] = MappingProxyType({"bmm_matrix": "gemm"})  # model -> what stands in where it has none


def regimes(table: KernelTable) -> Iterator[tuple[str, np.ndarray]]:
    """The names of the models that a table's rows belong to, and the rows of each [M]."""
    if table.family not in BY_UNITS:
        yield table.family, np.arange(len(table))
        return
    matrix, vector = BY_UNITS[table.family]
    on_vector = as_text(table.dtype).among(VECTOR_FORMATS)
    for name, rows in ((matrix, ~on_vector), (vector, on_vector)):
        if rows.any():
            yield name, np.flatnonzero(rows)


def regime(table: KernelTable) -> str:
    """The model that all rows of a table belong to. Raises `ValueError` where that is not one."""
    (name,) = (name for name, _ in regimes(table))
    return name
