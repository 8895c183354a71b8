"""Request traces as people have them: CSV of Vidur, Azure and Splitwise, JSON lines of Mooncake or ShareGPT, results of
vLLM's benchmark, Parquet, compressed or not; or a workload described in JSON, from which they are drawn."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.cells import float_or_nan
from jaxperf.io.benchmark_files import CONVERSATION, conversation_rows, result_rows
from jaxperf.io.column_names import misspelled_notes
from jaxperf.io.csv_text import csv_rows, not_utf_8
from jaxperf.io.json_text import parse_lines, parse_unique
from jaxperf.io.request_cells import (
    HASHES,
    PREFILLED,
    PRIORITY,
    column_named,
    hashes_of,
    is_empty,
    length_of,
    moment_of,
    seconds_of,
    since_epoch,
    unit_of,
)
from jaxperf.models.checks import show
from jaxperf.serving.simulator.workloads import draw_requests

# Our name -> the names that trace files use for it.
NAMES = {
    "arrived_at": ("arrived_at", "arrival_time", "arrival_s", "queued_at", "timestamp", "arrival_timestamp"),
    "prefill_tokens": (
        *("prefill_tokens", "num_prefill_tokens", "prompt_tokens", "input_tokens", "input_length", "input_len"),
        *("contexttokens", "input_toks", "prompt_size"),
    ),
    "decode_tokens": (
        *("decode_tokens", "num_decode_tokens", "output_tokens", "output_length", "output_len"),
        *("generatedtokens", "output_toks", "token_size"),
    ),
}
OPTIONAL = (HASHES, PRIORITY, PREFILLED)
BATCHES = "batch_size"  # of Splitwise's traces, whose requests may be of several prompts
KNOWN = frozenset((*OPTIONAL, *(name for names in NAMES.values() for name in names)))


@dataclass(frozen=True)
class RequestTrace:
    """The rows of a file, and the requests among them in order of arrival.

    `rows`: the cells as they are; `row` [R]: which row each request is; `arrived` [R] s; `prompt`, `output` [R] tokens;
    `hashes`: of each request's prompt, None where the file has no `hash_ids`; `reasons`: row -> why it is no request;
    `notes`: what was found and assumed, in sentences; `origin`: where arrivals are dates, the first of them, from which
    `arrived` counts [s since 1970].
    """

    rows: Sequence[Mapping[str, Any]]
    row: np.ndarray
    arrived: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    hashes: Sequence[Sequence[int]] | None
    reasons: Mapping[int, str]
    notes: tuple[str, ...]
    origin: float | None = None

    def times(self, column: str) -> np.ndarray:
        """Other times of the rows on the clock of `arrived` [rows] s: dates count from the first arrival, numbers as
        they are; NaN for a cell that is neither, and for a date beside arrivals that are numbers."""
        return np.array([self._time(row.get(column)) for row in self.rows], float)

    def _time(self, cell: Any) -> float:
        moment = moment_of(cell)
        if moment is None:
            return float_or_nan(cell)
        return math.nan if self.origin is None else since_epoch(moment) - self.origin

    def unread(self, column: str) -> list[str]:
        """Why cells of a column are no times on the clock of `arrived`, those of one kind in a sentence; an empty cell
        and a NaN say that there is none."""
        cells = [row.get(column) for row in self.rows]
        bad = [cell for cell, time in zip(cells, self.times(column), strict=True) if not math.isfinite(time)]
        dates = [cell for cell in bad if moment_of(cell) is not None]
        others = [cell for cell in bad if moment_of(cell) is None and not is_empty(cell)]
        said = {"is a date, but arrivals are numbers": dates, "is no time": others}
        return [f"{show(each[0])} {why} ({len(each):,} such cells)" for why, each in said.items() if each]


def read_requests(path: str | Path) -> RequestTrace:
    """Read a trace; rows out of order are put in order of arrival, ties in the order of the file.

    A row with a cell that is missing, not a number or out of range is no request: `reasons` says why.
    **Raises:** `InputError` for a file that cannot be read, has no rows or lacks a column, and for ids given twice.
    """
    path = Path(path)
    rows = _rows(path)
    if not rows:
        raise InputError(f"{path} has no requests.")
    assumed: tuple[str, ...] = ()
    if CONVERSATION in rows[0]:
        rows, assumed = conversation_rows(rows, NAMES)
    _check_names(list(rows[0]), path)
    columns = {name: _column(rows[0], name, path) for name in NAMES}
    _check_ids(rows, path)
    times = [row.get(columns["arrived_at"]) for row in rows]
    unit, of_unit = unit_of(columns["arrived_at"], times)
    cells: dict[str, list[Any]] = {
        "arrived_at": [seconds_of(time, unit) for time in times],
        **{name: [length_of(row.get(columns[name])) for row in rows] for name in ("prefill_tokens", "decode_tokens")},
    }
    if (written := column_named(rows[0], [HASHES])) is not None:
        cells[HASHES] = [hashes_of(row.get(written)) for row in rows]
        columns[HASHES] = written
    reasons: dict[int, str] = {}
    for name, values in cells.items():
        for index, value in enumerate(values):
            if isinstance(value, str):
                reasons.setdefault(index, f"{columns[name]}: {value}")
    known = np.array([index for index in range(len(rows)) if index not in reasons], int)
    arrived = np.array([cells["arrived_at"][index] for index in known], float)
    origin = _origin(arrived, [rows[index].get(columns["arrived_at"]) for index in known], path)
    notes = assumed
    if origin is not None:
        arrived, notes = arrived - origin, (*assumed, "times are dates; they count from the first arrival")
    elif of_unit:
        notes = (*assumed, of_unit)
    notes += _unread_notes(rows, columns)
    order = np.argsort(arrived, kind="stable")
    late = int((np.diff(arrived) < 0.0).sum())
    if late:
        notes += (f"{late} rows arrive before the row above them; simulated in order of arrival, ties as in the file",)
    prompt, output = (np.array([cells[name][index] for index in known], int) for name in list(NAMES)[1:])
    hashes = [cells[HASHES][index] for index in known[order]] if HASHES in cells else None
    told = (hashes, reasons, notes, origin)
    return RequestTrace(rows, known[order], arrived[order], prompt[order], output[order], *told)


def _rows(path: Path) -> Sequence[Mapping[str, Any]]:
    read = next((READERS[suffix] for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    if read is None:
        raise InputError(f"{path}: the format is told by the file's name, which must end in {', '.join(SUFFIXES)}.")
    try:
        return read(path)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read '{path}': {getattr(error, 'strerror', None) or error}.") from None
    except UnicodeDecodeError as error:
        raise not_utf_8(path, error) from None


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.name.lower().endswith(".gz") else raw).decode("utf-8-sig")


def _csv(path: Path) -> list[dict[str, str]]:
    return csv_rows(_text(path), path)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return _alike(parse_lines(_text(path), str(path)))


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the names of all of them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            table = pq.read_table(file)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a Parquet file: {error}.") from None
    columns = [_in_microseconds(values) for values in table.columns]
    return pa.table(columns, table.column_names).to_pylist()


def _in_microseconds(column: Any) -> Any:
    """A column whose times are whole microseconds, where Python's own end: Arrow leaves nanoseconds to pandas."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pa.duration("us"), safe=False)
    return column.cast(pa.time64("us"), safe=False) if pa.types.is_time64(kind) else column


def _json(path: Path) -> list[dict[str, Any]]:
    """Rows drawn from a workload that is described instead of listed, of conversations, or of a benchmark's result."""
    described = parse_unique(_text(path), str(path))
    if isinstance(described, list) and described and all(isinstance(row, dict) for row in described):
        return _alike(described)
    if isinstance(described, dict) and "input_lens" in described:
        return result_rows(described, str(path))
    if not isinstance(described, dict):
        raise InputError(f"{path}: a workload is an object with count, arrivals, prompt and output.")
    drawn = draw_requests(described, str(path))
    columns = zip(drawn.arrived.tolist(), drawn.prompt.tolist(), drawn.output.tolist(), strict=True)
    return [
        {"req": number, "arrived_at": arrived, "prefill_tokens": prompt, "decode_tokens": output}
        for number, (arrived, prompt, output) in enumerate(columns)
    ]


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    ".csv": _csv,
    ".csv.gz": _csv,
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".parquet": _parquet,
    ".json": _json,
}
SUFFIXES = tuple(READERS)


def _column(row: Mapping[str, Any], name: str, path: Path) -> str:
    """The file's name of a column. Raises `InputError` where it has none."""
    if (written := column_named(row, NAMES[name])) is not None:
        return written
    hint = did_you_mean(name, [each for each in row if each])
    raise InputError(f"{path} has no column {name} (or {', '.join(NAMES[name][1:])}).{hint}")


def _check_names(written: Sequence[str], path: Path) -> None:
    """Raises `InputError` for two columns that are one in another case."""
    read: dict[str, str] = {}
    for name in written:
        first = read.setdefault(name.strip().casefold(), name)
        if first != name and name.strip().casefold() in KNOWN:
            raise InputError(f"{path}: the columns '{first}' and '{name}' mean the same; remove one.")


def _unread_notes(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each column of tokens that says something else than the one that is read, for batches, and for
    each that is spelled nearly as one that the file lacks; `columns`: as written."""
    beside = [
        (column, columns[name])
        for name in ("prefill_tokens", "decode_tokens")
        for column in rows[0]
        if column.strip().casefold() in NAMES[name] and column != columns[name]
    ]
    differing = [
        f"the column '{column}' is not read where '{read}' says something else"
        for column, read in beside
        if any(not is_empty(row[column]) and float_or_nan(row[column]) != float_or_nan(row[read]) for row in rows)
    ]
    if (batches := column_named(rows[0], [BATCHES])) and any(float_or_nan(row[batches]) > 1.0 for row in rows):
        differing.append(f"the column '{batches}' is not read: a row is one request")
    written = {column.strip().casefold() for column in rows[0]}
    known = [column for column in rows[0] if column.strip().casefold() in KNOWN]
    return (*differing, *misspelled_notes(rows[0], known, [name for name in OPTIONAL if name not in written]))


def _check_ids(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    seen: dict[str, int] = {}
    for index, row in enumerate(rows):
        if row.get("req") in (None, ""):
            continue
        first = seen.setdefault(str(row["req"]), index)
        if first != index:
            raise InputError(f"{path}: rows {first} and {index} have the same req {row['req']}; ids must differ.")


def _origin(arrived: np.ndarray, cells: Sequence[Any], path: Path) -> float | None:
    """The first arrival where they are dates, None where they are plain numbers, which are kept as they are."""
    dates = sum(moment_of(cell) is not None for cell in cells)
    if 0 < dates < len(cells):
        raise InputError(f"{path}: {dates} arrivals are dates and {len(cells) - dates} numbers; write them alike.")
    return float(arrived.min()) if dates else None
