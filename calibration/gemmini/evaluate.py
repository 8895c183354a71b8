"""Errors of Gemmini's cycles on layers that the fit never saw, Timeloop's and a fitted multiple of them beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.figures import figures
from calibration.gemmini.fit import cycles_of, fit_paces
from calibration.gemmini.rows import RtlRows
from calibration.orders import spearman
from hwspecs.errors import InputError
from jaxperf.loopnest.gemmini import GemminiPace

OURS, TIMELOOP, CONSTANT = "ours", "timeloop", "constant"
LEAST_PROBLEMS = 8  # that a fit with held-out layers takes


@dataclass(frozen=True)
class HeldOut:
    """`pace`: of all rows; `predicted[who]` [rows] [cycle]: with the row's layer held out; `rows`."""

    pace: GemminiPace
    predicted: Mapping[str, np.ndarray]
    rows: RtlRows

    @property
    def residual(self) -> np.ndarray:
        """log predicted / measured [rows], ours."""
        return np.log(self.predicted[OURS] / self.rows.measured)


def hold_out(rows: RtlRows) -> HeldOut:
    """Fit on all layers and without each. Raises `InputError` where there are too few."""
    layers = list(dict.fromkeys(rows.problems))
    if len(layers) < LEAST_PROBLEMS:
        raise InputError(f"{len(layers)} layers have cycles of the RTL; at least {LEAST_PROBLEMS} are needed.")
    fold = np.array([layers.index(problem) for problem in rows.problems])
    weights = np.stack([np.ones(len(fold)), *(1.0 * (fold != each) for each in range(len(layers)))])
    pace, *paces = fit_paces(rows, weights)
    ours, constant = np.empty((2, len(fold)))
    ratio = np.log(rows.measured / rows.timeloop)
    for each, without in enumerate(paces):
        own = fold == each
        ours[own] = np.asarray(cycles_of(without, rows.tilings))[own]
        constant[own] = rows.timeloop[own] * np.exp(np.nanmedian(ratio[~own]))
    return HeldOut(pace, {OURS: ours, TIMELOOP: rows.timeloop, CONSTANT: constant}, rows)


def error_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Rows, mean, median and 90th percentile of the error and Spearman's correlation, ours and the references'."""
    rows = []
    for who, predicted in found.predicted.items():
        stated = np.isfinite(predicted)
        if stated.any():
            measured = found.rows.measured[stated]
            told = figures(np.log(predicted[stated] / measured))
            rows.append({"who": who, **told, "spearman": spearman(predicted[stated], measured)})
    return rows
