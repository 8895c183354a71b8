"""Rows of Gemmini mappings as points of `jaxperf.loopnest.gemmini`, with the RTL's cycles where they are stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hwspecs.errors import InputError
from jaxperf.io.timeloop.gemmini import LEVELS, parse_nest
from jaxperf.io.timeloop.tables import read_rows
from jaxperf.loopnest.gemmini import Tiling

CYCLES = "target.gemmini_cycle"
TIMELOOP = "target.cycle"
SPLIT, AMBIGUOUS = "split", "train"  # rows of which DOSA's files do not say what hardware they ran on


@dataclass(frozen=True)
class RtlRows:
    """`tilings`: leaves [rows]; `problems`: the layer of each row; `measured` [rows] [cycle]: of the RTL; `timeloop`
    [rows] [cycle]: as the table states it, NaN where it does not."""

    tilings: Tiling
    problems: tuple[tuple[float, ...], ...]
    measured: np.ndarray
    timeloop: np.ndarray


def tiling_of(row: Mapping[str, Any]) -> Tiling:
    """A row's tiles. Raises `InputError` naming the column."""
    bounds, coefficients, factors = parse_nest(dict(row))
    tiles = np.asarray(factors.temporal[len(LEVELS) - 1], float)  # the loops of the DRAM, outermost
    fields: list[Any] = [np.asarray(bounds, float) / tiles, tiles, np.asarray(coefficients[1:3], float), _mesh(row)]
    return Tiling(*fields)


def _mesh(row: Mapping[str, Any]) -> np.ndarray:
    mesh = row.get("arch.meshX")
    if isinstance(mesh, bool) or not isinstance(mesh, int | float) or not mesh >= 1.0:
        raise InputError(f"arch.meshX is {mesh!r}; it must be the rows of the array, at least 1.")
    return np.asarray(mesh, float)


def stacked(tilings: Sequence[Tiling]) -> Tiling:
    """Points of one table along a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *tilings)


def read_rtl(path: str | Path) -> RtlRows:
    """The distinct mappings of a table whose cycles the RTL gave, without those of ambiguous hardware.

    **Raises:** `InputError` for a file that cannot be read, or that has no such row.
    """
    kept: dict[Any, tuple[Tiling, dict[str, Any]]] = {}
    for place, row in enumerate(read_rows(Path(path))):
        if row.get(SPLIT) == AMBIGUOUS or not _stated(row.get(CYCLES)):
            continue
        try:
            tiling = tiling_of(row)
        except InputError as error:
            raise InputError(f"{path}: row {place}: {error}") from None
        key = tuple(value for name, value in sorted(row.items()) if name != SPLIT)
        kept.setdefault(key, (tiling, row))
    if not kept:
        raise InputError(f"{path} has no row with {CYCLES} that says what hardware it ran on.")
    tilings, rows = zip(*kept.values(), strict=True)
    problems = tuple((*(tiling.tile * tiling.tiles).tolist(), *tiling.strides.tolist()) for tiling in tilings)
    measured = np.array([float(row[CYCLES]) for row in rows])
    timeloop = np.array([float(row[TIMELOOP]) if _stated(row.get(TIMELOOP)) else np.nan for row in rows])
    return RtlRows(stacked(tilings), problems, measured, timeloop)


def _stated(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < np.inf
