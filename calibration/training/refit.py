"""Fit the scalars of the training step, with groups, sources and models held out in turn, and write them.

python -m calibration.training.refit RUNS -o calibration/fitted/training [--params PARAMS]
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from calibration.datasets import data_hash
from calibration.datasets.training import TrainingTable, read_training
from calibration.intervals import quantiles
from calibration.kernels.parameters import Parameters, load_parameters
from calibration.training.evaluate import OURS, HeldOut, error_rows, hold_out
from calibration.training.parameters import TrainingParameters, save_training
from calibration.training.points import Known, known_runs
from calibration.training.scalars import MEASURED, assumed_starts, levels_of
from hwspecs.errors import InputError

PARTS = ("dense", "exploratory")
LEAST_ROWS = 20  # measured runs that a fit with held-out groups takes


def measured_runs(table: TrainingTable) -> Known:
    """The known runs of a table with a time. Raises `InputError` where they are too few."""
    known = known_runs(table)
    kept = [place for place, run in enumerate(known.runs) if np.isfinite(run.measured)]
    if len(kept) < LEAST_ROWS:
        raise InputError(f"{table.path} has {len(kept)} known runs with step_time_s; at least {LEAST_ROWS} are needed.")
    own = {name: tuple(getattr(known, name)[place] for place in kept) for name in Known.PER_RUN}
    return dataclasses.replace(known, **own)


def training_parameters(found: HeldOut, card: Mapping[str, Any]) -> TrainingParameters:
    """What `hold_out` found, as parameters: intervals from the residuals of the split that is like the prediction."""
    explored = found.explored
    known = quantiles(found.residual("group")[~explored])[1]
    unseen = quantiles(found.residual("source")[~explored])[1]
    exploratory = quantiles(found.residual("group")[explored])[1] if explored.any() else unseen
    widths = {"known": known, "unseen": max(known, unseen), "exploratory": max(known, exploratory)}
    stacks, measured = (tuple(sorted(set(levels_of(found.known)[level]))) for level in ("stack generation", MEASURED))
    deviations = dict(zip(found.design.names, map(float, found.fitted), strict=True))
    errors = [row for row in error_rows(found) if row["part"] in PARTS or row["who"] == OURS]
    return TrainingParameters(deviations, assumed_starts(), widths, stacks, measured, {**card, "errors": errors})


def refit(runs: Path, out: Path, params: Path | None, command: str) -> HeldOut:
    """Read, fit, hold out and write."""
    kernels: Parameters = load_parameters(params)
    found = hold_out(measured_runs(read_training(runs)), kernels)
    card = {
        "created": datetime.date.today().isoformat(),
        "command": command,
        "data": [{"file": runs.name, "sha256": data_hash(runs), "rows": len(found.measured)}],
        "kernels": kernels.card.get("sha256"),
    }
    save_training(training_parameters(found, card), out)
    return found


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(description="Fit the scalars of the training step.")
    parser.add_argument("runs", type=Path, help="table of measured training runs")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--params", type=Path, default=None, help="kernel parameters of jaxperf calibrate")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    words = ["python", "-m", "calibration.training.refit", given.runs.name, "-o", given.out.name]
    for row in error_rows(refit(given.runs, given.out, given.params, shlex.join(words))):
        if row["part"] in PARTS:
            told = "  ".join(f"{name} {row[name]:.1%}" for name in ("mean", "median", "p90"))
            print(f"{row['split']:8s} {row['part']:12s} {row['who']:10s} {row['rows']:4d} rows  {told}")


if __name__ == "__main__":
    main()
