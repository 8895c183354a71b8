"""The number formats that the rows of a table state: one name for each, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.datasets.columns import Sheet
from calibration.datasets.groups import grouped
from calibration.datasets.names import dtype_name
from calibration.datasets.spellings import stated
from calibration.datasets.text import Text, repeated
from hwspecs.errors import InputError

# Format -> the columns that may state it.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "dtype": ("dtype", "data_type", "precision", "gemm_dtype", "moe_dtype", "attn_dtype"),
    "cache": ("kv_dtype", "kv_cache_dtype", "cache"),
}
CACHED = ("attention_prefill", "attention_decode", "attention_mixed", "mla_prefill", "mla_decode")  # that read a cache
UNKNOWN_CACHE = "?"  # name of a cache's format that is stated and none of the known ones


@dataclass(frozen=True)
class Stated:
    """`name` of the format of each row, "" where none is stated or understood, of a cache `UNKNOWN_CACHE` where it is
    stated; `column` that says what nobody knows or what contradicts another, and the sentence on it, `unknown` or
    `clash`, "" where there is none [R]."""

    name: Text
    column: Text
    unknown: Text
    clash: Text

    def problems(self, said: Text, index: np.ndarray) -> list[tuple[str, str, np.ndarray]]:
        """Column, sentence and places in `index` of each kind of row among the rows `index` of which something is
        `said`, which is `unknown` or `clash`."""
        codes = said.codes[index]
        each = ((str(self.column.values[code]), str(text), code) for code, text in enumerate(said.values.tolist()))
        found = [(column, text, np.flatnonzero(codes == code)) for column, text, code in each if text]
        return [(column, text, places) for column, text, places in found if len(places)]


def stated_formats(sheet: Sheet) -> dict[str, Stated]:
    """The formats of all rows of a piece, by the names of `COLUMNS`."""
    return {name: _stated(sheet, name) for name in COLUMNS}


def known_formats(sheet: Sheet, formats: Mapping[str, Stated], family: str, index: np.ndarray) -> np.ndarray:
    """Whether the rows `index` of a family state one format, or none [rows]; others are noted, and those of a format
    that nobody knows, which stay."""
    good = np.ones(len(index), bool)
    for name in ("dtype", "cache") if family in CACHED else ("dtype",):
        given = formats[name]
        for column, wrong, places in given.problems(given.unknown, index):
            sheet.notes.alike(index[places] + sheet.start, column, wrong)
        for column, wrong, places in given.problems(given.clash, index):
            good[places] = False
            sheet.notes.rows(index[places] + sheet.start, column, lambda _, wrong=wrong: wrong, True)
    return good


def _stated(sheet: Sheet, name: str) -> Stated:
    present = [column for column in COLUMNS[name] if column in sheet]
    if not present:
        return Stated(*(repeated("", sheet.rows) for _ in range(4)))
    texts = [sheet.text(column) for column in present]
    alike = grouped(texts)
    rows = zip(*(text[alike.first].tolist() for text in texts), strict=True)
    found = [_one(name, dict(zip(present, cells, strict=True))) for cells in rows]
    return Stated(*(Text(_strings(part), alike.which) for part in zip(*found, strict=True)))


def _one(name: str, cells: Mapping[str, str]) -> tuple[str, str, str, str]:
    """The fields of `Stated` of the cells of one row."""
    for column, text in cells.items():
        wrong = dtype_name(text)[1]
        if wrong:
            return UNKNOWN_CACHE if name == "cache" else "", column, wrong, ""
    said = {column: text for column, text in cells.items() if dtype_name(text)[0]}
    try:
        return dtype_name(stated(name, said, lambda text: dtype_name(text)[0]))[0], "", "", ""
    except InputError as error:
        return "", next(iter(said)), "", str(error)


def _strings(values: Sequence[str]) -> np.ndarray:
    return np.array(values, dtype=object)
