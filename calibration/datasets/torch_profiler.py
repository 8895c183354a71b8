"""PyTorch's profiler: the Chrome trace of `export_chrome_trace`, and a CSV of `key_averages()`."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from calibration.datasets.files import read_text
from calibration.datasets.kernel_times import KernelTimes, from_rows, summarize
from calibration.datasets.launches import PROFILED
from calibration.datasets.names import device_name, dtype_name
from calibration.datasets.schema import KernelTable, Problem
from hwspecs.errors import InputError
from jaxperf.io.json_text import parse_json

MICROSECOND = 1e-6
_UNITS = {"ns": 1e-9, "us": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_NAMES = ("Name", "key", "name")
_CALLS = ("# of Calls", "count", "calls")
_SELF_DEVICE = ("Self CUDA", "Self Device", "self_device_time_total", "self_cuda_time_total")
_DEVICE = ("CUDA total", "Device total", "device_time_total", "cuda_time_total")
_SELF_HOST = ("Self CPU", "self_cpu_time_total")
_SHAPES = ("Input Shapes", "input_shapes")


@dataclass(frozen=True)
class Product:
    """One matrix product: `batch` times [m, k] by [k, n], its operation and number format, and its time [s]."""

    op: str
    batch: int
    m: int
    n: int
    k: int
    dtype: str
    time: float


def product_shape(op: str, dims: Any) -> tuple[int, int, int, int] | None:
    """Batch, m, n and k of an aten operation from the sizes of its inputs; None where they do not tell them, as where
    a size is a symbol or 0.

    mm [m,k][k,n]; addmm with a bias before; linear [...,k][n,k], its leading axes all rows; bmm and baddbmm likewise
    with a leading batch axis.
    """
    listed = dims if isinstance(dims, list | tuple) else []
    operands = [list(size) for size in listed if isinstance(size, list | tuple) and size]
    if not all(isinstance(each, int) and each > 0 for size in operands for each in size):
        return None
    match op.removeprefix("aten::"):
        case "mm" if len(operands) >= 2:
            left, right = operands[:2]
        case "addmm" if len(operands) >= 3:
            left, right = operands[1:3]
        case "linear" if len(operands) >= 2 and len(operands[1]) == 2:
            left, right = [math.prod(operands[0][:-1]), operands[0][-1]], operands[1][::-1]
        case "bmm" if len(operands) >= 2:
            left, right = operands[:2]
        case "baddbmm" if len(operands) >= 3:
            left, right = operands[1:3]
        case _:
            return None
    batched = "bmm" in op
    if len(left) != 2 + batched or len(right) != 2 + batched or left[-1] != right[-2]:
        return None
    return (left[0] if batched else 1, left[-2], right[-1], left[-1])


def product_tables(products: Iterable[Product], device: str) -> tuple[KernelTable, ...]:
    """Tables of gemm and bmm: one row for each distinct product, with the median of its times."""
    times: dict[tuple[str, int, int, int, int, str], list[float]] = {}
    for p in products:
        times.setdefault((p.op, p.batch, p.m, p.n, p.k, p.dtype), []).append(p.time)
    tables = []
    for family in ("gemm", "bmm"):
        rows = [(row, key) for row, key in enumerate(times) if ("bmm" in key[0]) == (family == "bmm")]
        if not rows:
            continue
        same = np.array([""] * len(rows), object)
        tables.append(
            KernelTable(
                family=family,
                row=np.array([row for row, _ in rows], np.int64),
                device=np.array([device] * len(rows), object),
                framework=np.array([PROFILED] * len(rows), object),
                version=same,
                kernel=same,
                dtype=np.array([key[5] for _, key in rows], object),
                cache=same,
                shape={
                    name: np.array([key[i] for _, key in rows], np.float64)
                    for i, name in enumerate(("batch", "m", "n", "k"), start=1)
                },
                latency=np.array([median(times[key]) for _, key in rows], np.float64),
                flag=np.zeros(len(rows), np.int64),
                text={"op": np.array([key[0] for _, key in rows], object)},
            )
        )
    return tuple(tables)


def read_torch_trace(path: str | Path) -> KernelTimes:
    """Kernels of a Chrome trace (.json or .json.gz), and its matrix products where `record_shapes=True` was set.

    A product's time is the sum over the kernels that its operation launched, matched by "External id"; it is left out
    where one of them has no time. Problems count the trace's events from 0.
    **Raises:** `InputError` for a file that is no trace or has no kernel with a time.
    """
    trace = parse_json(read_text(path), str(path))
    listed = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(listed, list):
        raise InputError(f"{path} is not a Chrome trace: it has no list 'traceEvents'.")
    events = {row: event for row, event in enumerate(listed) if isinstance(event, dict)}
    kernels = {row: event for row, event in events.items() if str(event.get("cat", "")).lower() == "kernel"}
    if not kernels:
        raise InputError(f"{path} has no kernel event; profile with ProfilerActivity.CUDA.")
    untimed = [row for row, kernel in kernels.items() if math.isnan(_duration(kernel))]
    if len(untimed) == len(kernels):
        raise InputError(f"{path} has no kernel event with a duration: event {untimed[0]}: {_untimed(events, untimed)}")
    alike = (Problem(untimed[0], "dur", _untimed(events, untimed), len(untimed), True),) if untimed else ()
    found = {device_name(str(each.get("name", "")))[0] for each in _properties(trace)}
    device = found.pop() if len(found) == 1 else ""
    launches = [(str(kernel.get("name", "")), _duration(kernel)) for kernel in kernels.values()]
    timed = (launch for launch in launches if not math.isnan(launch[1]))
    products = product_tables(_trace_products(events.values(), kernels.values()), device)
    return summarize(timed, device, products, alike, str(path))


def _untimed(events: Mapping[int, dict[str, Any]], rows: Sequence[int]) -> str:
    given = events[rows[0]].get("dur")
    return f"a kernel's duration must be positive and finite, not {given!r}."


def _properties(trace: Any) -> list[dict[str, Any]]:
    listed = trace.get("deviceProperties", []) if isinstance(trace, dict) else []
    return [each for each in listed if isinstance(each, dict)]


def _duration(event: dict[str, Any]) -> float:
    """Chrome traces count microseconds; NaN for what is no time [s]."""
    duration = event.get("dur")
    number = float(duration) if isinstance(duration, int | float) else math.nan
    return number * MICROSECOND if 0.0 < number < math.inf else math.nan


def _trace_products(events: Iterable[dict[str, Any]], kernels: Iterable[dict[str, Any]]) -> Iterable[Product]:
    spent: dict[Any, float] = {}
    for kernel in kernels:
        identity = _identity(kernel)
        spent[identity] = spent.get(identity, 0.0) + _duration(kernel)
    for event in events:
        arguments = event.get("args")
        if event.get("cat") not in ("cpu_op", "Operator") or not isinstance(arguments, dict):
            continue
        identity = _identity(event)
        shape = product_shape(str(event.get("name", "")), arguments.get("Input Dims", arguments.get("Input dims", [])))
        if shape is not None and identity is not None and not math.isnan(spent.get(identity, math.nan)):
            kinds = [str(kind) for kind in arguments.get("Input type") or ()]
            yield Product(str(event["name"]), *shape, _dtype(kinds), spent[identity])


def _identity(event: dict[str, Any]) -> int | str | None:
    arguments = event.get("args")
    named = arguments.get("External id", arguments.get("external id")) if isinstance(arguments, dict) else None
    return named if isinstance(named, int | str) else None


def _dtype(kinds: list[str]) -> str:
    """The first tensor's format; torch prints "float", "c10::BFloat16", "c10::Half"."""
    return dtype_name(kinds[0].removeprefix("c10::"))[0] if kinds else ""


def read_torch_averages(path: str | Path) -> KernelTimes:
    """Kernels of a CSV of `key_averages()`: as its table prints them ("Self CUDA" = "1.234ms") or by attribute
    (`self_device_time_total`, in microseconds); products where `group_by_input_shape=True` gave "Input Shapes".

    The profiler gives totals, so a median is unknown and a product's time is a mean over its calls. Rows that spend
    time on the host are operations, whose device time their kernels' rows repeat: they count as no kernel.
    **Raises:** `InputError` for a file without these columns.
    """
    reader = csv.DictReader(read_text(path).splitlines())
    header = reader.fieldnames or ()
    name, calls, own, whole, host, shapes = (
        next((known for known in group if known in header), "")
        for group in (_NAMES, _CALLS, _SELF_DEVICE, _DEVICE, _SELF_HOST, _SHAPES)
    )
    if not (name and calls and own):
        wanted = next(group for group, found in ((_NAMES, name), (_CALLS, calls), (_SELF_DEVICE, own)) if not found)
        raise InputError(f"{path} is not a CSV of key_averages(): none of the columns {', '.join(wanted)} is there.")
    kernels: list[tuple[str, int, float, float]] = []
    products: list[Product] = []
    for row in reader:
        place = f"{path}, line {reader.line_num}"
        count = _count(row[calls], place)
        if not host or _time(row[host], place) == 0.0:
            kernels.append((row[name], count, _time(row[own], place), math.nan))
            continue
        shape = product_shape(row[name], _sizes(row[shapes])) if shapes else None
        time = _time(row[whole or own], place)
        if shape is not None and count > 0 and time > 0.0:
            products.append(Product(row[name], *shape, "", time / count))
    return from_rows([row for row in kernels if row[2] > 0.0], "", product_tables(products, ""), (), str(path))


def is_averages(line: str) -> bool:
    """Whether a line names the columns of `key_averages()`."""
    names = set(next(csv.reader([line]), []))
    return all(names & set(group) for group in (_NAMES, _CALLS, _SELF_DEVICE))


def _sizes(text: str | None) -> list[Any]:
    try:
        sizes = parse_json(text or "[]", "sizes")
    except InputError:
        return []
    return sizes if isinstance(sizes, list) else []


def _time(text: str | None, place: str) -> float:
    """A time [s]: "1.234ms" with its unit, or a bare number of microseconds."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(ns|us|μs|ms|s)?\s*", text or "")
    try:
        return float(match[1]) * _UNITS[match[2] or "us"] if match else _refuse(text, place)
    except ValueError:
        return _refuse(text, place)


def _refuse(text: str | None, place: str) -> float:
    raise InputError(f"{place}: {text!r} is not a time.")


def _count(text: str | None, place: str) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise InputError(f"{place}: {text!r} is not a number of calls.") from None
