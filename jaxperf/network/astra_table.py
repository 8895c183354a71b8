"""A table of ASTRA-sim cases in, their cycles out: row by row, a reason where the simulator has no such case."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError, did_you_mean, letters
from jaxperf.network.astra import astra_cycles
from jaxperf.network.astra_setup import KINDS, Dimension, Settings
from jaxperf.network.astra_steps import ALGORITHMS, COLLECTIVES

REQUIRED = ("backend", "collective", "topology", "npus_per_dim", "bw_GiBps", "lat_ns", "size_bytes", "algorithm")
DEFAULTS = {"endpoint_delay": 10.0, "active_chunks": 1.0, "splits": 4.0, "local_mem_bw": 1600.0}
BACKENDS = ("Aware", "Unaware")
LONGEST = 2**63  # ns; a column of integers ends before
_SEPARATOR = re.compile("[x,*]", re.IGNORECASE)


def predict_astra(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Predict every row of a table with the columns of ASTRA-sim's cases.

    Dimensions are written `8x4`, `8,4` or as a list, inner first; one bandwidth, latency or algorithm stands for all.
    A missing cell of `DEFAULTS` takes the value of the simulator's example system files (inputs/system/Ring.json).

    **Returns:** `predicted_cycles` (ns, `None` where there is none) and `reason` (empty where there is a prediction).
    **Raises:** `InputError` if a required column is missing.
    """
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError(
            f"The table has no column {', '.join(missing)}; ASTRA-sim cases need {', '.join(REQUIRED)}"
            f" and may have {', '.join(DEFAULTS)}.{did_you_mean(missing[0], columns)}"
        )
    names = [name for name in (*REQUIRED, *DEFAULTS, "npus") if name in columns]
    rows = zip(*(columns[name] for name in names), strict=True)
    answers = [_predict_row(dict(zip(names, row, strict=True))) for row in rows]
    return {"predicted_cycles": [cycles for cycles, _ in answers], "reason": [reason for _, reason in answers]}


def unstated(columns: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """What rows leave to `DEFAULTS`, in words -> how many of them do."""
    rows = len(columns[REQUIRED[0]])
    blank = {name: sum(map(_blank, columns.get(name, [None] * rows))) for name in DEFAULTS}
    return {
        f"{name} is not stated: {DEFAULTS[name]:g}, as in the simulator's example": count
        for name, count in blank.items()
        if count
    }


def _predict_row(row: Mapping[str, Any]) -> tuple[int | None, str]:
    try:
        collective = _choice(row, "collective", COLLECTIVES)
        aware = _choice(row, "backend", BACKENDS) == "Aware"
        size = _whole("size_bytes", row["size_bytes"])
        cycles = astra_cycles(collective, _dimensions(row), size, _settings(row), aware)
    except InputError as error:
        return None, str(error)
    except OverflowError:  # of a double on the way
        cycles = LONGEST
    return (cycles, "") if cycles < LONGEST else (None, f"longer than the {LONGEST - 1} ns that can be counted")


def _dimensions(row: Mapping[str, Any]) -> list[Dimension]:
    """The dimensions of one row; every list has one entry for each of them or one entry for all."""
    sizes = [_whole("npus_per_dim", part) for part in _parts(row, "npus_per_dim")]
    if not _blank(row.get("npus")) and _whole("npus", row["npus"]) != math.prod(sizes):
        raise InputError(f"npus is {row['npus']}, but npus_per_dim makes {math.prod(sizes)}")
    kinds = [_nearest("topology", part, KINDS) for part in _spread(row, "topology", len(sizes))]
    rates = [_number("bw_GiBps", part) for part in _spread(row, "bw_GiBps", len(sizes))]
    latencies = [_number("lat_ns", part) for part in _spread(row, "lat_ns", len(sizes))]
    algorithms = [_nearest("algorithm", part, ALGORITHMS) for part in _spread(row, "algorithm", len(sizes))]
    return [Dimension(*values) for values in zip(kinds, sizes, rates, latencies, algorithms, strict=True)]


def _settings(row: Mapping[str, Any]) -> Settings:
    cells = {name: default if _blank(row.get(name)) else row[name] for name, default in DEFAULTS.items()}
    return Settings(
        endpoint_delay=_whole("endpoint_delay", cells["endpoint_delay"]),
        active_chunks=_whole("active_chunks", cells["active_chunks"]),
        splits=_whole("splits", cells["splits"]),
        memory_bandwidth=_number("local_mem_bw", cells["local_mem_bw"]),
    )


def _parts(row: Mapping[str, Any], name: str) -> list[Any]:
    """The entries of a cell such as `8x4`, `[8, 4]`, `(8, 4)` or a sequence."""
    cell = row[name]
    if _blank(cell):
        raise InputError(f"{name} is empty")
    if isinstance(cell, str):
        return [part.strip(" '\"") for part in _SEPARATOR.split(cell.strip("[]() "))]
    return list(cell) if hasattr(cell, "__len__") else [cell]


def _spread(row: Mapping[str, Any], name: str, count: int) -> list[Any]:
    parts = _parts(row, name)
    if len(parts) == 1:
        return parts * count
    if len(parts) != count:
        raise InputError(f"{name} has {len(parts)} entries for {count} dimensions")
    return parts


def _choice(row: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str:
    if _blank(row[name]):
        raise InputError(f"{name} is empty; it is one of {', '.join(allowed)}")
    return _nearest(name, str(row[name]).strip(), allowed)


def _nearest(name: str, text: Any, allowed: Sequence[str]) -> str:
    """`text` as the simulator spells it: case, spaces, dashes and underscores do not matter."""
    text = str(text)
    by_key = {letters(spelling): spelling for spelling in allowed}
    if letters(text) not in by_key:
        raise InputError(f"{name} {text!r} is not one of {', '.join(allowed)}.{did_you_mean(text, allowed)}")
    return by_key[letters(text)]


def _blank(cell: Any) -> bool:
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _number(name: str, cell: Any) -> float:
    try:
        number = float(cell)
    except (TypeError, ValueError):
        raise InputError(f"{name} {cell!r} is not a number") from None
    if not math.isfinite(number):
        raise InputError(f"{name} {cell!r} is not a finite number")
    return number


def _whole(name: str, cell: Any) -> int:
    number = _number(name, cell)
    if number != int(number):
        raise InputError(f"{name} {cell!r} is not a whole number")
    return int(number)
