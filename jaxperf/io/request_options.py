"""Columns that a request trace may have besides: the priority of a request, and what of its prompt is computed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxperf.core.cells import float_or_nan
from jaxperf.io.request_cells import PREFILLED, PRIORITY, column_named, is_empty
from jaxperf.io.request_traces import RequestTrace
from jaxperf.io.session_traces import SessionTrace
from jaxperf.models.checks import show
from jaxperf.serving.workloads.drawn import Stage

LARGEST_PRIORITY = 1 << 30


def with_options(trace: RequestTrace) -> tuple[RequestTrace, dict[str, np.ndarray]]:
    """The trace without requests whose cells are wrong, for which `reasons` gains a sentence, and what the others have.

    **Returns:** the trace, and of the columns that the file has `priority` [R], the lowest first and 0 in an empty
    cell, and `brought` [R]: tokens of the prompt whose keys and values come with the request, 0 in an empty cell.
    """
    reasons, found = dict(trace.reasons), {}
    for column, name, limits in _columns(trace):
        cells = [_whole(trace.rows[row].get(column), *limit) for row, limit in zip(trace.row, limits, strict=True)]
        for row, cell in zip(trace.row.tolist(), cells, strict=True):
            if isinstance(cell, str):
                reasons.setdefault(row, f"{column}: {cell}")
        found[name] = np.array([0 if isinstance(cell, str) else cell for cell in cells], int)
    return _without(trace, found, reasons)


def within_context(
    trace: RequestTrace, columns: dict[str, np.ndarray], most: int | None
) -> tuple[RequestTrace, dict[str, np.ndarray]]:
    """The trace and its columns without requests that are longer than a context of `most` tokens, None for any.

    What follows such a request in a session begins with its text, so it is longer still.
    """
    reasons = dict(trace.reasons)
    for row, tokens in zip(trace.row.tolist(), (trace.prompt + trace.output).tolist(), strict=True):
        if most is not None and tokens > most:
            reasons[row] = f"longer than the model's context of {most:,} tokens"
    return _without(trace, columns, reasons)


def _without(
    trace: RequestTrace, found: dict[str, np.ndarray], reasons: dict[int, str]
) -> tuple[RequestTrace, dict[str, np.ndarray]]:
    """The trace and its columns without the rows that have a reason."""
    kept = np.array([row not in reasons for row in trace.row.tolist()], bool)
    hashes = None if trace.hashes is None else [one for one, keep in zip(trace.hashes, kept, strict=True) if keep]
    arrays = {name: getattr(trace, name)[kept] for name in ("row", "arrived", "prompt", "output")}
    whole = dataclasses.replace(trace, **arrays, **_sessions(trace, kept), hashes=hashes, reasons=reasons)
    return whole, {name: values[kept] for name, values in found.items()}


def _sessions(trace: RequestTrace, kept: np.ndarray) -> dict[str, Any]:
    """What a drawn trace has besides of the requests that are kept, with their new numbers."""
    if not isinstance(trace, SessionTrace):
        return {}
    own: dict[str, Any] = {
        "texts": [text for text, keep in zip(trace.texts, kept, strict=True) if keep],
        "stages": [Stage(stage.seconds[kept], stage.servers) for stage in trace.stages],
        **{name: each[kept] for name in ("delay", "asked") if (each := getattr(trace, name)) is not None},
    }
    if trace.after is not None:
        own["after"] = np.append(np.cumsum(kept) - 1, -1)[trace.after[kept]]
    return own


def _columns(trace: RequestTrace) -> list[tuple[str, str, list[tuple[int, int]]]]:
    """The columns that are there: their names in the file and ours, and for each request what is allowed.

    A request that has one token to make needs some of its prompt left to make it from.
    """
    most = np.where(trace.output > 1, trace.prompt, trace.prompt - 1).tolist()
    known = {
        PRIORITY: ("priority", [(-LARGEST_PRIORITY, LARGEST_PRIORITY)] * len(most)),
        PREFILLED: ("brought", [(0, limit) for limit in most]),
    }
    written = {column: column_named(trace.rows[0], [column]) for column in known}
    return [(name, *known[column]) for column, name in written.items() if name is not None]


def _whole(cell: Any, smallest: int, largest: int) -> int | str:
    """A whole number, 0 for an empty cell, or a sentence."""
    if is_empty(cell):
        return 0
    value = float_or_nan(cell)
    if not (smallest <= value <= largest and value == int(value)):
        return f"{show(cell)} is not a whole number from {smallest:,} to {largest:,}"
    return int(value)
