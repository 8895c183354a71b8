"""Tables of requests with their power, as Splitwise publishes them: one `Run` for all rows of a configuration."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hwspecs
from calibration.datasets.columns import standard_columns
from calibration.datasets.files import read_pieces
from calibration.datasets.names import device_name
from calibration.serving.spelled import CAP_SHARE, CAPPED
from hwspecs import DeviceSpec
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.cells import float_or_nan
from jaxperf.io.huggingface import load_model

TEXTS = ("model", "hardware")
COUNTS = ("tensor_parallel", "prompt_size", "batch_size", "token_size")
MEASURED = ("prompt_time", "token_time", "e2e_time", "average_power", "peak_power")
MILLI = 1e-3
LARGEST = 1e9  # of any count, or time in ms; beyond it a cell is a mistake


@dataclass(frozen=True)
class Run:
    """A configuration: `device` of hwspecs; `limit`: power limit over the TDP [1]; `tensor`, `prompt`, `batch`,
    `output` [1]; medians over its `rows` of the times of the prompt, a token and the whole [s] and of average and peak
    power over the TDP [1], NaN where none is stated."""

    model: str
    device: DeviceSpec
    limit: float
    tensor: float
    prompt: float
    batch: float
    output: float
    prompt_time: float
    token_time: float
    e2e_time: float
    average_power: float
    peak_power: float
    rows: int

    @property
    def rest_time(self) -> float:
        """Time after the prompt [s]: what the whole took beside it, else that of the stated tokens."""
        rest = self.e2e_time - self.prompt_time
        return rest if rest > 0.0 else (self.output - 1.0) * self.token_time

    @property
    def configuration(self) -> tuple[Any, ...]:
        """What a run and its power-capped twin have in common."""
        return (self.model, self.device.name, self.tensor, self.prompt, self.batch, self.output)


@dataclass(frozen=True)
class PowerTable:
    """`runs`; `reasons`: row -> why it is in none."""

    path: str
    runs: tuple[Run, ...]
    reasons: Mapping[int, str]


def read_power(path: str | Path) -> PowerTable:
    """All configurations of a table with the columns `TEXTS`, `COUNTS` and `MEASURED`, powers as shares of the TDP.

    **Raises:** `InputError` for a file that cannot be read, a column that is missing, naming the nearest there is, and
    where no row can be used.
    """
    records = [record for piece in read_pieces(path) for record in piece.to_pylist()]
    if not records:
        raise InputError(f"{path} has no rows.")
    places = _places(path, list(records[0]))
    groups: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    reasons: dict[int, str] = {}
    for row, record in enumerate(records):
        cells = {name: record[place] for name, place in places.items()}
        try:
            key = (*(_text(name, cells[name]) for name in TEXTS), *(_count(name, cells[name]) for name in COUNTS))
            _check_known(*key[:2])
        except InputError as error:
            reasons[row] = str(error)
            continue
        groups.setdefault(key, []).append({name: _measured(cells[name]) for name in MEASURED})
    if not groups:
        raise InputError(f"{path}: no row can be used. The first: {next(iter(reasons.values()))}")
    return PowerTable(str(path), tuple(_run(key, rows) for key, rows in groups.items()), reasons)


def _places(path: str | Path, columns: Sequence[str]) -> dict[str, str]:
    """Name -> the column that holds it."""
    standard, places = standard_columns(path, columns), {}
    for name in (*TEXTS, *COUNTS, *MEASURED):
        if name not in standard:
            raise InputError(f"{path}: the column '{name}' is missing.{did_you_mean(name, columns)}")
        places[name] = standard[name]
    return places


def _run(key: tuple[Any, ...], rows: Sequence[Mapping[str, float]]) -> Run:
    model, hardware, *counts = key
    found = {name: _median([row[name] for row in rows]) for name in MEASURED}
    times = {name: found[name] * MILLI for name in MEASURED if name.endswith("time")}
    powers = {name: found[name] for name in MEASURED if name.endswith("power")}
    return Run(model, *_device(hardware), *counts, **times, **powers, rows=len(rows))


@functools.cache
def _check_known(model: str, hardware: str) -> None:
    """Raises `InputError` for a model or a device that nobody knows, and that so cannot be priced."""
    load_model(model)
    _device(hardware)


@functools.cache
def _device(text: str) -> tuple[DeviceSpec, float]:
    """The device of a label, and the power limit that the label's ending states. Raises `InputError`."""
    name, _ = device_name(CAPPED.sub("", text))
    if not name:
        _, wrong = device_name(text)
        raise InputError(f"hardware: {wrong}")
    return hwspecs.load(name), CAP_SHARE if CAPPED.search(text) else 1.0


def _median(values: Sequence[float]) -> float:
    stated = [value for value in values if math.isfinite(value)]
    return statistics.median(stated) if stated else math.nan


def _text(name: str, cell: Any) -> str:
    text = "" if cell is None else str(cell).strip()
    if not text:
        raise InputError(f"{name} is empty.")
    return text


def _count(name: str, cell: Any) -> float:
    value = float_or_nan(cell)
    if not 1.0 <= value <= LARGEST:
        raise InputError(f"{name} is {cell!r}; it must be a number from 1 to {LARGEST:g}.")
    return value


def _measured(cell: Any) -> float:
    """A measured number; NaN for what is empty, no number, negative, or the 0 that stands for "not measured"."""
    value = float_or_nan(cell)
    return value if 0.0 < value <= LARGEST else math.nan
