"""Write a table back with columns added: the same rows in the same order, whole or not at all."""

from __future__ import annotations

import csv as text_csv
import gzip
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from calibration.datasets.columns import parse_numbers, parse_text, standard_name
from calibration.datasets.files import read_pieces, suffix_of
from calibration.datasets.tables import TEXT_COLUMNS
from calibration.datasets.text import Column, Text
from hwspecs.errors import InputError

NONE: Mapping[str, str] = MappingProxyType({})
CHUNK = 1 << 18  # rows held at a time
_WHOLE = re.compile(r"|-?\d{1,18}")


def scatter(rows: int, row: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of a `KernelTable`'s rows as a column [rows] of the whole file; NaN where no row of the table is."""
    column = np.full(rows, np.nan)
    column[row] = values
    return column


def write_with(
    path_in: str | Path, path_out: str | Path, columns: Mapping[str, Column], metadata: Mapping[str, str] = NONE
) -> None:
    """Write the table `path_in` with extra columns to `path_out`, whose suffix tells the format.

    **Arguments:** `columns`: one array [rows of the table] a new column; a number that is not finite and None become
    empty cells. CSV cells of the input keep their spelling. `metadata`: where the columns come from, which Parquet
    keeps beside what the input's has.
    **Raises:** `InputError` where the output is the input, a column is already there or of the wrong length, or a file
    cannot be read or written. On any failure nothing is left at `path_out` but what was there before.
    """
    source, target = Path(path_in), Path(path_out)
    write = _writer(target, metadata)
    if source.exists() and target.exists() and os.path.samefile(source, target):
        raise InputError(f"{target} is the input; write to another file.")
    arrays = {name: _array(values) for name, values in columns.items()}
    plain = suffix_of(source).startswith((".csv", ".tsv"))
    types = _types(source) if plain and not suffix_of(target).startswith((".csv", ".tsv")) else {}
    try:
        with _replacing(target) as temporary:
            write(temporary, _extended(source, arrays, types))
    except UnicodeDecodeError:
        raise InputError(f"{source} holds text that is not UTF-8.") from None
    except OSError as error:
        raise InputError(f"Cannot write '{target}': {error.strerror or error}.") from None


def _extended(source: Path, arrays: Mapping[str, pa.Array], types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """The pieces of the input with their share of the new columns."""
    start = 0
    for table in read_pieces(source, CHUNK):
        for index, (name, kind) in enumerate(types.items()):
            table = table.set_column(index, name, _cast(table[name], kind))
        for name, values in arrays.items():
            if name in table.column_names:
                raise InputError(f"{source} already has a column '{name}'; choose another name.")
            if start + len(table) > len(values):
                _refuse_length(source, name, values)
            table = table.append_column(name, values.slice(start, len(table)))
        start += len(table)
        yield table
    for name, values in arrays.items():
        if len(values) != start:
            _refuse_length(source, name, values)


def _refuse_length(source: Path, name: str, values: pa.Array) -> NoReturn:
    rows = sum(len(table) for table in read_pieces(source, CHUNK))
    raise InputError(f"the column '{name}' has {len(values)} values, but {source} has {rows} rows.")


def _types(source: Path) -> dict[str, pa.DataType]:
    """What the text columns of a CSV hold: whole numbers, numbers or text; identities such as a version stay text."""
    types: dict[str, pa.DataType] = {}
    for table in read_pieces(source, CHUNK):
        for name, column in zip(table.column_names, table.columns, strict=True):
            known = types.get(name, pa.int64())
            if known == pa.string() or standard_name(name) in TEXT_COLUMNS:
                types[name] = pa.string()
                continue
            values = parse_text(column).values
            if known == pa.int64() and not all(map(_WHOLE.fullmatch, values)):
                known = pa.float64()
            types[name] = pa.string() if known == pa.float64() and len(parse_numbers(column)[1]) else known
    return types


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if kind == pa.string():
        return column
    text = parse_text(column)
    if kind == pa.int64():
        values = pa.array([int(value) if value else None for value in text.values], kind)
        return pa.chunked_array([values.take(pa.array(text.codes))])
    numbers = parse_numbers(column)[0]
    return pa.chunked_array([pa.array(numbers, kind, mask=np.isnan(numbers))])


def _array(values: Column) -> pa.Array:
    if isinstance(values, Text):
        return pa.array(values)
    values = np.asarray(values)
    if values.ndim != 1:
        raise InputError(f"a new column must be one-dimensional, not of shape {values.shape}.")
    if np.issubdtype(values.dtype, np.floating):
        return pa.array(values, mask=~np.isfinite(values))
    return pa.array(values.tolist() if values.dtype == object else values)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A file beside `target` that takes its place when the block ends well, and vanishes when it does not."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _writer(target: Path, metadata: Mapping[str, str]) -> Callable[[Path, Iterator[pa.Table]], None]:
    match suffix_of(target):
        case ".parquet":
            return lambda path, pieces: _write_parquet(path, pieces, metadata)
        case ".json":
            return _write_json
        case ".jsonl":
            return _write_json_lines
        case suffix:
            delimiter = "\t" if suffix.startswith(".tsv") else ","
            return lambda path, pieces: _write_csv(path, pieces, delimiter, suffix.endswith(".gz"))


def _write_parquet(path: Path, pieces: Iterator[pa.Table], metadata: Mapping[str, str]) -> None:
    first = next(pieces)
    more = {name.encode(): text.encode() for name, text in metadata.items()}
    first = first.replace_schema_metadata({**(first.schema.metadata or {}), **more})
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in pieces:
            writer.write_table(table.cast(first.schema))


def _write_csv(path: Path, pieces: Iterator[pa.Table], delimiter: str, compressed: bool) -> None:
    # A fixed time stamp, so that the same table gives the same bytes.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compressed else raw as file:
        for number, table in enumerate(pieces):
            if number == 0:
                file.write(_csv_lines([table.column_names], delimiter))
            file.write(_csv_rows(_plain(table), delimiter))


def _csv_rows(table: pa.Table, delimiter: str) -> bytes:
    buffer = io.BytesIO()
    try:
        csv.write_csv(table, buffer, csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="none"))
    except pa.ArrowInvalid:  # a cell needs quotes; Arrow would quote all text, so that cells lose their spelling
        texts = [_text(table, name) for name in table.column_names]
        return _csv_lines(zip(*(column.to_pylist() for column in texts), strict=True), delimiter)
    return buffer.getvalue()


def _text(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column as text, numbers as Arrow spells them."""
    try:
        return table[name].cast(pa.string())
    except pa.ArrowInvalid:
        raise InputError(f"the column '{name}' holds bytes that are not UTF-8; write to a .parquet file.") from None


def _csv_lines(rows: Iterable[Iterable[Any]], delimiter: str) -> bytes:
    text = io.StringIO()
    text_csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _plain(table: pa.Table) -> pa.Table:
    """Dictionary columns as their values and nested ones as JSON, which CSV needs."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        elif pa.types.is_nested(column.type):
            texts = [None if value is None else _json(value) for value in column.to_pylist()]
            column = pa.array(texts, pa.string())
        columns[name] = column
    return pa.table(columns)


def _write_json(path: Path, pieces: Iterator[pa.Table]) -> None:
    with path.open("w", encoding="utf-8") as file:
        separator = "[\n"
        for record in _records(pieces):
            file.write(separator + record)
            separator = ",\n"
        file.write("\n]\n")


def _write_json_lines(path: Path, pieces: Iterator[pa.Table]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(record + "\n" for record in _records(pieces))


def _records(pieces: Iterator[pa.Table]) -> Iterator[str]:
    for table in pieces:
        for record in table.to_pylist():
            yield _json(record)


def _json(value: Any) -> str:
    """A cell or a row as JSON: dates and the like as text, and so are bytes."""
    return json.dumps(_finite(value), default=_spelled)


def _spelled(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
