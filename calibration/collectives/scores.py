"""Errors of what `evaluate` held out as rows of a table, and the intervals that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibration.collectives.evaluate import DEVICE, FEW, METHODS, RANKS, SIZES, HeldOut
from calibration.collectives.law_ends import law_ends
from calibration.collectives.parameters import ABOVE, ADAPTED, BELOW, EVERY, LAW, MEASURED, TRANSFER
from calibration.collectives.parameters import DEVICE as KNOWN_DEVICE
from calibration.collectives.points import Points
from calibration.intervals import LEAST_ROWS, quantiles

WHOLE = 1e-6  # a source whose times are all multiples of it is scored beyond half of it [s]
EVERYTHING = "all"
# The split whose residuals give the interval of a tier, the best known first.
WIDTH_OF = {MEASURED: SIZES, ADAPTED: FEW, KNOWN_DEVICE: RANKS, TRANSFER: DEVICE}


def resolution_of(points: Points, measured: np.ndarray) -> np.ndarray:
    """Half a step of what the times are rounded to, told by cell: 0.5 us where nearly all are whole [R] [s]."""
    whole = np.abs(measured / WHOLE - np.rint(measured / WHOLE)) < 1e-3
    cells, which = np.unique(points.named("cell"), return_inverse=True)
    share = np.bincount(which, whole, len(cells)) / np.bincount(which, minlength=len(cells))
    return np.where(share[which] > 0.9, 0.5 * WHOLE, 0.0)


def error_rows(points: Points, measured: np.ndarray, found: Mapping[str, HeldOut]) -> list[dict[str, Any]]:
    """A row a split and group: all rows, each kernel of an operation, each system; see `error_row`."""
    resolution = resolution_of(points, measured)
    names = points.names
    kernels = np.array(["/".join((*name.split("/")[:1], *name.split("/")[4:5])) for name in names["kernel"]])
    groups = {"kernel": kernels[points.group], "system": points.named("system")}
    rows = []
    for split, held in found.items():
        scored = np.flatnonzero(held.scored)
        if not len(scored):
            continue
        rows.append(error_row(split, EVERYTHING, EVERYTHING, held, measured, resolution, scored))
        for by, values in groups.items():
            for name in np.unique(values[scored]):
                own = scored[values[scored] == name]
                rows.append(error_row(split, by, str(name), held, measured, resolution, own))
    return rows


def error_row(
    split: str, by: str, name: str, held: HeldOut, measured: np.ndarray, resolution: np.ndarray, rows: np.ndarray
) -> dict[str, Any]:
    """Median, mean and 90th percentile of |predicted - measured| / measured by method, beyond the resolution."""
    figures: dict[str, Any] = {"split": split, "by": by, "name": name, "rows": len(rows)}
    for method in METHODS:
        difference = np.abs(held.time[method][rows] - measured[rows])
        error = np.maximum(difference - resolution[rows], 0.0) / measured[rows]
        error = error[np.isfinite(error)]
        for figure, reduce in (("median", np.median), ("mean", np.mean), ("p90", lambda e: np.quantile(e, 0.9))):
            figures[f"{method}_{figure}"] = float(reduce(error)) if len(error) else float("nan")
    return figures


def interval_widths(points: Points, measured: np.ndarray, found: Mapping[str, HeldOut]) -> dict[str, dict[str, float]]:
    """Half-widths of the 90 % interval by tier and kind [log 1]; knowing less never makes one narrower. Of the law
    alone both ends apart (`law_ends`)."""
    kind = points.named("kind")
    widths: dict[str, dict[str, float]] = {}
    least: dict[str, float] = {}
    for tier, split in WIDTH_OF.items():
        rows = np.flatnonzero(found[split].scored)
        residual = np.log(found[split].time["ours"][rows] / measured[rows])
        own = _by_kind(residual, kind[rows])
        least = {name: max(width, least.get(name, 0.0)) for name, width in own.items()}
        widths[tier] = least
    law = found[SIZES].time["law"]
    known = np.isfinite(law)
    residual = np.log(law[known] / measured[known])
    widths[LAW] = {EVERY: max(quantiles(residual)[1], least[EVERY])}
    below, above = law_ends(residual, kind[known])
    if below + above >= 2.0 * least[EVERY] and min(below, above) >= 0.0:
        widths[LAW] |= {BELOW: below, ABOVE: above}
    return widths


def coverage(points: Points, measured: np.ndarray, held: HeldOut) -> float:
    """Share of the rows inside the 90 % interval that the residuals of the other folds give."""
    kind = points.named("kind")
    rows = np.flatnonzero(held.scored)
    residual = np.log(held.time["ours"][rows] / measured[rows])
    inside = np.zeros(len(rows), bool)
    for fold in np.unique(held.fold[rows]):
        own = held.fold[rows] == fold
        widths = _by_kind(residual[~own], kind[rows][~own])
        half = np.array([widths.get(name, widths[EVERY]) for name in kind[rows][own]])
        inside[own] = np.abs(residual[own]) <= half
    return float(inside.mean()) if len(rows) else float("nan")


def _by_kind(residual: np.ndarray, kind: np.ndarray) -> dict[str, float]:
    """Conformal 90 % quantile of every kind with enough rows, and of all."""
    names, count = np.unique(kind, return_counts=True)
    found = {str(name): quantiles(residual[kind == name])[1] for name in names[count >= LEAST_ROWS]}
    return {EVERY: quantiles(residual)[1], **found}
