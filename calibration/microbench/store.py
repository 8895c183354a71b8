"""A run on disk: the table, and beside it a card that says on what, how, and how disturbed it was measured."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.microbench.run import Row
from hwspecs.errors import InputError
from jaxperf.io.whole_file import write_text

ENDINGS = (".parquet", ".csv")  # the card takes the .json
SCHEMA = 1


def card_path(table: Path) -> Path:
    """Where the card of a table lies."""
    return table.with_suffix(".json")


def save(rows: Sequence[Row], card: Mapping[str, Any], table: Path) -> None:
    """Write the table and its card, each whole or not at all.

    **Raises:** `InputError` for another ending, or a path that cannot be written.
    """
    from jaxperf.io.tables import json_text, write_rows

    if table.suffix.lower() not in ENDINGS:
        raise InputError(f"Cannot write '{table}': the ending must be one of {', '.join(ENDINGS)}.")
    write_rows(rows, table, {"jaxperf": json.dumps({"measured": card.get("created"), "device": card.get("device")})})
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    whole = {"schema": SCHEMA, "table": table.name, "sha256": digest, **card, "families": summary(rows)}
    write_text(json_text(whole) + "\n", card_path(table))


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One entry an operation and format: rows, shortest and longest time [us], median spread of the repeats [1], and
    median of median over fastest [1], which tells how disturbed the run was."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["family"], row["op"], row["dtype"], row["operands"]), []).append(row)
    return [
        {
            **dict(zip(("family", "op", "dtype", "operands"), key, strict=True)),
            "rows": len(each),
            "shortest_us": min(row["latency_us"] for row in each),
            "longest_us": max(row["latency_us"] for row in each),
            "spread": round(statistics.median(row["spread"] for row in each), 4),
            "median_over_fastest": round(statistics.median(row["median_us"] / row["fastest_us"] for row in each), 4),
        }
        for key, each in groups.items()
    ]
