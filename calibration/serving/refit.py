"""From a table of measured serving to stored scalars with the intervals that held-out residuals give."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets.files import data_hash
from calibration.datasets.serving import ServingTable, read_serving
from calibration.intervals import quantiles
from calibration.serving.evaluate import HeldOut, capped_rows, error_rows, folds_of, hold_out
from calibration.serving.layouts import Deployed, deployed
from calibration.serving.parameters import PARTS, ServingParameters, save_serving
from calibration.serving.predict import part_of
from calibration.serving.scalars import levels_of
from hwspecs.errors import InputError
from jaxperf.core.sustained_file import load_sustained_table

# Tier -> the splits whose residuals are like it; knowing less never makes an interval narrower.
TIER_SPLITS: Mapping[str, tuple[str, ...]] = {"known": ("group",), "transfer": ("model",), "unseen": ("engine",)}
UNGATED = "MLPerf"  # sources that state no layout and no lengths: reported, never fitted
LEAST_ROWS = 20  # a part with fewer held-out rows has the interval of all


def measured_points(table: ServingTable) -> list[Deployed]:
    """The configurations of a table to fit: with latencies, and a layout and lengths that the table states.

    **Raises:** `InputError` where there are none.
    """
    points, _ = deployed(table)
    kept = [
        point
        for point in points
        if {"ttft", "tpot"} & set(point.configuration.measured)
        and not point.configuration.source.startswith(UNGATED)
        and np.isfinite(point.concurrency)
    ]
    if len({point.architecture for point in kept}) < 2:
        raise InputError(f"{table.path}: measured ttft or tpot of at least two models in closed loops are needed.")
    return kept


def serving_parameters(found: HeldOut, card: Mapping[str, Any]) -> ServingParameters:
    """What `hold_out` found, as parameters."""
    shown = [point for point, capped in zip(found.points, capped_rows(found.points), strict=True) if not capped]
    kin = tuple(sorted(set(levels_of(shown)["kin"])))
    deviations = dict(zip(found.design.names, map(float, found.fitted), strict=True))
    return ServingParameters(deviations, widths_of(found), kin, {**card, "errors": error_rows(found)})


def widths_of(found: HeldOut) -> dict[str, dict[str, tuple[float, ...]]]:
    """Half-widths of the 90 % interval by tier, part and output [log 1]."""
    parts = np.array([part_of(point) for point in found.points])
    widths: dict[str, dict[str, tuple[float, ...]]] = {}
    least = dict.fromkeys(PARTS, np.zeros(3))
    for tier, splits in TIER_SPLITS.items():
        residual = np.concatenate([_with_total(found, split) for split in splits])
        names = np.tile(parts, len(splits))
        for part in PARTS:
            own = residual[names == part] if (names == part).sum() >= LEAST_ROWS else residual
            least[part] = np.maximum(least[part], _half_widths(own))
        widths[tier] = {part: tuple(map(float, least[part])) for part in PARTS}
    return widths


def coverage(found: HeldOut, split: str) -> np.ndarray:
    """Share of the residuals of a split inside the 90 % interval that those of the other folds give, by output [3]."""
    residual, names = _with_total(found, split), folds_of(found.points)[split]
    parts = np.array([part_of(point) for point in found.points])
    inside = np.full(residual.shape, np.nan)
    for name in dict.fromkeys(names.tolist()):
        for part in PARTS:
            own, others = (names == name) & (parts == part), (names != name) & (parts == part)
            shown = residual[others] if others.sum() >= LEAST_ROWS else residual[names != name]
            inside[own] = np.abs(residual[own]) <= _half_widths(shown)
    return np.array([column[np.isfinite(values)].mean() for column, values in zip(inside.T, residual.T, strict=True)])


def _half_widths(residual: np.ndarray) -> np.ndarray:
    """90 % quantiles of each column over its finite rows [log 1]."""
    return np.array([quantiles(column[np.isfinite(column)])[1] for column in residual.T])


def _with_total(found: HeldOut, split: str) -> np.ndarray:
    """Residuals of TTFT, TPOT and of what they make of a request, TTFT + (output - 1) TPOT [rows, 3]."""
    after = np.array([max(point.output - 1.0, 1.0) for point in found.points])
    predicted, measured = found.log_time[split]["ours"], found.measured
    total = lambda times: np.log(np.exp(times[:, 0]) + after * np.exp(times[:, 1]))  # noqa: E731
    return np.column_stack([predicted - measured, total(predicted) - total(measured)])


def refit(path: Path, out: Path, command: str, progress: Callable[[str], None] = print) -> HeldOut:
    """Read, fit, hold out and write."""
    table, rates = read_serving(path), load_sustained_table()
    found = hold_out(measured_points(table), rates, progress=progress)
    card = {
        "created": datetime.date.today().isoformat(),
        "command": command,
        "data": [{"file": path.name, "sha256": data_hash(path), "configurations": len(found.points)}],
        "rates": rates.path,
    }
    save_serving(serving_parameters(found, card), out)
    return found
