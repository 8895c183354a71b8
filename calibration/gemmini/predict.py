"""Rows of Gemmini mappings with the cycles of the RTL beside those of Timeloop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibration.gemmini.fit import cycles_of
from calibration.gemmini.parameters import GemminiParameters
from calibration.gemmini.rows import stacked, tiling_of
from hwspecs.errors import InputError

COLUMNS = ("predicted_rtl_cycles", "predicted_rtl_cycles_lower", "predicted_rtl_cycles_upper")


def rtl_columns(rows: Sequence[Mapping[str, Any]], parameters: GemminiParameters) -> list[dict[str, float | None]]:
    """`COLUMNS` of every row, in order: cycles with a 90 % interval; nothing where the row is no mapping."""
    tilings = {place: tiling for place, row in enumerate(rows) if (tiling := _tiling(row)) is not None}
    cycles: dict[int, float] = {}
    if tilings:
        found = np.asarray(cycles_of(parameters.pace, stacked(list(tilings.values()))))
        cycles = dict(zip(tilings, map(float, found), strict=True))
    apart = np.exp(parameters.width)
    ends = (1.0, 1.0 / apart, apart)
    return [
        {name: cycles[place] * end if place in cycles else None for name, end in zip(COLUMNS, ends, strict=True)}
        for place in range(len(rows))
    ]


def _tiling(row: Mapping[str, Any]) -> Any:
    try:
        return tiling_of(row)
    except InputError:
        return None  # the record of the loop nest says why
