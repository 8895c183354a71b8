"""Nsight Systems: the CSV of `nsys stats --report cuda_gpu_kern_sum` (by kernel) or `cuda_gpu_trace` (by launch)."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

from calibration.datasets.files import read_text
from calibration.datasets.kernel_times import KernelTimes, from_rows, summarize
from calibration.datasets.latency import SECONDS
from calibration.datasets.names import device_name
from calibration.datasets.schema import Problem
from hwspecs.errors import InputError

_TIMED = re.compile(r"(Total Time|Med|Median|Duration)\s*\((ns|us|μs|ms|s|sec)\)")


def read_nsys(path: str | Path) -> KernelTimes:
    """Kernels of an `nsys stats` CSV; notices before the header and what follows the report are passed over.

    Copies and fills ("[CUDA memcpy HtoD]") are no kernels and are left out. nsys records no shapes.
    **Raises:** `InputError` for a file that is neither report.
    """
    lines = read_text(path).splitlines()
    start = next((i for i, line in enumerate(lines) if is_header(line)), None)
    if start is None:
        raise InputError(
            f"{path} is not a CSV of nsys: no line names the columns 'Total Time (ns)', 'Instances' and 'Name' "
            "(cuda_gpu_kern_sum) or 'Duration (ns)' and 'Name' (cuda_gpu_trace)."
        )
    header = [name.strip() for name in next(csv.reader([lines[start]]))]
    rows: list[tuple[int, dict[str, str]]] = []
    problems: list[Problem] = []
    for row, line in enumerate(lines[start + 1 :]):
        if not line.strip() or line.startswith(("Processing [", "NOTICE:")):
            break
        fields = next(csv.reader([line]))
        if len(fields) == len(header):
            rows.append((row, dict(zip(header, fields, strict=True))))
        else:
            message = f"{len(fields)} fields where the header has {len(header)}."
            problems.append(Problem(row, "Name", message, excluded=True))
    if not rows:
        raise InputError(f"{path} names no kernel.")
    units = {match[1]: (name, SECONDS[match[2]]) for name in header if (match := _TIMED.fullmatch(name))}
    if "Total Time" in units and "Instances" in header:
        return _summary(rows, units, problems, str(path))
    return _trace(rows, units["Duration"], problems, str(path))


def is_header(line: str) -> bool:
    """Whether a line names the columns of one of the two reports."""
    names = {name.strip() for name in next(csv.reader([line]), [])}
    stems = {match[1] for name in names if (match := _TIMED.fullmatch(name))}
    return "Name" in names and ({"Total Time"} <= stems and "Instances" in names or "Duration" in stems)


def _summary(
    rows: list[tuple[int, dict[str, str]]], units: dict[str, tuple[str, float]], problems: list[Problem], path: str
) -> KernelTimes:
    total_name, total_unit = units["Total Time"]
    median_name, median_unit = units.get("Med", units.get("Median", ("", math.nan)))
    found = []
    for position, row in rows:
        try:
            middle = _time(row[median_name]) * median_unit if median_name else math.nan
            found.append((row["Name"], int(row["Instances"]), _time(row[total_name]) * total_unit, middle))
        except ValueError as error:
            problems.append(Problem(position, total_name, f"{error}.", excluded=True))
    return from_rows(found, "", (), tuple(problems), path)


def _trace(
    rows: list[tuple[int, dict[str, str]]], duration: tuple[str, float], problems: list[Problem], path: str
) -> KernelTimes:
    name, unit = duration
    launches, devices = [], set()
    for position, row in rows:
        if row["Name"].startswith("[CUDA "):
            continue
        try:
            launches.append((row["Name"], _time(row[name]) * unit))
        except ValueError as error:
            problems.append(Problem(position, name, f"{error}.", excluded=True))
        # "NVIDIA A100-SXM4-80GB (0)": the number in parentheses tells devices of one kind apart.
        devices.add(device_name(re.sub(r"\s*\(\d+\)$", "", row.get("Device", "")))[0])
    return summarize(launches, devices.pop() if len(devices) == 1 else "", (), tuple(problems), path)


def _time(text: str) -> float:
    """A time above zero. Raises `ValueError`."""
    time = float(text)
    if not 0.0 < time < math.inf:
        raise ValueError(f"a time must be positive and finite, not {text}")
    return time
