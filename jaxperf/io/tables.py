"""Rows out: CSV, JSON or Parquet by the file's ending, written whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from hwspecs.errors import InputError
from jaxperf.io.whole_file import whole_file

Row = Mapping[str, Any]
PROBE = bytes(4096)  # a block, for which a full disk has no room


def write_rows(rows: Sequence[Row], path: str | Path, metadata: Mapping[str, str], columns: Sequence[str] = ()) -> None:
    """Write rows that share their keys to `path`; `metadata` (provenance) goes into JSON and Parquet.

    **Arguments:** `columns`: the keys that rows would have, for a table that may have none.
    **Raises:** `InputError` for another ending or a path that cannot be written; no half-written file is left.
    """
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        raise InputError(f"Cannot write '{path}': the ending must be one of {', '.join(WRITERS)}.")
    with whole_file(path) as temporary:
        WRITERS[path.suffix.lower()](rows, list(rows[0] if rows else columns), temporary, metadata)


def json_metadata(path: Path) -> dict[str, str]:
    """What `write_rows` was given beside the rows of a JSON file; nothing for a file of another kind."""
    try:
        with _plain_errors(path):
            found = json.loads(path.read_bytes())["metadata"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def csv_holds(path: Path, rows: Sequence[Row], columns: Sequence[str]) -> bool:
    """Whether a CSV file holds exactly these rows, none of whose cells is empty."""
    wanted = [list(columns), *([str(_csv_cell(cell)) for cell in row.values()] for row in rows)]
    with _plain_errors(path), path.open(newline="", encoding="utf-8") as file:
        try:
            return list(csv.reader(file)) == wanted
        except (UnicodeDecodeError, csv.Error):
            return False


def check_output(path: str | Path | None, endings: Sequence[str] | None = None) -> None:
    """Refuse an output that cannot be written before anything is computed.

    **Raises:** `InputError` for a wrong ending, a missing folder, or one that is not writable.
    """
    if path is None:
        return
    path = Path(path)
    endings = tuple(WRITERS) if endings is None else endings
    if path.suffix.lower() not in endings:
        raise InputError(f"Cannot write '{path}': the ending must be one of {', '.join(endings)}.")
    with _plain_errors(path):
        if path.is_dir():
            raise InputError(f"Cannot write '{path}': it is a folder.")
    check_folder_of(path)


def check_apart(path: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Refuse an output that is one of the files that are read; an input that is no file is none.

    **Raises:** `InputError` for such an output.
    """
    if path is None or not path.exists():
        return
    for read in inputs:
        if read is not None and Path(read).exists() and path.samefile(read):
            raise InputError(f"{path} is the input; write to another file.")


def check_card(path: Path, mark: str, there: bool, what: str) -> None:
    """Refuse to write a card over one of another kind: files that share a name but for the ending share its .json.

    **Arguments:** `mark`: an entry that cards of this kind have, or, unless `there`, have not. A file that is no
    object of JSON is no card.
    **Raises:** `InputError` for such a card.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(found, dict) and (mark in found) is not there:
        raise InputError(f"'{path}' is the card of {what}, which would be lost; give another name with -o.")


def check_folder_of(path: Path) -> None:
    """Raises `InputError` unless something can be written at `path`, judging by the folder it will lie in:
    one that is missing, is not writable, or whose disk is full."""
    with _plain_errors(path):
        folder = path.absolute().parent
        if not folder.exists():
            raise InputError(f"Cannot write '{path}': the folder '{folder}' does not exist.")
        if not folder.is_dir():
            raise InputError(f"Cannot write '{path}': '{folder}' is not a folder.")
        if not os.access(folder, os.W_OK):
            raise InputError(f"Cannot write '{path}': the folder '{folder}' is not writable.")
        with tempfile.TemporaryFile(dir=folder) as probe:  # has no name: nothing is left of it
            probe.write(PROBE)


def json_text(data: Any) -> str:
    """`data` as JSON: NumPy scalars as numbers; of what JSON lacks NaN and infinities as null, dates and decimals as
    text."""
    return json.dumps(_plain(data), indent=1, allow_nan=False, default=str)


def _plain(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    value = data.item() if hasattr(data, "item") else data
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """What the file system refuses, as one sentence about `path`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"Cannot write '{path}': {error.strerror or error}.") from None


def _write_csv(rows: Sequence[Row], columns: Sequence[str], path: Path, metadata: Mapping[str, str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        write_csv(rows, columns, file)


def write_csv(rows: Sequence[Row], columns: Sequence[str], file: TextIO) -> None:
    """Rows of these `columns` as CSV."""
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows({name: _csv_cell(cell) for name, cell in row.items()} for row in rows)


def _csv_cell(cell: Any) -> Any:
    """Yes and no, Python's or NumPy's, as every other table of jaxperf spells them."""
    return str(cell).lower() if not isinstance(cell, str) and str(cell) in ("True", "False") else cell


def _write_json(rows: Sequence[Row], columns: Sequence[str], path: Path, metadata: Mapping[str, str]) -> None:
    path.write_text(json_text({"metadata": dict(metadata), "rows": list(rows)}) + "\n", encoding="utf-8")


def _write_parquet(rows: Sequence[Row], columns: Sequence[str], path: Path, metadata: Mapping[str, str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: _array([row.get(name) for row in rows]) for name in columns})
    pq.write_table(table.replace_schema_metadata(dict(metadata)), path)


def _array(cells: list[Any]) -> Any:
    """A column of one type; cells of several, as JSON lines may have under one name, as text."""
    import pyarrow as pa

    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):
        return pa.array([cell if cell is None or isinstance(cell, str) else json_text(cell) for cell in cells])


# How numbers are written, as far as 64 bits hold whole ones.
WRITTEN = {
    int: re.compile(r"-?(0|[1-9]\d{0,17})"),
    float: re.compile(r"-?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?"),
}


def with_numbers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of a CSV file for formats that tell numbers from text: columns of nothing else as numbers, empty cells
    as None."""
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    told = {name: _numbers(cells) for name, cells in columns.items()}
    return [dict(zip(told, cells, strict=True)) for cells in zip(*told.values(), strict=True)]


def _numbers(cells: list[Any]) -> list[Any]:
    """Whole numbers or numbers where all cells with a text are such; a leading zero, as ids have, makes them text."""
    texts = [cell for cell in cells if cell not in ("", None)]
    if not texts or not all(isinstance(text, str) for text in texts):
        return cells
    for kind, number in WRITTEN.items():
        if all(number.fullmatch(text) for text in texts):
            return [kind(cell) if cell else None for cell in cells]
    return cells


WRITERS: dict[str, Callable[[Sequence[Row], Sequence[str], Path, Mapping[str, str]], None]] = {
    ".csv": _write_csv,
    ".json": _write_json,
    ".parquet": _write_parquet,
}
