"""The verdict on the points of a search: the best of each configuration or why it has none, the front, the nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxperf.core.feasible import sentences
from jaxperf.serving.plan.engines import Candidate, EngineFacts
from jaxperf.serving.plan.request import Choice, Columns, Refused, Request
from jaxperf.serving.plan.space import SHARES, Configuration
from jaxperf.serving.plan.study import Study
from jaxperf.sweeps.pareto import non_dominated

ALIKE = 0.999  # of the most tokens/s/device: then the shorter E2E is better
NO_ROOM = "no division of the devices serves the rate"


def _missed(request: Request, points: Columns) -> np.ndarray:
    """The largest factor by which each point misses a limit, below 1 where it keeps all [rows]."""
    # A latency that no request has keeps any limit: TPOT of single tokens.
    factors = [points[f"{name}_at"] / limit for name, limit in request.slo.items()]
    unlimited = np.where(np.isfinite(points["ttft"]), 0.0, np.nan)
    return np.where(np.isnan(unlimited), np.inf, np.fmax.reduce([unlimited, *factors]))


def verdicts(
    study: Study, configurations: Sequence[Configuration], points: Columns
) -> tuple[list[Choice], list[Refused]]:
    """The best point of each configuration, or why there is none."""
    choices, refused = [], []
    if not points:
        return choices, [Refused(each, NO_ROOM) for each in configurations]
    missed = _missed(study.request, points)
    for place, configuration in enumerate(configurations):
        rows = np.flatnonzero(points["configuration"] == place)
        kept = rows[missed[rows] <= 1.0]
        if len(kept):
            served = points["tokens_per_second_per_device"][kept]
            equal = kept[served >= ALIKE * served.max()]
            best = equal[np.argmin(points["e2e"][equal])]
            row = {name: values[best].item() for name, values in points.items()}
            choices.append(Choice(configuration, row, {}, {}, terms_of(study, configuration, row), _bound(study, row)))
        else:
            refused.append(Refused(configuration, _why_not(study.request, points, rows, missed)))
    return choices, refused


def _why_not(request: Request, points: Columns, rows: np.ndarray, missed: np.ndarray) -> str:
    """One sentence: what the best point of a configuration fails on."""
    if not len(rows) or not np.isfinite(missed[rows]).any():
        return NO_ROOM if not len(rows) else "overloaded: it cannot serve the rate"
    best = rows[np.argmin(missed[rows])]
    failed = [
        f"{name} {points[f'{name}_at'][best] * 1e3:.3g} ms, limit {limit * 1e3:.3g} ms"
        for name, limit in request.slo.items()
        if points[f"{name}_at"][best] > limit
    ]
    return f"nearest {request.at}: {'; '.join(failed)}"


def terms_of(study: Study, configuration: Configuration, row: Mapping[str, float]) -> dict[str, float]:
    """Device-seconds of a request: what its prompt and its output take, and what is idle so that limits are kept."""
    engine = study.candidates[configuration.engine].devices
    prefill = engine if configuration.prefill is None else study.candidates[configuration.prefill].devices
    used = {"prompts": prefill * row["prompts"], "outputs": engine * row["outputs"]}
    return used | {"idle": max(row["devices"] / row["rate"] - sum(used.values()), 0.0)}


def _bound(study: Study, row: Mapping[str, float]) -> str:
    """The limit that a point is nearest to; "rate" where the load is given, "load" where no limit is near."""
    if study.request.rate is not None:
        return "rate"
    factors = {name: row[f"{name}_at"] / limit for name, limit in study.request.slo.items()}
    nearest = max((name for name in factors if not np.isnan(factors[name])), key=factors.__getitem__, default="")
    return nearest if row["utilization"] < max(SHARES) - 0.01 and nearest else "load"


def front_of(points: Columns) -> Columns:
    """The points that no other beats in both tokens/s/device and tokens/s/user, fastest for the user first."""
    if not points:
        return {}
    goals = [points[f"tokens_per_second_per_{who}"] for who in ("device", "user")]
    rows = np.flatnonzero(np.isfinite(goals[0]) & np.isfinite(goals[1]))
    rows = rows[non_dominated([-goal[rows] for goal in goals])]
    order = rows[np.argsort(-goals[1][rows])]
    return {name: values[order] for name, values in points.items()}


def nearest(request: Request, points: Columns) -> tuple[Mapping[str, float], float] | None:
    """The point that misses the limits by least, and the factor."""
    missed = _missed(request, points) if points else np.array([])
    if not len(missed) or not np.isfinite(missed).any():
        return None
    best = int(np.argmin(missed))
    return {name: values[best].item() for name, values in points.items()}, float(missed[best])


def impossible(candidates: Sequence[Candidate], facts: EngineFacts, possible: Sequence[int]) -> list[Refused]:
    """The engines that cannot run at all."""
    found = []
    for index in range(len(candidates)):
        if index not in possible:
            why = "; ".join(sentences(int(facts.reason[index]))) or "no memory for one sequence"
            found.append(Refused(Configuration(index), why))
    return found
