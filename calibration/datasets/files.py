"""Tables on disk: Parquet, CSV, JSON, plain or compressed, in pieces of a bounded number of rows."""

from __future__ import annotations

import csv as text_csv
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from hwspecs.errors import InputError
from jaxperf.io.csv_text import check_first_line, check_quotes, delimiter_of, not_utf_8
from jaxperf.io.json_text import parse_lines, parse_rows

# What reading a plain or compressed file can raise.
READ_ERRORS = (OSError, EOFError, zlib.error)
SUFFIXES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".json", ".jsonl")
BLOCK = 1 << 24  # bytes of a CSV file that are parsed at a time


def suffix_of(path: str | Path) -> str:
    """The suffix of a table's name that tells its format.

    **Raises:** `InputError` that lists what is read.
    """
    name = Path(path).name.lower()
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return suffix
    raise InputError(f"{path}: the format is told by the file's name, which must end in {', '.join(SUFFIXES)}.")


def data_hash(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal, as provenance cards state it."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}.") from None


def read_text(path: str | Path) -> str:
    """The text of a file, decompressed where its name ends in .gz.

    **Raises:** `InputError` for a file that is missing, empty, truncated or not UTF-8.
    """
    try:
        raw = Path(path).read_bytes()
        text = (gzip.decompress(raw) if str(path).lower().endswith(".gz") else raw).decode("utf-8-sig")
    except READ_ERRORS as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise InputError(f"Cannot read '{path}': {reason}.") from None
    except UnicodeDecodeError as error:
        raise not_utf_8(path, error) from None
    if not text.strip():
        raise InputError(f"{path} is empty.")
    return text


def read_pieces(path: str | Path, chunk: int | None = None) -> Iterator[pa.Table]:
    """The rows of a table in order, at most `chunk` at a time (None: all at once). CSV columns are all text.

    **Raises:** `InputError` for a file that is missing, empty, truncated or not of the format its name promises, and
    for a CSV line with too many or too few fields.
    """
    path = Path(path)
    suffix = suffix_of(path)
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk must be at least 1 row, not {chunk}.")
    try:
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty.")
        if suffix == ".parquet":
            yield from _parquet(path, chunk)
        elif suffix in (".json", ".jsonl"):
            yield from _split(_json(path), chunk)
        else:
            yield from _csv(path, chunk)
    except READ_ERRORS as error:
        reason = (getattr(error, "strerror", None) or str(error).splitlines()[0]).rstrip(".")
        raise InputError(f"Cannot read '{path}': {reason}.") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} is truncated or not what its name says: {str(error).splitlines()[0]}") from None
    except UnicodeDecodeError as error:
        raise not_utf_8(path, error) from None


def _parquet(path: Path, chunk: int | None) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names)
        if chunk is None:
            yield file.read()
            return
        for batch in file.iter_batches(batch_size=chunk):
            yield pa.Table.from_batches([batch])


def _split(table: pa.Table, chunk: int | None) -> Iterator[pa.Table]:
    step = chunk or max(1, table.num_rows)
    for start in range(0, max(1, table.num_rows), step):
        yield table.slice(start, step)


def _csv(path: Path, chunk: int | None) -> Iterator[pa.Table]:
    delimiter, names = _header(path)
    _check_names(path, names)
    _check_quotes(path)
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    convert = csv.ConvertOptions(column_types={name: pa.string() for name in names}, strings_can_be_null=False)
    # One thread, because only then does the parser tell the number of a bad line.
    options = csv.ReadOptions(use_threads=False, block_size=BLOCK)
    read = 0
    try:
        with csv.open_csv(path, read_options=options, parse_options=parse, convert_options=convert) as reader:
            for piece in _rows_at_a_time(reader, chunk):
                yield piece
                read += len(piece)
        return
    except pa.ArrowInvalid:
        ragged = next(((line, cells) for line, cells in _lines(path) if len(cells) != len(names)), None)
        if ragged is not None:
            line, cells = ragged
            raise InputError(f"{path}, line {line}: {len(cells)} fields where the header has {len(names)}.") from None
    # Lines of white space, which only a function of Python's can skip. The reader above may not have one: its thread
    # that reads ahead may be the last to let go of it, which aborts a program that ends meanwhile.
    parse.invalid_row_handler = _of_wrong_length
    rest = csv.read_csv(path, read_options=options, parse_options=parse, convert_options=convert).slice(read)
    if len(rest) or not read:
        yield from _split(rest, chunk)


def _check_quotes(path: Path) -> None:
    """Raises `InputError` for a quote that is never closed."""
    with _opened(path, "rb") as file:
        if sum(block.count(b'"') for block in iter(lambda: file.read(BLOCK), b"")) % 2 == 0:
            return
    with _opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        check_quotes(path, file, _header(path)[0])


def _of_wrong_length(row: Any) -> str:
    """What becomes of a line with too few or too many fields: one of white space is as empty as one of nothing."""
    return "error" if row.text.strip() else "skip"


def _rows_at_a_time(reader: Any, chunk: int | None) -> Iterator[pa.Table]:
    held = pa.Table.from_batches([], schema=reader.schema)
    for batch in reader:
        held = pa.concat_tables([held, pa.Table.from_batches([batch])])
        while chunk is not None and held.num_rows >= chunk:
            yield held.slice(0, chunk)
            held = held.slice(chunk)
    if held.num_rows or chunk is None:
        yield held


def line_numbers(path: Path) -> list[int]:
    """The line on which each row of a CSV file begins: an empty line is no row, and a cell may have line breaks."""
    return [line for line, _ in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file after its header, each with the line on which it begins."""
    delimiter, names = _header(path)
    with _opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = text_csv.reader(file, delimiter=delimiter)
        next(rows, None)
        begins = rows.line_num + 1
        for cells in rows:
            if len(cells) == len(names) or "".join(cells).strip():
                yield begins, cells
            begins = rows.line_num + 1


def _opened(path: Path, mode: str, **how: Any) -> Any:
    return (gzip.open if path.suffix.lower() == ".gz" else open)(path, mode, **how)


def counts_lines(path: str | Path) -> bool:
    """Whether people find a row of this file by its line."""
    return suffix_of(path).startswith((".csv", ".tsv"))


def _header(path: Path) -> tuple[str, list[str]]:
    """The delimiter and the column names of a CSV file."""
    with _opened(path, "rt", encoding="utf-8-sig") as file:
        line = file.readline()
    check_first_line(path, line)
    delimiter = delimiter_of(line)
    return delimiter, next(text_csv.reader([line], delimiter=delimiter), [])


def _check_names(path: Path, names: list[str]) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"{path}: the column '{repeated[0]}' occurs more than once.")
    if not any(name.strip() for name in names):
        raise InputError(f"{path} has no header line with column names.")


def _json(path: Path) -> pa.Table:
    text = read_text(path)
    records = (parse_lines if path.name.lower().endswith(".jsonl") else parse_rows)(text, str(path))
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path} must be a list of objects, one a row.")
    names = dict.fromkeys(name for record in records for name in record)
    return pa.table({name: _json_column([record.get(name) for record in records]) for name in names})


def _json_column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])
