"""Tables of fixed batches: each row as a `Batch`, or the reason why it is none."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hwspecs
from calibration.datasets.files import read_pieces
from calibration.datasets.names import device_name, dtype_name, framework_name
from calibration.datasets.spellings import Meaning, absent, places_in, stated
from hwspecs.errors import InputError
from jaxperf.core.cells import float_or_nan
from jaxperf.io.column_names import misspelled_notes
from jaxperf.io.json_text import parse_json

# Column -> other names it goes by.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("device",),
    "tp": ("tensor_parallel",),
    "model": (),
    "dtype": ("precision",),
    "framework": ("engine", "backend"),
    "batch": ("batch_size",),
    "output_len": ("output", "osl"),
    "prompt_lengths": ("prompts",),
}
NEEDED = [name for name in COLUMNS if name not in ("dtype", "framework", "batch")]
LABELS = ("prefill_s", "decode_step_s")
MOST_TOKENS = 2**27  # of a batch; beyond it a row is a mistake
MOST_PROMPTS = 2**16


@dataclass(frozen=True)
class Batch:
    """One fixed batch: all prompts prefilled together, then decoded for `output` steps.

    `row`: position in the table; `device`: a name of hwspecs; `dtype`: one of `names.DTYPES`; `prompts`: tokens of
    each; `measured`: (prefill, decode step) [s], NaN where the table has none.
    """

    row: int
    device: str
    ranks: int
    model: str
    dtype: str
    framework: str
    prompts: tuple[int, ...]
    output: int
    measured: tuple[float, float]


@dataclass(frozen=True)
class BatchTable:
    """`batches`: the rows that could be read; `reasons`: row -> why it could not; `records`: all rows as they are;
    `notes` on all."""

    path: str
    batches: tuple[Batch, ...]
    reasons: Mapping[int, str]
    records: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return len(self.records)


def read_batches(path: str | Path, directories: Sequence[str] = ()) -> BatchTable:
    """All rows of a table with the columns `COLUMNS`; `prompt_lengths` is a list, in text as JSON.

    **Raises:** `InputError` for a file that cannot be read or a column that is missing, naming the nearest there is.
    """
    records = [record for piece in read_pieces(path) for record in piece.to_pylist()]
    columns = list(records[0]) if records else []
    places = places_in(path, columns, {**COLUMNS, **dict.fromkeys(LABELS, ())}, NEEDED)
    labels = [places.pop(name, ("",))[0] for name in LABELS]
    registry = hwspecs.open_registry(directories)
    batches: list[Batch] = []
    reasons: dict[int, str] = {}
    for row, record in enumerate(records):
        try:
            given = _given(record, places, registry)
            batches.append(_batch(row, given, tuple(_label(record.get(name)) for name in labels), registry))
        except InputError as error:
            reasons[row] = str(error)
    read = {*labels, *(column for held in places.values() for column in held)}
    return BatchTable(
        str(path), tuple(batches), reasons, records, misspelled_notes(columns, read, absent(COLUMNS, places))
    )


def _given(
    record: Mapping[str, Any], places: Mapping[str, tuple[str, ...]], registry: hwspecs.Registry
) -> dict[str, Any]:
    """Name -> the cell of the first of its columns that has one; numbers and devices alike in all of them."""
    meanings: dict[str, Meaning] = {
        "gpu": lambda text: device_name(text, registry)[0],
        **{name: functools.partial(_count, name) for name in ("tp", "output_len")},
    }
    given: dict[str, Any] = {}
    for name, columns in places.items():
        cells = {column: record[column] for column in columns if record[column] not in (None, "")}
        stated(name, {column: str(cell) for column, cell in cells.items()}, meanings.get(name))
        given[name] = next(iter(cells.values()), None)
    return given


def _batch(row: int, given: Mapping[str, Any], measured: tuple[float, ...], registry: hwspecs.Registry) -> Batch:
    device, wrong = device_name(str(given["gpu"] or ""), registry)
    if not device:
        raise InputError(f"gpu: {wrong or 'no device is stated.'}")
    dtype, wrong = dtype_name(str(given.get("dtype") or ""))
    if wrong:
        raise InputError(f"dtype: {wrong}")
    framework = framework_name(str(given.get("framework") or ""))[0]
    prompts = _lengths(given["prompt_lengths"])
    stated = given.get("batch")
    if stated not in (None, "") and _count("batch", stated) != len(prompts):
        raise InputError(f"batch: {stated} is stated, but prompt_lengths holds {len(prompts)}.")
    model = str(given["model"] or "").strip()
    if not model:
        raise InputError("model: none is stated.")
    ranks, output = _count("tp", given["tp"]), _count("output_len", given["output_len"])
    return Batch(row, device, ranks, model, dtype, framework, prompts, output, (measured[0], measured[1]))


def _lengths(value: Any) -> tuple[int, ...]:
    """The prompt lengths of a cell: a list, or its JSON."""
    if isinstance(value, str):
        try:
            value = parse_json(value, "prompt_lengths")
        except InputError:
            raise InputError(f"prompt_lengths: {value[:40]!r} is not a JSON list, such as [1024, 512].") from None
    if not isinstance(value, list | tuple) or not value:
        raise InputError("prompt_lengths must be a list of at least one length, such as [1024, 512] for two prompts.")
    if len(value) > MOST_PROMPTS:
        raise InputError(f"prompt_lengths has {len(value):,} entries; at most {MOST_PROMPTS:,} are allowed.")
    lengths = tuple(_count("prompt_lengths", each) for each in value)
    if sum(lengths) > MOST_TOKENS:
        raise InputError(f"prompt_lengths add up to {sum(lengths):,} tokens; at most {MOST_TOKENS:,} are allowed.")
    return lengths


def _count(name: str, value: Any) -> int:
    """A whole number from 1 on."""
    number = float_or_nan(value)
    if not (1.0 <= number <= MOST_TOKENS and number == int(number)):
        raise InputError(f"{name}: {value!r} must be a whole number from 1 to {MOST_TOKENS:,}.")
    return int(number)


def _label(value: Any) -> float:
    """A measured time [s]; NaN where there is none or it is no positive number."""
    number = float_or_nan(value)
    return number if 0.0 < number < math.inf else math.nan
