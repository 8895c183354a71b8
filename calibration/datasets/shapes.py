"""The shape of each row of a family: whole numbers in range; rows that break this are located and left out."""

from __future__ import annotations

import math

import numpy as np

from calibration.datasets.columns import Sheet
from calibration.datasets.families import find_column
from calibration.datasets.schema import FAMILIES, Column
from hwspecs.errors import InputError, did_you_mean

MOST = 2.0**53  # float64 holds every whole number up to here
# What can not exceed what in one row.
_AT_MOST = {"moe": (("topk", "experts"),), "mla_prefill": (("q_len", "kv_len"),)} | {
    family: (("kv_heads", "heads"),) for family in ("attention_prefill", "attention_decode", "attention_mixed")
}
# What is shared out evenly: the kernel of one rank has a whole number of experts.
_DIVIDES = {"moe": (("ep", "experts"),)}


def read_shape(sheet: Sheet, family: str, index: np.ndarray, alone: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The shape columns of the rows `index`, and a mask of those that are valid; the others are noted.

    **Raises:** `InputError` where a column is missing and the table holds no other family (`alone`).
    """
    shape: dict[str, np.ndarray] = {}
    good = np.ones(len(index), bool)
    for column in FAMILIES[family]:
        name = find_column(sheet, family, column.name)
        if name is None and column.default is None:
            _missing_column(sheet, family, column, index, alone)
            return {}, np.zeros(len(index), bool)
        values = np.full(len(index), column.default) if name is None else _stated(sheet, name, column, index)
        if name is not None and column.default is not None:
            values = _with_default(sheet, name, column.default, values, index)
        if name is not None:
            good &= _checked(sheet, name, column, values, index)
        shape[column.name] = values
    for lesser, greater in _AT_MOST.get(family, ()):
        good &= _ordered(sheet, lesser, greater, shape, index)
    for parts, whole in _DIVIDES.get(family, ()):
        good &= _even(sheet, parts, whole, shape, index)
    return shape, good


def _missing_column(sheet: Sheet, family: str, column: Column, index: np.ndarray, alone: bool) -> None:
    used = {name for known in FAMILIES[family] for name in (known.name, *known.other)}
    hint = did_you_mean(column.name, [name for name in sheet.columns if name not in used])
    message = f"the column '{column.name}' is missing, which {family} needs.{hint}"
    if alone:
        raise InputError(f"{sheet.path}: {message}")
    sheet.notes.alike(index + sheet.start, column.name, message, excluded=True)


def _stated(sheet: Sheet, name: str, column: Column, index: np.ndarray) -> np.ndarray:
    """A size by the column `name`, where its cell is empty by the next of the same meaning; one that says something
    else is not read, and noted."""
    values = sheet.number(name)[index]
    for other in (column.name, *column.other):
        if other == name or other not in sheet:
            continue
        beside = sheet.number(other)[index]
        differ = ~np.isnan(values) & ~np.isnan(beside) & (values != beside)
        sheet.notes.alike(index[differ] + sheet.start, other, f"is not read where '{name}' says something else.")
        values = np.where(_empty(sheet, name, index) & np.isnan(values), beside, values)
    return values


def _with_default(sheet: Sheet, name: str, default: float, values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The values with the default where cells are empty, which is noted where it is a size and not an absence."""
    empty = _empty(sheet, name, index) & np.isnan(values)
    if default > 0.0:
        sheet.notes.alike(index[empty] + sheet.start, name, f"no value: {default:g} taken.")
    return np.where(empty, default, values)


def _empty(sheet: Sheet, name: str, index: np.ndarray) -> np.ndarray:
    """Cells that are empty, not wrong: only they take a default."""
    bad = np.zeros(sheet.rows, bool)
    bad[sheet.bad(name)] = True
    return np.isnan(sheet.number(name)[index]) & ~bad[index]


def _checked(sheet: Sheet, name: str, column: Column, values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Whether each value is a whole number in range; a default that is NaN stays."""
    with np.errstate(invalid="ignore"):
        valid = (values >= column.least) & (values <= MOST) & (values == np.floor(values))
    empty = _empty(sheet, name, index)
    if column.default is not None and math.isnan(column.default):
        valid |= empty
    wrong = np.flatnonzero(~valid)

    def message(position: int) -> str:
        value = values[wrong[position]]
        if math.isnan(value) and empty[wrong[position]]:
            return "no value."
        if math.isnan(value):
            return sheet.no_number(name, int(index[wrong[position]]))
        return f"must be a whole number from {column.least:g} to 2^53, not {value:g}."

    sheet.notes.rows(index[wrong] + sheet.start, name, message, True)
    return valid


def _ordered(sheet: Sheet, lesser: str, greater: str, shape: dict[str, np.ndarray], index: np.ndarray) -> np.ndarray:
    wrong = np.flatnonzero(shape[lesser] > shape[greater])
    sheet.notes.rows(
        index[wrong] + sheet.start,
        lesser,
        lambda i: f"{shape[lesser][wrong[i]]:g} is more than the {shape[greater][wrong[i]]:g} {greater}.",
        True,
    )
    return ~(shape[lesser] > shape[greater])


def _even(sheet: Sheet, parts: str, whole: str, shape: dict[str, np.ndarray], index: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # zero parts are out of range, which is said of them elsewhere
        uneven = np.mod(shape[whole], shape[parts]) > 0.0
    wrong = np.flatnonzero(uneven)
    sheet.notes.rows(
        index[wrong] + sheet.start,
        parts,
        lambda i: f"{shape[parts][wrong[i]]:g} does not divide the {shape[whole][wrong[i]]:g} {whole}.",
        True,
    )
    return ~uneven
