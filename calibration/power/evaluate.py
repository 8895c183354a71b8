"""Errors of the power law on what its fit never saw, and of the power-capped twins of runs without a limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.figures import figures
from calibration.power.fit import POWERS, fit_law, measured_powers
from calibration.power.points import Priced, all_answers, priced_runs
from calibration.power.rows import Run
from hwspecs.errors import InputError
from jaxperf.core.sustained_file import SustainedTable
from jaxperf.serving.techniques.power import PowerLaw

OURS, TDP, CONSTANT = "ours", "tdp", "constant"
TIMES = ("prompt_time", "token_time", "e2e_time")
TWIN = "twin"  # the split that asks for runs under a limit
LEAST_RUNS = 8  # with a power, that a fit with held-out groups takes
LAST_DIGIT = 1e-9  # by which ratios of measured times never agree
LATENCY_TARGET, POWER_TARGET = 0.08, 0.10  # medians on the twins, under which energy counts as calibrated


@dataclass(frozen=True)
class HeldOut:
    """`law`: of all runs without a limit; `predicted[split][who]` by output, NaN where a split does not ask, beside
    `measured[split]` [runs] [s, or 1 of powers]; `runs`: with power, `twins`: under a limit."""

    law: PowerLaw
    runs: tuple[Run, ...]
    twins: tuple[Run, ...]
    predicted: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    measured: Mapping[str, Mapping[str, np.ndarray]]


def hold_out(
    runs: Sequence[Run], rates: SustainedTable, progress: Callable[[str], None] = lambda text: None
) -> HeldOut:
    """Fit the law on the runs without a limit, once on all and once without each group, then ask for the twins.

    **Raises:** `InputError` where too few runs state a power.
    """
    timed = [run for run in runs if np.isfinite([run.prompt_time, run.token_time]).all()]
    free = [run for run in timed if run.limit == 1.0]
    shown = [run for run in free if np.isfinite(run.average_power)]
    if len(shown) < LEAST_RUNS:
        raise InputError(f"{len(shown)} runs without a limit state a power; at least {LEAST_RUNS} are needed.")
    priced = priced_runs(shown, rates)
    progress("priced")
    measured, everything = measured_powers(shown), np.ones(len(shown), bool)
    law = fit_law(priced, measured, everything)
    predicted, told = {}, {}
    for split, names in folds_of(shown).items():
        predicted[split] = _split(priced, measured, names)
        told[split] = dict(zip(POWERS, measured.T, strict=True))
        progress(split)
    before = {run.configuration: run for run in free}
    twins = [run for run in timed if run.limit < 1.0 and run.configuration in before]
    if twins:
        predicted[TWIN] = _twins(law, [before[run.configuration] for run in twins], twins, rates)
        told[TWIN] = {name: np.array([getattr(run, name) for run in twins]) for name in (*TIMES, *POWERS)}
        progress(TWIN)
    return HeldOut(law, tuple(shown), tuple(twins), predicted, told)


def folds_of(runs: Sequence[Run]) -> dict[str, np.ndarray]:
    """Which runs leave together: those of one prompt and batch, whatever the ranks; those of one number of ranks.

    A split of one group would leave nothing to fit: it is not there.
    """
    splits = {
        "configuration": np.array([f"{run.model} {run.prompt:g} x {run.batch:g}" for run in runs]),
        "ranks": np.array([f"{run.model} {run.tensor:g}" for run in runs]),
    }
    return {split: names for split, names in splits.items() if len(set(names)) > 1}


def _split(priced: Sequence[Priced], measured: np.ndarray, names: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Powers of every group by what fits without it: the law, a constant share, and the TDP itself."""
    found = {who: {name: np.full(len(names), np.nan) for name in POWERS} for who in (OURS, CONSTANT, TDP)}
    for fold in dict.fromkeys(names.tolist()):
        own = names == fold
        answers = all_answers(fit_law(priced, measured, ~own), priced, False)
        for name, values in zip(POWERS, measured.T, strict=True):
            found[OURS][name][own] = answers[name][own]
            found[CONSTANT][name][own] = np.nanmedian(values[~own])
            found[TDP][name][own] = 1.0
    return found


def _twins(
    law: PowerLaw, before: Sequence[Run], twins: Sequence[Run], rates: SustainedTable
) -> dict[str, dict[str, np.ndarray]]:
    """Times and powers under the limit from the run without it, by the law and by what people guess instead."""
    limits = np.array([run.limit for run in twins])
    priced = priced_runs(
        [dataclasses.replace(run, limit=limit) for run, limit in zip(before, limits, strict=True)], rates
    )
    same = {name: np.array([getattr(run, name) for run in before]) for name in (*TIMES, *POWERS)}
    rest = np.array([run.rest_time for run in before])
    root = {**same, "prompt_time": same["prompt_time"] * limits ** (-1.0 / 3.0)}
    root["e2e_time"] = root["prompt_time"] + rest
    slowed = {name: same[name] / limits for name in TIMES} | {name: same[name] * limits for name in POWERS}
    return {OURS: all_answers(law, priced, True), "unchanged": same, "cube_root": root, "in_proportion": slowed}


def error_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Runs, mean, median and 90th percentile of the error by split and output, ours and the references' [1].

    An output that no run of a split states has no rows.
    """
    rows = []
    for split, whos in found.predicted.items():
        for output, measured in found.measured[split].items():
            stated = np.isfinite(measured)
            for who, answers in whos.items() if stated.any() else ():
                told = figures(np.log(answers[output][stated] / measured[stated]))
                rows.append({"split": split, "output": output, "who": who, **told})
    return rows


def meets_target(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether energy is calibrated: medians on the twins within the targets; what none of them states is not met."""
    own = {row["output"]: row["median"] for row in rows if row["split"] == TWIN and row["who"] == OURS}
    targets = {**dict.fromkeys(TIMES, LATENCY_TARGET), "average_power": POWER_TARGET}
    return all(own.get(name, np.inf) <= target for name, target in targets.items())


def doubts(found: HeldOut) -> list[str]:
    """What the twins cannot show: a power that none states, times that are another's times one number."""
    if not found.twins:
        return ["The table has no run under a power limit."]
    told, (before, after) = [], (found.predicted[TWIN]["unchanged"], found.measured[TWIN])
    if not np.isfinite(after["average_power"]).any():
        told.append("No run under a power limit states its power.")
    prompt, token = (after[name] / before[name] for name in ("prompt_time", "token_time"))
    if len(prompt) > 1 and max(np.ptp(prompt), np.ptp(token)) < LAST_DIGIT:
        told.append(
            f"Every prompt time under the limit is {prompt[0]:.6g} x, every token time {token[0]:.6g} x the one "
            "without, to the last digit: these rows were computed, not measured."
        )
    return told
