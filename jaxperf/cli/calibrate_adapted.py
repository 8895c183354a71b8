"""What `jaxperf calibrate --adapt` says of the adaptation: devices, software, rows, and the errors on these."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.kernels.adaptation import Adaptation, FileUsed

SHOWN = 2  # so many software stacks of a device are named
TITLE = (
    "Adapted; median errors in percent of the measured time: on the rows that were learned from before and after, and "
    "where the rows of their shape are left out"
)


def adapted_record(found: Sequence[Adaptation], files: Sequence[FileUsed]) -> dict[str, Any]:
    """The adapted families and devices, and how many rows of each file were learned from."""
    return {"devices": list(map(dataclasses.asdict, found)), "files": list(map(dataclasses.asdict, files))}


def adapted_table(found: Sequence[Adaptation]) -> Any:
    """A row a family and device."""
    from jaxperf.report.text import table

    cells = [
        (
            *(each.family, each.device, _named(each.software), f"{each.rows:,}"),
            *map(_percent, (each.before, each.after, each.left_out)),
        )
        for each in found
    ]
    return table(TITLE, ("family", "device", "software", "rows", "before", "after", "left out"), cells)


def unused_sentences(files: Sequence[FileUsed]) -> list[str]:
    """The files some of whose rows were not learned from."""
    return [
        f"{each.path}: {each.rows - each.used:,} of {each.rows:,} rows were not learned from: it takes rows of the "
        "families and devices asked for, with a known device, a time and no flag"
        for each in files
        if each.used < each.rows
    ]


def _named(software: Sequence[str]) -> str:
    more = [f"and {len(software) - SHOWN} more"] if len(software) > SHOWN else []
    return "; ".join([*software[:SHOWN], *more])


def _percent(error: float) -> str:
    return "-" if math.isnan(error) else f"{100.0 * error:.1f}"
