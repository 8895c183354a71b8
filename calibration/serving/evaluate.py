"""Errors of serving latencies on what the fit never saw, with roofline and fitted constants beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from calibration.figures import figures
from calibration.serving.fit import FITTED, fitter, log_times, measured_of, weights_of
from calibration.serving.law import Rows, rows_of
from calibration.serving.layouts import Deployed
from calibration.serving.pieces import PRICED, PROMPTS, SEQUENCES, Pieces, pieces_of
from calibration.serving.predict import part_of
from calibration.serving.scalars import Design, design_of, levels_of
from jaxperf.core.sustained import ROOFLINE
from jaxperf.core.sustained_file import SustainedTable

OURS, LINE, CONSTANT = "ours", "roofline", "constant"
RECENTRED = "recentred"  # ours with the median of each series taken off: what its level alone is worth
CAP = "cap"  # the split that asks for power-capped twins
SPLITS = ("group", "model", "engine", "device")
FOLDS = 5  # of the configuration groups


@dataclass(frozen=True)
class HeldOut:
    """Measured configurations with the logarithms of (TTFT, TPOT) by fits that did not see them:
    `log_time[split][who]` [rows, 2] [log s], NaN where a split does not ask; `fitted` [T]: of the fit that saw all."""

    points: tuple[Deployed, ...]
    rows: Rows
    design: Design
    measured: np.ndarray
    log_time: Mapping[str, Mapping[str, np.ndarray]]
    fitted: np.ndarray

    def residual(self, split: str, who: str = OURS) -> np.ndarray:
        """log predicted - log measured [rows, 2]."""
        return self.log_time[split][who] - self.measured


def hold_out(
    points: Sequence[Deployed],
    rates: SustainedTable,
    splits: Sequence[str] = SPLITS,
    progress: Callable[[str], None] = lambda text: None,
) -> HeldOut:
    """Fit measured configurations: once on all, then for each split once without each fold.

    A power-capped twin is never fitted: it is asked for from what its uncapped chip taught.
    """
    rows, design = rows_of(points, rates), design_of(points)
    line = roofline(points, pieces_of(points, rates, ROOFLINE))
    parts, capped = np.array([part_of(point) for point in points]), capped_rows(points)
    measured, weights = measured_of(points), weights_of(points) * ~capped
    progress("priced")
    fit = fitter(design, rows, measured)
    fitted = fit(weights, design.deviation)
    progress("all rows")
    log_time: dict[str, dict[str, np.ndarray]] = {}
    if capped.any():
        ours = np.asarray(log_times(jnp.asarray(fitted), design, rows))
        told = {OURS: ours, CONSTANT: line + constant(measured - line, parts, ~capped), LINE: line}
        log_time[CAP] = {who: np.where(capped[:, None], times, np.nan) for who, times in told.items()}
    for split in splits:
        names = folds_of(points)[split]
        found = {name: np.full(measured.shape, np.nan) for name in (OURS, CONSTANT)} | {LINE: line}
        for name in dict.fromkeys(names.tolist()):
            shown = weights * (names != name)
            asked = (names == name) & ~capped
            found[OURS][asked] = np.asarray(log_times(jnp.asarray(fit(shown, design.deviation)), design, rows))[asked]
            found[CONSTANT][asked] = (line + constant(measured - line, parts, shown > 0.0))[asked]
            progress(f"{split}: {name}")
        log_time[split] = found
    return HeldOut(tuple(points), rows, design, measured, log_time, fitted)


def folds_of(points: Sequence[Deployed]) -> dict[str, np.ndarray]:
    """Which configurations leave together, by split: like configurations in tenths, architectures, engines, devices."""
    groups = [_group(point) for point in points]
    order = {group: place for place, group in enumerate(sorted(set(groups)))}
    return {
        "group": np.array([str(order[group] % FOLDS) for group in groups]),
        "model": np.array([point.architecture for point in points]),
        "engine": np.array([point.configuration.engine for point in points]),
        "device": np.array([point.spec.name for point in points]),
    }


def _group(point: Deployed) -> str:
    """A configuration at all loads; labels of one benchmark that differ in the source only share it."""
    given = point.configuration
    layout = (point.tensor, point.pipeline, point.data, point.expert)
    return "|".join(map(str, (given.engine, point.architecture, given.mode, *layout, point.prompt, point.output)))


def capped_rows(points: Sequence[Deployed]) -> np.ndarray:
    """Rows whose device runs under a lowered power limit [rows]."""
    full = {point.spec.name: max(p.spec.tdp.si for p in points if p.spec.name == point.spec.name) for point in points}
    return np.array([point.spec.tdp.si < full[point.spec.name] for point in points], bool)


def roofline(points: Sequence[Deployed], pieces: Pieces) -> np.ndarray:
    """Logarithms of (prefill of one prompt, decode step of all requests) of closed loops and fixed batches with every
    efficiency 1 [rows, 2] [log s]."""
    times = []
    for place, point in enumerate(points):
        batch = max(1.0, point.concurrency / point.replicas / point.data)
        prompts = batch if point.configuration.mode == "static" else 1.0
        times.append(work(pieces, place, prompts, batch))
    return np.log(times)


def work(pieces: Pieces, place: int, prompts: float, sequences: float) -> tuple[float, float]:
    """Time of the kernels alone of a prefill of `prompts` and of a decode step of `sequences` of one row [s]."""
    prefill, decode = (each[place][:, : len(PRICED)].sum(-1) for each in (pieces.prefill, pieces.decode))
    return float(np.interp(prompts, PROMPTS, prefill)), float(np.interp(sequences, SEQUENCES, decode))


def constant(excess: np.ndarray, parts: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """The median excess over the roofline of the rows shown, of the same part where any is [rows, 2] [log 1]."""
    found = np.broadcast_to(np.nanmedian(excess[shown], axis=0), excess.shape).copy()
    for part in np.unique(parts[shown]):
        found[parts == part] = np.nanmedian(excess[shown & (parts == part)], axis=0)
    return found


def error_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Rows, mean, median and 90th percentile of the error by split, part and output [1]: of us, of both references, and
    of us recentred."""
    parts = np.array([part_of(point) for point in found.points])
    rows = []
    for split in found.log_time:
        residuals = {who: found.residual(split, who) for who in (OURS, CONSTANT, LINE)}
        residuals[RECENTRED] = recentred(found.points, residuals[OURS])
        asked = np.isfinite(found.log_time[split][OURS]).all(1)
        for part in dict.fromkeys(parts[asked].tolist()):
            own = asked & (parts == part)
            for column, output in enumerate(FITTED):
                for who, residual in residuals.items():
                    told = figures(residual[own, column])
                    rows.append({"split": split, "part": part, "output": output, "who": who, **told})
    return rows


def recentred(points: Sequence[Deployed], residual: np.ndarray) -> np.ndarray:
    """Residuals without the median of each series, one architecture in one mode on one engine, release and device
    [rows, 2] [log 1]: no prediction, for it sees what was measured, but the best that knowing each series' level
    could do."""
    levels = levels_of(points)
    series = np.array([f"{kin} | {site}" for kin, site in zip(levels["kin"], levels["site"], strict=True)])
    found = residual.copy()
    for name in np.unique(series):
        for column, values in enumerate(residual.T):
            own = (series == name) & np.isfinite(values)
            if own.any():
                found[own, column] -= np.median(values[own])
    return found
