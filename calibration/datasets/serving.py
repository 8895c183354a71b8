"""Tables of measured serving: rows that share a configuration as one `Configuration`, the others with a reason."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.datasets.columns import standard_name
from calibration.datasets.files import read_pieces
from calibration.datasets.names import ABSENT, UNSTATED, version_name
from calibration.datasets.spellings import Meaning, absent, places_in, stated
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.cells import float_or_nan
from jaxperf.core.formats import format_name
from jaxperf.io.column_names import misspelled_notes

NEEDED = ("model", "gpu")
# Column -> other names it goes by.
COUNTS: Mapping[str, tuple[str, ...]] = {
    "n_gpu": ("n_gpus", "gpus", "num_gpus"),
    "tp": ("tensor_parallel",),
    "pp": ("pipeline_parallel",),
    "dp": ("data_parallel",),
    "ep": ("expert_parallel",),
}
LOADS: Mapping[str, tuple[str, ...]] = {
    "input_len": ("isl", "prompt_len"),
    "output_len": ("osl",),
    "batch": ("batch_size",),
    "concurrency": ("max_concurrency",),
    "qps": ("request_rate",),
}
TEXTS: Mapping[str, tuple[str, ...]] = {
    "source": (),
    "dtype": ("precision",),
    "framework": ("engine", "backend"),
    "framework_version": ("version",),
    "mode": (),
    "scenario": (),
}
LABELS = ("metric", "value", "unit")
KNOWN: Mapping[str, tuple[str, ...]] = {**dict.fromkeys((*NEEDED, *LABELS), ()), **COUNTS, **LOADS, **TEXTS}
IDENTITY = (*NEEDED, *COUNTS, *LOADS, *TEXTS)
MODES = ("agg", "disagg", "static")
_MODE_SPELLINGS = {"": "agg", "aggregated": "agg", "disaggregated": "disagg", "pd": "disagg", "offline": "static"}
LARGEST = 1e9  # of any count or length; beyond it a cell is a mistake
# What a cell may state, 0 and nothing apart.
ALLOWED = {
    **dict.fromkeys(COUNTS, f"a whole number from 1 to {LARGEST:g}"),
    **dict.fromkeys(("input_len", "output_len"), f"a number from 1 to {LARGEST:g}"),
}
# Metric of a row -> (what it is a label of, SI units of one: seconds a millisecond, 1 a token/s).
METRICS: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(("ttft", "ttft_mean", "prompt_time"), ("ttft", 1e-3)),
    **dict.fromkeys(("tpot", "tpot_mean", "itl", "itl_mean", "token_time"), ("tpot", 1e-3)),
    **dict.fromkeys(("e2e", "e2e_mean", "e2e_time"), ("e2e", 1e-3)),
    **dict.fromkeys(("output_throughput", "output_tokens_per_s", "tokens_per_s"), ("throughput", 1.0)),
}
OUTPUTS = ("ttft", "tpot", "e2e", "throughput")
# Who measured, where `source` does not say: the name in a framework, and scenarios that are MLPerf's alone, which state
# no lengths. Splitwise is called what its rows are called that the fit saw.
CAMPAIGNS: Mapping[str, str] = {"splitwise": "splitwise-sim data/perf_model.csv"}
MLPERF_SCENARIOS = frozenset({"offline", "server", "interactive", "singlestream"})
RELEASE_IN = re.compile(r"\b(?:vllm|sglang|trt-?llm|tensorrt-?llm)[ -]v?(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Configuration:
    """What a group of rows was measured on; NaN or "" where the table does not say.

    `rows`: positions in the table; `weights`: a name of `jaxperf.core.formats`; `counts`: columns `COUNTS` [1];
    `load`: columns `LOADS` [1, qps 1/s]; `engine`: `framework` as one of the names of `engine_name`; `mode`: one of
    `MODES`; `measured`: by `OUTPUTS`, the mean where several rows state one [s, 1/s]; `zeros`: columns of `counts` and
    `load` that state 0, which counts as not stated.
    """

    rows: tuple[int, ...]
    source: str
    model: str
    gpu: str
    weights: str
    engine: str
    version: str
    mode: str
    scenario: str
    counts: Mapping[str, float]
    load: Mapping[str, float]
    measured: Mapping[str, float]
    zeros: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ServingTable:
    """`configurations`: those that could be read; `reasons`: row -> why it could not; `rows` of the file; `notes` on
    all."""

    path: str
    configurations: tuple[Configuration, ...]
    reasons: Mapping[int, str]
    rows: int
    notes: tuple[str, ...] = ()


def read_serving(path: str | Path) -> ServingTable:
    """All configurations of a long table (a row a metric) or a plain one (a row a configuration).

    A row's `value` is read as a label of its `metric` and as nothing else.

    **Raises:** `InputError` for a file that cannot be read or a column that is missing, naming the nearest there is.
    """
    records = [record for piece in read_pieces(path) for record in piece.to_pylist()]
    columns = list(records[0]) if records else []
    places = places_in(path, columns, KNOWN, NEEDED)
    groups: dict[tuple[str, ...], list[int]] = {}
    cells: dict[int, Mapping[str, str]] = {}
    configurations, reasons = [], {}
    for row, record in enumerate(records):
        try:
            cells[row] = _given(record, places)
        except InputError as error:
            reasons[row] = str(error)
            continue
        groups.setdefault(tuple(cells[row].get(name, "") for name in IDENTITY), []).append(row)
    for rows in groups.values():
        try:
            configurations.append(_configuration(rows, [cells[row] for row in rows]))
        except InputError as error:
            reasons |= dict.fromkeys(rows, str(error))
    read = {column for held in places.values() for column in held}
    notes = misspelled_notes(columns, read, absent(KNOWN, places))
    return ServingTable(str(path), tuple(configurations), reasons, len(records), notes)


def _given(record: Mapping[str, Any], places: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Name -> what the row says under any of its columns."""
    meanings: dict[str, Meaning] = {name: functools.partial(_number, name) for name in (*COUNTS, *LOADS)}
    meanings["dtype"] = _format
    return {
        name: stated(name, {column: _text(record[column]) for column in columns}, meanings.get(name))
        for name, columns in places.items()
    }


def _configuration(rows: Sequence[int], cells: Sequence[Mapping[str, str]]) -> Configuration:
    given = cells[0]
    if not given["model"]:
        raise InputError("model: no model is stated.")
    return Configuration(
        rows=tuple(rows),
        source=given.get("source", "") or _campaign(given),
        model=given["model"],
        gpu=given["gpu"],
        weights=_format(given.get("dtype", "")),
        engine=engine_name(given.get("framework", "")),
        version=version_name(given.get("framework_version", ""))[0].lower() or release_in(given.get("framework", "")),
        mode=_mode(given.get("mode", "")),
        scenario=given.get("scenario", "").lower(),
        counts={name: _number(name, given.get(name, "")) for name in COUNTS},
        load={name: _number(name, given.get(name, "")) for name in LOADS},
        measured=_measured(cells),
        zeros=frozenset(name for name in (*COUNTS, *LOADS) if _is_zero(given.get(name, ""))),
    )


def _campaign(given: Mapping[str, str]) -> str:
    """Who measured a row that states no source, by what else it says; "" where nothing tells."""
    framework, scenario = (given.get(name, "").lower() for name in ("framework", "scenario"))
    if scenario in MLPERF_SCENARIOS and not given.get("input_len"):
        return "MLPerf Inference"
    return next((source for name, source in CAMPAIGNS.items() if name in framework), "")


def _measured(cells: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """The mean of what the rows state of each of `OUTPUTS`."""
    found: dict[str, list[float]] = {}
    for given in cells:
        label, scale = METRICS.get(standard_name(given.get("metric", "")), ("", 1.0))
        value = _number("value", given.get("value", ""), strict=False)
        if label and value > 0.0:
            found.setdefault(label, []).append(value * scale)
    return {label: sum(values) / len(values) for label, values in found.items()}


def engine_name(text: str) -> str:
    """The serving engine behind what a table calls its framework; the text in lower case where it names none."""
    name = text.strip().lower()
    for engine, words in (("sglang", ("sglang",)), ("vllm", ("vllm",)), ("trtllm", ("trt", "tensorrt", "nim"))):
        if any(word in name for word in words):
            return engine
    return name


def release_in(text: str) -> str:
    """The release that the name of a framework carries ("vLLM 0.10.0, RHEL 9.6"), or "". "TensorRT 10.2" is none of
    TensorRT-LLM's."""
    found = RELEASE_IN.search(text.lower())
    return found[1] if found else ""


def _text(value: Any) -> str:
    """A cell as text, "" where it is empty."""
    spelled = "" if value is None else str(value).strip()
    return "" if spelled.lower() in ABSENT else spelled


def _number(name: str, text: str, strict: bool = True) -> float:
    """A number from 0 to `LARGEST`; NaN where none is stated, and where it is 0.

    **Raises:** `InputError` for anything else, unless not `strict`.
    """
    if not text:
        return math.nan
    value = float_or_nan(text)
    if 0.0 <= value <= LARGEST:
        return value or math.nan
    if strict:
        allowed = ALLOWED.get(name, f"a number above 0, at most {LARGEST:g}")
        raise InputError(f"{name}: {text!r} must be {allowed}; leave it empty where it is not known.")
    return math.nan


def _is_zero(text: str) -> bool:
    return bool(text) and float(text) == 0.0


def _format(text: str) -> str:
    """The name of a number format, "" where none is stated, as by vLLM's "auto"."""
    spelled = text.lower().removeprefix("torch.")
    try:
        return "" if spelled in ("", *UNSTATED) else format_name(spelled)
    except InputError as error:
        raise InputError(f"dtype: {error}") from None


def _mode(text: str) -> str:
    spelled = text.lower()
    found = _MODE_SPELLINGS.get(spelled, spelled)
    if found not in MODES:
        raise InputError(f"mode: {text!r} is not one of {', '.join(MODES)}.{did_you_mean(spelled, MODES)}")
    return found
