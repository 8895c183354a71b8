"""The error table of a parameter card: what `calibrate` measured while it fitted, summed up by family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calibration.intervals import LEAST_QUANTILE
from hwspecs.errors import InputError

UNSEEN_SHAPES = "unseen shapes"
NAMES = ("family", "format", "device", "split")
FIGURES = ("median", "mean", "p90", "roofline_median")
INTERVALS = ("coverage90", "half_width", "interval_score")
REFERENCES = ("roofline_mean", "constant_median", "constant_mean")
LATER = (*INTERVALS, *REFERENCES)  # that cards of earlier fits do not state
MEDIANS = ("median", "roofline_median", "constant_median")


def stated_errors(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The error rows of a card, none where it has none.

    **Raises:** `InputError` for what is no table of errors, saying what to do.
    """
    errors = card.get("errors", [])
    if not isinstance(errors, list) or not all(map(_is_row, errors)):
        raise InputError(
            "The parameters' card has 'errors' that are no table (every row: "
            f"{', '.join((*NAMES, 'rows', *FIGURES))}); make them again with jaxperf calibrate."
        )
    return errors


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in NAMES):
        return False
    stated = [row.get("rows"), *(row.get(name) for name in FIGURES), *(row.get(name, 0.0) for name in LATER)]
    return all(isinstance(value, int | float) for value in stated) and row["rows"] > 0


def few_held_out(card: Mapping[str, Any], families: Iterable[str]) -> list[str]:
    """A sentence for each of the fitted families with fewer held-out rows than a 90 % quantile needs."""
    errors, told = stated_errors(card), []
    for family in sorted(families):
        rows = sum(row["rows"] for row in errors if row["family"] == family and row["split"] == UNSEEN_SHAPES)
        if rows < LEAST_QUANTILE:
            width = "those of Student's distribution" if rows else "assumed, a factor 5 either way"
            told.append(
                f"{family}: {rows} rows were held out, and a 90 % quantile needs {LEAST_QUANTILE}: the intervals of "
                f"measured devices are {width}"
            )
    return told


def by_device(errors: Sequence[Mapping[str, Any]], split: str) -> dict[tuple[str, str], dict[str, float]]:
    """`FIGURES`, `LATER` [%] and rows of each (family, device) under one split, formats weighted by their rows.

    NaN for what a card of an earlier fit does not state.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in errors:
        if row["split"] == split:
            groups.setdefault((row["family"], row["device"]), []).append(row)
    return {cell: _weighted(rows) for cell, rows in groups.items()}


def by_family(errors: Sequence[Mapping[str, Any]], split: str) -> list[dict[str, Any]]:
    """A row a family: the unweighted mean over its devices of `FIGURES` and of the constant's median [%], and its worst
    device by the median."""
    cells = by_device(errors, split)
    found = []
    for family in sorted({family for family, _ in cells}):
        own = {device: figures for (name, device), figures in cells.items() if name == family}
        worst = max(own, key=lambda device: own[device]["median"])
        figures = {
            name: float(np.mean([each[name] for each in own.values()])) for name in (*FIGURES, "constant_median")
        }
        counts = {"devices": len(own), "rows": int(sum(each["rows"] for each in own.values()))}
        told = {"worst_device": worst, "worst_median": own[worst]["median"]}
        found.append({"split": split, "family": family, **counts, **figures, **told})
    return found


def pooled(errors: Sequence[Mapping[str, Any]], split: str) -> dict[str, float]:
    """The unweighted mean over all (family, device) of `MEDIANS` [%], and how many there are."""
    cells = list(by_device(errors, split).values())
    means = {name: float(np.mean([cell[name] for cell in cells])) if cells else float("nan") for name in MEDIANS}
    return means | {"cells": len(cells)}


def intervals(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`INTERVALS` [%] of the 90 % interval, a row a split, family and device for which they were measured."""
    return [
        {"split": split, "family": family, "device": device, "rows": int(figures["rows"])}
        | {name: figures[name] for name in INTERVALS}
        for split in dict.fromkeys(row["split"] for row in errors)
        for (family, device), figures in sorted(by_device(errors, split).items())
        if not np.isnan(figures["coverage90"])
    ]


def _weighted(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    counts = [row["rows"] for row in rows]
    mean = lambda name: float(np.average([row.get(name, np.nan) for row in rows], weights=counts))  # noqa: E731
    return {name: mean(name) for name in (*FIGURES, *LATER)} | {"rows": float(sum(counts))}
