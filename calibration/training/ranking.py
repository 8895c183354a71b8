"""Whether the model orders layouts as they were measured, and what the one it would pick costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.datasets.training import Run
from calibration.orders import ordered_pairs, spearman

LEAST = 3  # layouts of a group; two are ordered rightly by chance
NOISE = 0.056  # what releases of one configuration differ by, median (README.md of the data) [1]
# Deviation of one measurement [log 1]: patch releases (26.04 and 26.04.01) of one layout differ by 1.4 % in the median,
# which is 0.6745 x sqrt(2) deviations.
REPEATED = 0.015
DRAWS = 200


@dataclass(frozen=True)
class Ranked:
    """One group of layouts: `spearman` of the device-seconds a token takes, predicted and measured, `step_spearman` of
    the step times [1]; `regret`: what the layout of the least predicted device-seconds takes over the least measured,
    less 1 [1]; `pairs` of layouts whose measured device-seconds differ by more than `NOISE`, of which `right` are
    predicted in their order; `ceiling`: the mean correlation of the true times with what was measured [1]."""

    group: str
    layouts: int
    spearman: float
    step_spearman: float
    regret: float
    pairs: int
    right: int
    ceiling: float


def ranked_groups(runs: Sequence[Run], predicted: np.ndarray) -> list[Ranked]:
    """Groups of at least `LEAST` layouts of one model on one device at one sequence length; releases of one layout
    count once, by their median.

    **Arguments:** `predicted` [rows] [s].
    """
    groups: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    for run, time in zip(runs, predicted.tolist(), strict=True):
        if math.isfinite(run.measured) and math.isfinite(time):
            per_token = run.devices / (run.global_batch * run.sequence)
            layouts = groups.setdefault(f"{run.group}|{run.sequence}", {})
            times = (time, run.measured)
            layouts.setdefault(_layout(run), []).append((*times, *(per_token * each for each in times)))
    found = []
    for name, layouts in groups.items():
        if len(layouts) >= LEAST:
            columns = np.array([np.median(releases, axis=0) for releases in layouts.values()]).T
            step, step_measured, cost, cost_measured = columns
            regret = cost_measured[np.argmin(cost)] / cost_measured.min() - 1.0
            orders = spearman(cost, cost_measured), spearman(step, step_measured)
            pairs = ordered_pairs(cost, cost_measured, NOISE)
            found.append(Ranked(name, len(cost), *orders, float(regret), *pairs, _ceiling(cost_measured)))
    return found


def _ceiling(measured: np.ndarray) -> float:
    """Mean of Spearman's correlation of values with themselves as they are measured (`REPEATED`), the same draws each
    time; the measured ones stand for the true ones."""
    noise = np.random.default_rng(0).normal(0.0, REPEATED, (DRAWS, len(measured)))
    return float(np.mean([spearman(measured, again) for again in measured * np.exp(noise)]))


def _layout(run: Run) -> str:
    return "|".join(map(str, (run.devices, run.global_batch, run.recompute, *run.layout.values())))
