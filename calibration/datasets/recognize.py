"""Which of the formats people have a file is, told by its first lines, and the reader that goes with it."""

from __future__ import annotations

import gzip
from pathlib import Path

from calibration.datasets import nsys, torch_profiler
from calibration.datasets.files import READ_ERRORS
from calibration.datasets.kernel_times import KernelTimes
from calibration.datasets.nccl_tests import NcclLog, is_nccl_log, read_nccl_log
from calibration.datasets.schema import Read
from calibration.datasets.tables import read_table
from hwspecs.errors import InputError

FORMATS = ("table", "nsys", "torch_trace", "torch_averages", "nccl_log")
_HEAD = 1 << 20  # bytes looked at; launchers print long preambles


def format_of(path: str | Path) -> str:
    """One of `FORMATS`. **Raises:** `InputError` for a file that is missing or none of them."""
    name = Path(path).name.lower()
    if name.endswith((".parquet", ".jsonl")):
        return "table"
    head = _head(path)
    if name.endswith((".json", ".json.gz")):
        return "torch_trace" if '"traceEvents"' in head or '"cat"' in head else "table"
    lines = head.splitlines()
    if any(map(nsys.is_header, lines[:100])):
        return "nsys"
    if is_nccl_log(lines):
        return "nccl_log"
    if name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
        return "torch_averages" if lines and torch_profiler.is_averages(lines[0]) else "table"
    raise InputError(f"{path} is none of the formats that are read: {', '.join(FORMATS)}.")


def read_measured(path: str | Path) -> Read | KernelTimes | NcclLog:
    """The contents of a file of any of the formats.

    **Raises:** `InputError` for a file that is none of them, and what the reader of its format raises.
    """
    match format_of(path):
        case "nsys":
            return nsys.read_nsys(path)
        case "torch_trace":
            return torch_profiler.read_torch_trace(path)
        case "torch_averages":
            return torch_profiler.read_torch_averages(path)
        case "nccl_log":
            return read_nccl_log(path)
    return read_table(path)


def _head(path: str | Path) -> str:
    try:
        with gzip.open(path) if str(path).lower().endswith(".gz") else Path(path).open("rb") as file:
            return file.read(_HEAD).decode("utf-8-sig", errors="replace")
    except READ_ERRORS as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise InputError(f"Cannot read '{path}': {reason}.") from None
