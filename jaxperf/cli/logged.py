"""Times that a file of requests has of its own, of an engine or of another simulator, and how ours agree with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from jaxperf.io.request_traces import RequestTrace

Cells = dict[str, list[Any]]
FIRST_TOKEN_OF_VIDUR = "prefill_completed_at"  # filled too where the file has such a column
# Our column -> the names under which another's times may be in the input.
REFERENCES = {
    "first_token_at": (FIRST_TOKEN_OF_VIDUR, "first_token_at"),
    "completed_at": ("completed_at", "last_token_at"),
    "scheduled_at": ("scheduled_at",),
}
AGREEMENT = 1e-6  # s: requests of a reference that are so close are counted


def agreement(trace: RequestTrace, cells: Cells) -> list[dict[str, Any]]:
    """Where the file has times of its own: how many rows are within 1 us of them, mean and largest distance, of those
    that have a time here too; how many have none is `left_out`."""
    import numpy as np

    found = []
    for ours in REFERENCES:
        name, reference = own_times(trace, ours)
        stated = int(np.isfinite(reference).sum())
        distance = np.abs(np.array(cells[ours], float) - reference)
        distance = distance[np.isfinite(distance)]
        mean, largest = (distance.mean(), distance.max()) if len(distance) else (None, None)
        entry = {
            "column": name,
            "rows": len(distance),
            "left_out": stated - len(distance),
            "within_1us": int((distance <= AGREEMENT).sum()),
            "mean_s": mean,
            "largest_s": largest,
        }
        found += [entry] if stated else []
    return found


def uncompared_notes(trace: RequestTrace) -> list[str]:
    """What the file has in place of times, and is not compared, in sentences."""
    columns = {name for ours in REFERENCES if (name := own_times(trace, ours)[0])}
    return [f"{name} is not compared: {why}" for name in sorted(columns) for why in trace.unread(name)]


def replaced_notes(trace: RequestTrace, cells: Cells) -> list[str]:
    """Which columns of the file give way to those of the answer, in a sentence."""
    names = [name for name in trace.rows[0] if name in cells]
    return [f"the file has columns of the answer's names, which give way to these: {', '.join(names)}"] if names else []


def left_out_notes(trace: RequestTrace) -> list[str]:
    """How many rows are no requests and why, in sentences."""
    return [f"left out ({rows:,}): {reason}" for reason, rows in Counter(trace.reasons.values()).most_common()]


def agreement_words(entry: Mapping[str, Any]) -> str:
    """How the times of one column of the file agree with ours."""
    words = [f"{entry['within_1us']:,} of {entry['rows']:,} within 1 us"]
    if entry["rows"]:
        words.append(f"distance {entry['mean_s']:.3g} s in the mean, {entry['largest_s']:.3g} s at most")
    if entry["left_out"]:
        words.append(f"{entry['left_out']:,} left out, without a time here")
    return f"{entry['column']} of the file: {', '.join(words)}"


def own_times(trace: RequestTrace, ours: str) -> tuple[str, np.ndarray]:
    """The column of the file that has the times of our column `ours`, and its times [rows] s, NaN where it has none."""
    import numpy as np

    from jaxperf.io.request_cells import column_named

    name = column_named(trace.rows[0], REFERENCES[ours])
    return ("", np.full(len(trace.rows), np.nan)) if name is None else (name, trace.times(name))
