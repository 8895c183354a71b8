"""Fit the scalars of fixed batches, with every device and every generation held out in turn, and write them.

python -m calibration.composition.batches_refit BATCHES ALL_REDUCE... -o calibration/fitted/batches [--params PARAMS]
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.composition.batches import Known, known_batches
from calibration.composition.batches_fit import fit_scalars, groups_of, held_out, log_times, priors, with_points
from calibration.composition.batches_links import Curve, curves_of, lineage, without
from calibration.composition.batches_parameters import PHASES, StepParameters, save_steps
from calibration.composition.batches_points import kind_of, points_of
from calibration.composition.batches_rows import BatchTable, read_batches
from calibration.composition.batches_step import Point
from calibration.datasets import data_hash, read_table
from calibration.datasets.schema import KernelTable
from calibration.intervals import quantiles
from calibration.kernels.parameters import Parameters, load_parameters
from hwspecs.errors import InputError

# 90 % half-width of how devices with HBM differ in the bandwidth they sustain: in the kernel tables, products of few
# rows reach 0.74-0.80 of the datasheet's on A100, 0.82-0.88 on H100, 0.79-0.83 on H200. A single device with HBM among
# the labels cannot show it in residuals.
STREAM_SPREAD = 0.08
# Split -> the tier whose interval its residuals give.
SPLITS = {"row": "measured", "device": "transfer", "generation": "unseen"}


@dataclass(frozen=True)
class HeldOut:
    """Measured batches with the logarithms of (prefill, decode step) by scalars that saw neither the row, nor its
    device, nor its generation: `log_time[split]` [rows, 2]; `fitted`: by those that saw all of them [log s]."""

    known: Known
    measured: np.ndarray
    fitted: np.ndarray
    log_time: Mapping[str, np.ndarray]
    scalars: Mapping[str, float]
    curves: tuple[Curve, ...]

    @property
    def residual(self) -> dict[str, np.ndarray]:
        """log predicted - log measured by split [rows, 2]."""
        return {split: values - np.log(self.measured) for split, values in self.log_time.items()}

    @property
    def folds(self) -> dict[str, list[str]]:
        """Which rows leave together, by split."""
        return _folds(self.known)


def hold_out(table: BatchTable, links: Sequence[KernelTable], kernels: Parameters) -> HeldOut:
    """Fit the batches of a table that have both times: once on all, and for each split once without each fold.

    A device that is held out is held out of the all-reduce curves too; so is its kind's energy where no other
    device has it. **Raises:** `InputError` without batches of two devices.
    """
    known = _measured(known_batches(table))
    measured = np.array([batch.measured for batch in known.batches])
    curves, folds = curves_of(links), _folds(known)
    kinds = sorted({kind_of(known.specs[batch.device]) for batch in known.batches} - {""})
    prior = priors(kinds)
    names, rows = list(prior), len(measured)
    seen = points_of(known.batches, known.models, known.specs, kernels, curves, kinds)
    groups = groups_of(seen, known.models, names)
    scalars = fit_scalars(groups, measured, np.full(rows, True), prior)
    log_time = {}
    for split, fold in folds.items():
        shown = seen if split == "row" else _as_unseen(known, fold, kernels, curves, kinds)
        log_time[split] = held_out(groups, with_points(groups, shown), measured, fold, prior)
    fitted = log_times(groups, scalars, rows)
    return HeldOut(known, measured, fitted, log_time, dict(zip(names, map(float, scalars), strict=True)), curves)


def _measured(known: Known) -> Known:
    """The batches that have both times."""
    kept = [place for place, batch in enumerate(known.batches) if np.isfinite(batch.measured).all()]
    batches = tuple(known.batches[place] for place in kept)
    if len({batch.device for batch in batches}) < 2:
        raise InputError("Batches of at least two devices with prefill_s and decode_step_s are needed.")
    return dataclasses.replace(known, batches=batches, models=tuple(known.models[place] for place in kept))


def _folds(known: Known) -> dict[str, list[str]]:
    return {
        "row": [str(batch.row) for batch in known.batches],
        "device": [batch.device for batch in known.batches],
        "generation": [lineage(known.specs[batch.device]) for batch in known.batches],
    }


def _as_unseen(
    known: Known, fold: Sequence[str], kernels: Parameters, curves: Sequence[Curve], kinds: Sequence[str]
) -> list[Point]:
    """Each batch as it would be predicted had nothing been measured of its fold."""
    most = max(len(batch.prompts) for batch in known.batches)
    points: list[Point | None] = [None] * len(fold)
    for name in dict.fromkeys(fold):
        own = [place for place, each in enumerate(fold) if each == name]
        others = {kind_of(known.specs[known.batches[place].device]) for place in range(len(fold)) if place not in own}
        kept = without(curves, [known.batches[place].device for place in own])
        known_energy = [each if each in others else "" for each in kinds]
        batches, models = [known.batches[place] for place in own], [known.models[place] for place in own]
        made = points_of(batches, models, known.specs, kernels, kept, known_energy, most_prompts=most)
        for place, point in zip(own, made, strict=True):
            points[place] = point
    return [point for point in points if point is not None]


def step_parameters(found: HeldOut, card: Mapping[str, Any]) -> StepParameters:
    """What `hold_out` found, as parameters: intervals from the residuals of the split that is like the prediction."""
    widths: dict[str, tuple[float, float]] = {}
    least = (0.0, 0.0)
    for split, tier in SPLITS.items():  # knowing less never makes an interval narrower
        prefill, decode = _width(found.residual[split])
        decode = float(np.hypot(decode, STREAM_SPREAD if tier == "unseen" else 0.0))
        least = widths[tier] = max(least[0], prefill), max(least[1], decode)
    batches = found.known.batches
    told = {
        "frameworks": sorted({batch.framework for batch in batches}),
        "models": sorted({batch.model for batch in batches}),
        "errors": error_rows(found),
    }
    devices = tuple(sorted({batch.device for batch in batches}))
    return StepParameters(found.scalars, found.curves, widths, devices, {**card, **told})


def _width(residual: np.ndarray) -> tuple[float, float]:
    """Half-widths of the 90 % interval of (prefill, decode step) [log 1]."""
    return quantiles(residual[:, 0])[1], quantiles(residual[:, 1])[1]


def error_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Mean and median error by split and phase over all rows."""
    rows = []
    for split, residual in {"fitted": found.fitted - np.log(found.measured), **found.residual}.items():
        for column, phase in enumerate(PHASES):
            error = np.abs(np.expm1(residual[:, column]))
            figures = {"mean": float(error.mean()), "median": float(np.median(error)), "rows": len(error)}
            rows.append({"split": split, "phase": phase, **figures})
    return rows


def coverage(found: HeldOut, split: str) -> tuple[float, float]:
    """Share of the residuals of a split inside the 90 % interval that the other folds' residuals give, by phase."""
    residual, fold = found.residual[split], np.array(found.folds[split])
    inside = np.zeros(residual.shape, bool)
    for name in dict.fromkeys(found.folds[split]):
        own = fold == name
        inside[own] = np.abs(residual[own]) <= np.array(_width(residual[~own]))
    return float(inside[:, 0].mean()), float(inside[:, 1].mean())


def refit(batches: Path, links: Sequence[Path], out: Path, params: Path | None, command: str) -> HeldOut:
    """Read, fit, hold out and write; `links`: tables of measured all-reduces, the first preferred."""
    table, kernels = read_batches(batches), load_parameters(params)
    found = hold_out(table, all_reduces(links), kernels)
    card = {
        "created": datetime.date.today().isoformat(),
        "command": command,
        "data": [{"file": path.name, "sha256": data_hash(path)} for path in (batches, *links)],
        "kernels": kernels.card.get("sha256"),
    }
    save_steps(step_parameters(found, card), out)
    return found


def all_reduces(paths: Sequence[Path]) -> list[KernelTable]:
    """The collectives of tables. Raises `InputError` for a table that has none."""
    found = [read_table(path).table("collective") for path in paths]
    for path, table in zip(paths, found, strict=True):
        if table is None or table.latency is None:
            raise InputError(f"{path} holds no measured collectives.")
    return [table for table in found if table is not None]


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(description="Fit the scalars of fixed batches.")
    parser.add_argument("batches", type=Path, help="table of measured batches")
    parser.add_argument("links", nargs="+", type=Path, help="tables of measured all-reduces, the first preferred")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--params", type=Path, default=None, help="kernel parameters of jaxperf calibrate")
    given = parser.parse_args()
    names = [path.name for path in (given.batches, *given.links)]
    words = ["python", "-m", "calibration.composition.batches_refit", *names, "-o", given.out.name]
    found = refit(given.batches, given.links, given.out, given.params, shlex.join(words))
    for row in error_rows(found):
        print(f"{row['split']:10s} {row['phase']:12s} mean {row['mean']:.1%}  median {row['median']:.1%}")
    for split in SPLITS:
        print(f"{split:10s} coverage {' '.join(f'{share:.0%}' for share in coverage(found, split))}")


if __name__ == "__main__":
    main()
