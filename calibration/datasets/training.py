"""Tables of training runs: each row as a `Run`, or the reason why it is none."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hwspecs
from calibration.datasets.files import read_pieces
from calibration.datasets.names import ABSENT, UNSTATED, device_name
from calibration.datasets.spellings import Meaning, absent, places_in, stated
from calibration.datasets.training_columns import (
    ALLOWED,
    EXPERTS,
    FLAGS,
    KNOWN,
    LABEL,
    LARGEST,
    LATENT,
    LAYOUT,
    NEEDED,
    SHAPE,
    TEXTS,
)
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.cells import float_or_nan
from jaxperf.core.formats import format_name
from jaxperf.io.column_names import misspelled_notes
from jaxperf.training.layout import CONTEXT_METHODS, MODULES, SCHEDULES

TASKS = ("pretrain", "sft", "lora")
RECOMPUTE = ("", "none", "selective", "full", "offload")  # "": not stated
_RECOMPUTE_SPELLINGS = {"unknown": "", "false": "none", "true": "full", "no": "none"}
_CONTEXT_SPELLINGS = {"all_gather": "all-gather", "allgather": "all-gather", "p2p": "ring", "a2a": "ulysses"}
_SCHEDULE_SPELLINGS = {name.replace("-", "_"): name for name in SCHEDULES} | {"interleaved_1f1b": "interleaved"}
_TASK_SPELLINGS = {"": "pretrain", "pretraining": "pretrain", "finetune": "sft", "fine_tuning": "sft", "peft": "lora"}


@dataclass(frozen=True)
class Run:
    """One training run; NaN or "" where the table does not say.

    `row`: position in the table; `device`: a name of hwspecs; `dtype`: a name of `jaxperf.core.formats`; `shape`:
    columns `SHAPE`, `EXPERTS` and `LATENT` [1]; `layout`: columns `LAYOUT` and `params`; `devices`, `sequence`,
    `global_batch` [1]; `measured` [s]; `group`, `model_key`: which rows a split keeps together; `repeat`: the same
    configuration as another row; `native`: within what Calculon models; `dtype_stated`: whether `dtype` is not the
    default; `schedule`: of `SCHEDULES`; `recompute_modules`: of `MODULES`, none where the table does not say.
    """

    row: int
    source: str
    model: str
    family: str
    device: str
    devices: int
    sequence: int
    global_batch: int
    dtype: str
    task: str
    recompute: str
    shape: Mapping[str, float]
    layout: Mapping[str, float]
    notes: str
    measured: float
    group: str
    model_key: str
    repeat: bool
    native: bool
    dtype_stated: bool = True
    context_method: str = ""
    schedule: str = ""
    recompute_modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingTable:
    """`runs`: the rows that could be read; `reasons`: row -> why it could not; `rows` of the file; `notes` on all."""

    path: str
    runs: tuple[Run, ...]
    reasons: Mapping[int, str]
    rows: int
    notes: tuple[str, ...] = ()


def read_training(path: str | Path, directories: Sequence[str] = ()) -> TrainingTable:
    """All rows of a table of training runs; of what was measured only `step_time_s` is read, as a label.

    **Raises:** `InputError` for a file that cannot be read or a column that is missing, naming the nearest there is.
    """
    return training_table(path, [record for piece in read_pieces(path) for record in piece.to_pylist()], directories)


def training_table(
    path: str | Path, records: Sequence[Mapping[str, Any]], directories: Sequence[str] = ()
) -> TrainingTable:
    """The runs of `records`, column -> cell, all with the same columns; `path`: where they are from, for messages.

    **Raises:** `InputError` for a column that is missing, naming the nearest there is.
    """
    columns = list(records[0]) if records else []
    places = places_in(path, columns, KNOWN, NEEDED)
    registry = hwspecs.open_registry(directories)
    runs: list[Run] = []
    reasons: dict[int, str] = {}
    for row, record in enumerate(records):
        try:
            runs.append(_run(row, _given(record, places, registry), registry))
        except InputError as error:
            reasons[row] = str(error)
    return TrainingTable(str(path), tuple(runs), reasons, len(records), _misspelled(columns, places))


def _misspelled(columns: Sequence[str], places: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    read = {column for held in places.values() for column in held}
    return misspelled_notes(columns, read, absent(KNOWN, places))


def _given(
    record: Mapping[str, Any], places: Mapping[str, tuple[str, ...]], registry: hwspecs.Registry
) -> dict[str, str]:
    """Name -> what the row says under any of its columns."""
    meanings: dict[str, Meaning] = {"gpu": lambda text: device_name(text, registry)[0], "dtype": _format}
    for name in (*NEEDED, *LAYOUT):
        if name not in ("model", "gpu"):
            meanings[name] = functools.partial(_number, name)
    return {
        name: stated(name, {column: _text(record[column]) for column in columns}, meanings.get(name))
        for name, columns in places.items()
    }


def _run(row: int, given: Mapping[str, str], registry: hwspecs.Registry) -> Run:
    text = {name: given.get(name, "") for name in TEXTS}
    device, wrong = device_name(given["gpu"], registry)
    if not device:
        raise InputError(f"unknown_device: {wrong or 'no device is stated.'}")
    measured = _number(LABEL, given.get(LABEL, ""), strict=False)
    return Run(
        row=row,
        source=text["source"],
        model=given["model"],
        family=text["family"].lower(),
        device=device,
        devices=_needed("n_gpus", given),
        sequence=_needed("seq", given),
        global_batch=_needed("global_batch", given),
        dtype=_format(text["dtype"]),
        task=_choice("task", text["task"], TASKS, _TASK_SPELLINGS),
        recompute=_choice("recompute", text["recompute"], RECOMPUTE, _RECOMPUTE_SPELLINGS),
        shape={name: _number(name, given.get(name, "")) for name in (*SHAPE, *EXPERTS, *LATENT)},
        layout={name: _number(name, given.get(name, "")) for name in (*LAYOUT, "params")},
        notes=text["notes"],
        measured=measured if measured > 0.0 else math.nan,
        group=text["cfg_group"] or "|".join((text["source"], given["model"], device, text["dtype"], text["task"])),
        model_key=text["model_key"] or given["model"].lower(),
        repeat=_true(text["repeat_of_release"]),
        native=_true(text["calculon_native"]),
        dtype_stated=_is_stated(text["dtype"]),
        context_method=_choice(
            "context_method", text["context_method"], ("", *CONTEXT_METHODS), {"": "", **_CONTEXT_SPELLINGS}
        ),
        schedule=_choice("schedule", text["schedule"], ("", *SCHEDULES), _SCHEDULE_SPELLINGS),
        recompute_modules=tuple(
            _choice("recompute_modules", name, MODULES, {})
            for name in re.split(r"[\s,;+]+", text["recompute_modules"])
            if name
        ),
    )


def _text(value: Any) -> str:
    """A cell as text, "" where it is empty; Parquet may hold text as bytes."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    spelled = "" if text is None else str(text).strip()
    return "" if spelled.lower() in ABSENT - {"none"} else spelled


def _needed(name: str, given: Mapping[str, str]) -> int:
    """A whole number from 1 on."""
    if not given[name]:
        raise InputError(f"{name} is not stated; it must be {ALLOWED[name]}.")
    value = _number(name, given[name])
    if not (value >= 1.0 and value == int(value)):
        raise InputError(f"{name}: {given[name]!r} must be {ALLOWED[name]}.")
    return int(value)


def _number(name: str, text: str, strict: bool = True) -> float:
    """A number from 0 to `LARGEST`, of `FLAGS` 1 and 0 for true and false too; NaN where none is stated.

    **Raises:** `InputError` for anything else, unless not `strict`.
    """
    spelled = {"true": "1", "false": "0"}.get(text.lower(), text) if name in FLAGS else text
    if spelled.lower() in ABSENT:
        return math.nan
    value = float_or_nan(spelled)
    if 0.0 <= value <= LARGEST:
        return value
    if strict:
        raise InputError(f"{name}: {text!r} must be {ALLOWED.get(name, f'a whole number from 0 to {LARGEST:g}')}.")
    return math.nan


def _format(text: str) -> str:
    """The name of a number format, bf16 where none is stated."""
    spelled = text.lower().removeprefix("torch.").removeprefix("amp_")
    try:
        return format_name(spelled) if _is_stated(text) else "bf16"
    except InputError as error:
        raise InputError(f"dtype: {error}") from None


def _is_stated(dtype: str) -> bool:
    return dtype.lower() not in ("", *UNSTATED)


def _choice(name: str, text: str, allowed: Sequence[str], spellings: Mapping[str, str]) -> str:
    spelled = text.strip().lower().replace("-", "_")
    found = spellings.get(spelled, spelled)
    if found not in allowed:
        told = ", ".join(each for each in allowed if each)
        raise InputError(f"{name}: {text!r} is not one of {told}.{did_you_mean(spelled, allowed)}")
    return found


def _true(text: str) -> bool:
    return text.lower() in ("true", "1", "1.0", "yes")
