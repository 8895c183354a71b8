"""Predict the iterations of a table: time, interval, what the device and the host work, plain roofline, and tier."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.composition.context_predict import predict_context
from calibration.composition.graph_answers import NO_MODEL, Answer, Prediction, Width, predict_able
from calibration.composition.parallel import ONE_DEVICE
from calibration.composition.parallel_predict import predict_parallel
from calibration.composition.row_graphs import Graphs, taken
from calibration.composition.rows import Row
from calibration.kernels.hardware import load_hardware
from calibration.kernels.parameters import Parameters
from calibration.kernels.remarks import NO_GPU, told
from jaxperf.models.composition import Composition
from jaxperf.models.graph_steps import Laid, lay_out

__all__ = ["GraphParameters", "Prediction", "Width", "predict_rows"]

MILLI = 1e3
NO_KERNEL = "the graph launches no kernel"
NUMBERS = ("predicted_ms", "lower_ms", "upper_ms", "kernel_ms", "host_ms", "roofline_ms", "exposed_communication_ms")
FRACTION = "exposed_communication_fraction"
ADDED = (*NUMBERS, FRACTION, "tier", "reason")  # columns, in their order


@dataclass(frozen=True)
class GraphParameters:
    """Compositions by variant, fitted kernels, the width of intervals, and the card."""

    compositions: Mapping[str, Composition]
    kernels: Parameters
    width: Width
    card: Mapping[str, Any]


def predict_rows(
    rows: Sequence[Row], graphs: Graphs, parameters: GraphParameters, directories: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The columns of a table of rows: `NUMBERS` [ms], `FRACTION` of the predicted time [1], `tier` and `reason`, NaN
    and "" where there is no prediction.

    **Raises:** `InputError` for a graph that is not understood.
    """
    numbers = {name: np.full(len(rows), np.nan) for name in (*NUMBERS, FRACTION)}
    texts = {name: np.full(len(rows), "", dtype=object) for name in ("tier", "reason")}
    for row, one, note in _predicted(rows, graphs, parameters, directories):
        texts["reason"][row.place] = note
        if one is None:
            continue
        half = parameters.width.half(one)
        ends = (one.time * math.exp(-half), one.time * math.exp(half))
        times = (one.time, *ends, one.kernel, one.host, one.roofline, one.exposed)
        for name, value in zip(NUMBERS, times, strict=True):
            numbers[name][row.place] = MILLI * value
        numbers[FRACTION][row.place] = one.exposed / one.time
        texts["tier"][row.place] = one.tier
    return {**numbers, **texts}


def _predicted(
    rows: Sequence[Row], graphs: Graphs, parameters: GraphParameters, directories: Sequence[str]
) -> list[Answer]:
    """Every row with its answer, in another order."""
    asked = [row for row in rows if not row.reason]
    several = [row for row in asked if row.layout != ONE_DEVICE]
    given = (parameters.compositions, parameters.kernels, directories)
    parallel = [
        *predict_parallel([row for row in several if row.layout.context_parallel == 1], *given),
        *predict_context([row for row in several if row.layout.context_parallel > 1], *given),
    ]
    found = [
        *((row, one, _together(note, graphs.unused(row))) for row, one, note in parallel),
        *_alone([row for row in asked if row.layout == ONE_DEVICE], graphs, parameters, directories),
    ]
    noted = [(row, one, _together(note, _of_device(row, one, directories))) for row, one, note in found]
    return [*((row, None, row.reason) for row in rows if row.reason), *noted]


def _of_device(row: Row, one: Prediction | None, directories: Sequence[str]) -> str:
    """That a device's kernels, of which none was measured, follow a law that was made for other kinds of cores."""
    if one is None or one.tier != "transfer":
        return ""
    return "" if load_hardware([row.device], directories).many_cores[0] > 0.0 else told(NO_GPU)


def _alone(
    rows: Sequence[Row], graphs: Graphs, parameters: GraphParameters, directories: Sequence[str]
) -> list[Answer]:
    """The answers of iterations on one device."""
    found: list[Answer] = []
    laid: dict[tuple, Laid] = {}
    able, notes = [], []
    for row in rows:
        graph, note = graphs.of(row)
        if graph is not None and row.configuration not in laid:
            laid[row.configuration] = lay_out(graph)
        if graph is None or not laid[row.configuration].ops:
            found.append((row, None, note if graph is None else NO_KERNEL))
            continue
        able.append(row)
        notes.append(note)
    answers = predict_able(able, laid, parameters.compositions, parameters.kernels, directories)
    for row, one, note in zip(able, answers, notes, strict=True):
        told = _together(note, taken(row), _unknown(laid[row.configuration].unknown))
        found.append((row, one, told) if math.isfinite(one.time) else (row, None, NO_MODEL))
    return found


def _together(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _unknown(unknown: Mapping[str, int]) -> str:
    """Which unknown operations were taken for plain movement of their bytes."""
    if not unknown:
        return ""
    named = ", ".join(f"{count} {name}" for name, count in Counter(unknown).most_common(5))
    more = len(unknown) - 5
    return f"taken for plain movement: {named}" + (f" and {more} kinds more" if more > 0 else "")
