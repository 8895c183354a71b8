"""The measured time of a row: found by its column's name, which must state the unit."""

from __future__ import annotations

import re

import numpy as np

from calibration.datasets.columns import Sheet
from hwspecs.errors import InputError

SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_STEMS = "latency|time|duration|runtime|elapsed|measured"
_TIME = re.compile(rf"(?:(?:kernel|mean|median|avg|average|measured)_)?(?:{_STEMS})_?[(\[]?({'|'.join(SECONDS)})[)\]]?")
_UNSTATED = re.compile(rf"(?:(?:kernel|mean|median|avg|average|measured)_)?(?:{_STEMS})")
_AGREEMENT = 1e-3  # two columns of one time may differ by what printing a few digits loses


def is_time(name: str) -> bool:
    """Whether a column, by its standard name, is of measured times."""
    return bool(_TIME.fullmatch(name) or _UNSTATED.fullmatch(name))


def read_latency(sheet: Sheet, needed: bool = True) -> np.ndarray | None:
    """Measured times [s], NaN where a row has none; None without such a column. Bad values are noted.

    **Raises:** `InputError` for a column without a unit, and for two columns that contradict each other; where no time
    is `needed`, the rows are noted instead, and count as not measured.
    """
    units = {name: match[1] for name in sheet.columns if (match := _TIME.fullmatch(name))}
    if not units:
        unstated = next((name for name in sheet.columns if _UNSTATED.fullmatch(name)), None)
        if unstated:
            names = f"{unstated}_s, {unstated}_ms, {unstated}_us or {unstated}_ns"
            if needed:
                raise InputError(f"{sheet.path}: the column '{unstated}' does not state its unit; name it {names}.")
            rows = np.arange(sheet.rows) + sheet.start
            sheet.notes.alike(rows, unstated, f"does not state its unit and is not read; name it {names}.")
        return None
    times = {name: sheet.number(name) * SECONDS[unit] for name, unit in units.items()}
    first, *others = times
    unclear = np.zeros(sheet.rows, bool)
    for other in others:
        differ = _contradiction(times[first], times[other])
        if needed and len(differ):
            _refuse_contradiction(sheet, first, other, times, int(differ[0]))
        sheet.notes.alike(differ + sheet.start, first, f"contradicts '{other}'; neither is read.")
        unclear[differ] = True
    return np.where(unclear, np.nan, _positive(sheet, first, times[first]))


def _contradiction(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The rows in which two columns of one time differ; infinite or absent ones say nothing."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(np.abs(a - b) > _AGREEMENT * np.maximum(np.abs(a), np.abs(b)))


def _refuse_contradiction(sheet: Sheet, first: str, other: str, times: dict[str, np.ndarray], row: int) -> None:
    raise InputError(
        f"{sheet.path}: the columns '{first}' and '{other}' contradict each other, first in row "
        f"{row + sheet.start} ({times[first][row]:g} s and {times[other][row]:g} s); keep one of them."
    )


def _positive(sheet: Sheet, name: str, time: np.ndarray) -> np.ndarray:
    wrong = sheet.bad(name)
    sheet.notes.rows(wrong + sheet.start, name, lambda i: sheet.no_number(name, wrong[i]), False)
    absent = np.setdiff1d(np.flatnonzero(np.isnan(time)), wrong)
    sheet.notes.alike(absent + sheet.start, name, "no measured time.")
    bad = np.flatnonzero((time <= 0.0) | np.isinf(time))

    def message(position: int) -> str:
        return f"a measured time must be positive and finite, not {sheet.written(name, bad[position])}."

    sheet.notes.rows(bad + sheet.start, name, message, False)
    return np.where((time > 0.0) & np.isfinite(time), time, np.nan)
