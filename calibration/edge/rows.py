"""Tables of networks on devices: a row for each network and device, or a column of latencies for each device (HELP)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets.columns import standard_columns
from calibration.datasets.files import read_pieces
from calibration.datasets.latency import SECONDS, is_time
from calibration.edge.spaces import SPACES, space_of
from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.column_names import misspelled_notes

NETWORK = ("arch", "architecture", "network", "op_idx")
DEVICE, BATCH = ("device", "gpu", "hardware"), "batch"
MILLI = 1e-3  # s; what HELP's columns of latencies are in


@dataclass(frozen=True)
class Row:
    """`row`: position in the table; `space`: of `spaces.SPACES`; `network`: as parsed; `device`: normalized;
    `measured` [s], NaN where the table has none."""

    row: int
    space: str
    network: tuple[int, ...]
    device: str
    measured: float


@dataclass(frozen=True)
class EdgeTable:
    """`found`: the rows that could be read; `reasons`: row -> why another could not; `rows` of the file; `notes` on
    all."""

    found: tuple[Row, ...]
    reasons: Mapping[int, str]
    rows: int
    notes: tuple[str, ...] = ()


def device_key(name: str, batch: Any = None) -> str:
    """A device as the parameters name it: in lower case, words joined by underscores, a batch at its end."""
    text = re.sub(r"[\s\-]+", "_", str(name).strip().casefold())
    if batch in (None, ""):
        return text
    number = float(batch) if re.fullmatch(r"\s*\d+(\.0*)?\s*", str(batch)) else math.nan
    if not number >= 1.0:
        raise InputError(f"batch: '{batch}' is no whole number of images, at least 1.")
    return f"{text}_{round(number)}"


def read_edge(path: str | Path, device: str | None = None, timed: bool = False) -> EdgeTable:
    """All rows of a table of networks, one device in each.

    **Arguments:** `device`: that of all rows, where no column says it; a column of that name has its latencies [ms];
    `timed`: a latency that is no time makes its row unreadable; otherwise it counts as not measured.
    **Raises:** `InputError` for a file that cannot be read, and columns that are missing or contradict `device`.
    """
    records = [record for piece in read_pieces(path) for record in piece.to_pylist()]
    if not records:
        raise InputError(f"{path} has no rows.")
    columns = standard_columns(path, list(records[0]))
    network = _column(path, columns, NETWORK)
    stated = next((columns[name] for name in DEVICE if name in columns), None)
    if stated is None and device is None:
        raise InputError(
            f"{path}: the column 'device' is missing; give it, or name the device of all rows by --device."
        )
    if stated is not None and device is not None:
        raise InputError(f"{path}: the column '{stated}' states the devices; leave --device out.")
    time, unit = _time(columns, device)
    found: list[Row] = []
    reasons: dict[int, str] = {}
    for row, record in enumerate(records):
        try:
            name, batch = (device, None) if stated is None else (record[stated], record.get(columns.get(BATCH, "")))
            measured = _latency(record.get(time), unit)
            if timed and measured is None:
                raise InputError(f"latency: '{record.get(time)}' is no time above zero.")
            found.append(_row(row, record[network], name, batch, math.nan if measured is None else measured))
        except InputError as error:
            reasons[row] = str(error)
    read = {network, stated, columns.get(BATCH), time}
    lacking = [*(() if BATCH in columns else (BATCH,)), *(() if time else ("latency_ms",))]
    return EdgeTable(tuple(found), reasons, len(records), misspelled_notes(columns.values(), read, lacking))


def read_measured(path: str | Path, device: str | None = None) -> list[Row]:
    """The rows of a table that state a latency.

    **Raises:** `InputError` as `read_edge`, for a row that cannot be read, and where none states a latency.
    """
    table = read_edge(path, device, timed=True)
    for row, reason in table.reasons.items():
        raise InputError(f"{path}, row {row + 1}: {reason}")
    timed = [row for row in table.found if math.isfinite(row.measured)]
    if not timed:
        name = f"'{device}' or " if device else ""
        raise InputError(f"{path} has no latency; name its column {name}latency_ms (or _s, _us, _ns).")
    return timed


def device_columns(path: str | Path) -> tuple[list[str], dict[str, np.ndarray]]:
    """The networks of a table and, by device, the column of their latencies [s] (HELP's layout).

    **Raises:** `InputError` where there is no such column.
    """
    records = [record for piece in read_pieces(path) for record in piece.to_pylist()]
    columns = standard_columns(path, list(records[0]) if records else [])
    network = _column(path, columns, NETWORK)
    apart = {"arch_idx", *NETWORK, *DEVICE, BATCH}
    numeric = [
        name
        for name, written in columns.items()
        if name not in apart and all(isinstance(record[written], int | float) for record in records)
    ]
    if not numeric:
        raise InputError(f"{path} has no column of latencies; each is named after its device.")
    return [str(record[network]) for record in records], {
        name: MILLI * np.array([record[columns[name]] for record in records], float) for name in numeric
    }


def networks_of(rows: Sequence[Row]) -> np.ndarray:
    """The parsed networks of rows of one space [N, P]."""
    return np.array([row.network for row in rows], int)


def _column(path: str | Path, columns: Mapping[str, str], names: Sequence[str]) -> str:
    for name in names:
        if name in columns:
            return columns[name]
    hint = did_you_mean(names[0], list(columns))
    raise InputError(f"{path}: the column '{names[0]}' is missing (also called {', '.join(names[1:])}).{hint}")


def _time(columns: Mapping[str, str], device: str | None) -> tuple[str, float]:
    """The column of measured latencies and its unit [s]; "" where there is none."""
    key = device_key(device) if device else ""
    for standard, written in columns.items():
        if standard == key:
            return written, MILLI
    for standard, written in columns.items():
        unit = re.search(r"_(\w+)$", standard)
        if is_time(standard) and unit and unit[1] in SECONDS:
            return written, SECONDS[unit[1]]
    return "", 1.0


def _row(row: int, text: Any, device: Any, batch: Any, measured: float) -> Row:
    text = "" if text is None else str(text)
    if device in (None, ""):
        raise InputError("device: none is stated.")
    try:
        space = space_of(text)
        network = SPACES[space].parse(text)
    except InputError as error:
        raise InputError(f"arch: {error}") from None
    return Row(row, space, network, device_key(str(device), batch), measured)


def _latency(cell: Any, unit: float) -> float | None:
    """Seconds, NaN where the cell is empty, None where it holds no time."""
    if cell in (None, "") or cell != cell:
        return math.nan
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value * unit if 0.0 < value < math.inf else None
