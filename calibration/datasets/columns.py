"""Columns of one piece of a table as NumPy arrays: each distinct spelling understood once, each bad cell located."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calibration.datasets.names import ABSENT
from calibration.datasets.schema import Problem
from calibration.datasets.text import Text, repeated
from hwspecs.errors import InputError
from jaxperf.core.cells import float_or_nan
from jaxperf.io.column_names import standard_name

PLAINLY = "; write it with a decimal point and nothing between thousands"
LOCATED = 10_000  # so many problems are located one by one; the rest is counted by what is wrong


class Notes:
    """The problems found in one read: bad rows one by one, alike remarks counted."""

    def __init__(self) -> None:
        self._located: list[Problem] = []
        self._alike: dict[tuple[str, str, bool], tuple[int, int]] = {}

    def rows(self, rows: np.ndarray, column: str, message: Callable[[int], str], excluded: bool) -> None:
        """One problem for each of `rows`; `message` gets the position in `rows`."""
        room = max(0, LOCATED - len(self._located))
        for position, row in enumerate(rows[:room].tolist()):
            self._located.append(Problem(row, column, message(position), 1, excluded))
        if len(rows) > room:
            self.alike(rows[room:], column, f"the same, beyond the first {LOCATED} located problems.", excluded)

    def alike(self, rows: np.ndarray, column: str, message: str, excluded: bool = False) -> None:
        """One problem for all of `rows` together."""
        if len(rows):
            first, count = self._alike.get((column, message, excluded), (int(rows[0]), 0))
            self._alike[column, message, excluded] = (first, count + len(rows))

    def problems(self) -> tuple[Problem, ...]:
        """All of them, in the order of the rows."""
        alike = [Problem(first, key[0], key[1], count, key[2]) for key, (first, count) in self._alike.items()]
        return tuple(sorted((*self._located, *alike), key=lambda problem: problem.row))


def standard_columns(
    path: str | Path, names: Sequence[str], matters: Callable[[str], bool] = lambda standard: True
) -> dict[str, str]:
    """Standard name -> the column as it is written; the first of several whose name does not matter.

    **Raises:** `InputError` where two columns have the same standard name.
    """
    written: dict[str, str] = {}
    for name in names:
        standard = standard_name(name)
        if standard not in written:
            written[standard] = name
        elif matters(standard):
            raise InputError(f"{path}: the columns '{written[standard]}' and '{name}' mean the same; remove one.")
    return written


@dataclass
class Sheet:
    """The columns of one piece by standard name; `start` is the position of its first row in the file."""

    path: str
    start: int
    rows: int
    columns: dict[str, pa.ChunkedArray]
    notes: Notes
    _numbers: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def number(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a cell is empty or no number."""
        if name not in self._numbers:
            self._numbers[name] = parse_numbers(self.columns[name])
        return self._numbers[name][0]

    def bad(self, name: str) -> np.ndarray:
        """The positions of cells that are no numbers."""
        self.number(name)
        return self._numbers[name][1]

    def written(self, name: str, position: int | np.integer) -> str:
        """A cell as the user wrote it, in quotes."""
        return repr(self.columns[name][int(position)].as_py())

    def no_number(self, name: str, position: int | np.integer) -> str:
        """The sentence on a cell that is no number, with what to write where it is one in another spelling."""
        text = self.written(name, position)
        separated = re.fullmatch(r"""["'][+-]?\d[\d.,' ]*\d["']""", text)
        return f"{text} is not a number{PLAINLY if separated else ''}."

    def text(self, name: str) -> Text:
        """A column as text, "" where a cell is empty."""
        return parse_text(self.columns[name])

    def named(self, name: str, meaning: Callable[[str], tuple[str, str]]) -> Text:
        """A text column with each distinct value translated once; what is not understood becomes "" and is noted."""
        if name not in self.columns:
            return repeated("", self.rows)
        text = self.text(name)
        known = [meaning(value) for value in text.values]
        for code, (_, wrong) in enumerate(known):
            if wrong:
                self.notes.alike(np.flatnonzero(text.codes == code) + self.start, name, wrong)
        return Text(np.array([value for value, _ in known], object), text.codes)


def open_sheet(table: pa.Table, path: str, start: int, notes: Notes) -> Sheet:
    """The columns of a piece under their standard names.

    **Raises:** `InputError` where two columns have the same standard name.
    """
    places = standard_columns(path, table.column_names)
    columns = {standard: table.column(written) for standard, written in places.items()}
    return Sheet(path, start, table.num_rows, columns, notes)


def parse_numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A column as float64 with NaN for empty cells, and the positions of cells that are no numbers (NaN as well)."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), math.nan), np.empty(0, np.int64)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = pc.fill_null(pc.cast(column, pa.float64(), safe=False), math.nan)
        return values.to_numpy(), np.empty(0, np.int64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return pc.cast(column, pa.float64()).to_numpy(), np.empty(0, np.int64)
        except pa.ArrowInvalid:
            pass  # an empty or a bad cell; found below
    text = parse_text(column)
    parsed = np.array([_number(value) for value in text.values], np.float64)
    wrong = np.array([math.isnan(x) and v.lower() not in ABSENT for v, x in zip(text.values, parsed, strict=True)])
    return parsed[text.codes], np.flatnonzero(wrong[text.codes])


def _number(text: str) -> float:
    return math.nan if "_" in text else float_or_nan(text)  # Python would read 1_000


def parse_text(column: pa.ChunkedArray) -> Text:
    """A column of any plain type as text; empty cells and surrounding space vanish."""
    if not pa.types.is_dictionary(column.type):
        plain = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        column = (column if plain else _as_strings(column)).dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    array = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    # Bytes that are no UTF-8 are replaced: such a name is then unknown, not an error without a place.
    distinct = pc.cast(array.dictionary, pa.binary()).to_pylist()
    values = [(value or b"").decode("utf-8", errors="replace").strip() for value in distinct]
    codes = pc.fill_null(pc.cast(array.indices, pa.int64()), len(values)).to_numpy(zero_copy_only=False)
    return Text(np.array([*values, ""], object), codes)


def _as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pc.cast(column, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # lists, structures, bytes
        return pa.chunked_array([[None if value is None else str(value) for value in column.to_pylist()]], pa.string())


def with_columns(table: pa.Table, added: Mapping[str, object]) -> pa.Table:
    """A table with columns added, in place of those of the same name."""
    kept = {name: column for name, column in zip(table.column_names, table.columns, strict=True) if name not in added}
    return pa.table({**kept, **added})
