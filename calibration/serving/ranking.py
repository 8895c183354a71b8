"""Whether the model orders measured configurations of one model as they were measured, and what its pick costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibration.serving.evaluate import HeldOut
from calibration.serving.layouts import Deployed

LEAST = 4  # configurations of a group; fewer are ordered rightly by chance
TARGETS = (0.02, 0.05)  # s a token that a service may allow
NOISE = 0.05  # measured values that differ by less are ties
SLACK = 1.05  # of a target: what a pick may exceed it by in the measurement


def rank_rows(found: HeldOut, split: str) -> list[dict[str, Any]]:
    """By model, device and target: groups of equal lengths, mean Kendall tau of output tokens/s/device [1] and median
    and worst regret of the pick among the configurations predicted to meet the target [1]."""
    predicted, measured = np.exp(found.log_time[split]["ours"]), np.exp(found.measured)
    rates = [rate_of(found.points, times) for times in (predicted, measured)]
    rows = []
    for name, groups in _groups(found.points, np.isfinite(rates[1]) & np.isfinite(rates[0])).items():
        taus = [kendall(rates[0][own], rates[1][own]) for own in groups]
        for target in TARGETS:
            met = [(predicted[own, 1] <= target, measured[own, 1] <= target * SLACK) for own in groups]
            each = [regret(rates[0][own], rates[1][own], *both) for own, both in zip(groups, met, strict=True)]
            known = [value for value in each if np.isfinite(value)]
            if known:
                rows.append(
                    {
                        "group": name,
                        "target": target,
                        "groups": len(known),
                        "configurations": sum(map(len, groups)),
                        "tau": float(np.nanmean(taus)),
                        "median": float(np.median(known)),
                        "worst": float(np.max(known)),
                    }
                )
    return rows


def rate_of(points: Sequence[Deployed], times: np.ndarray) -> np.ndarray:
    """Output tokens a second and device of requests that take (TTFT, TPOT) [rows] [1/s]."""
    output = np.array([point.output for point in points])
    asked = np.array([point.concurrency / (point.group * point.replicas) for point in points])
    return asked * output / (times[:, 0] + (output - 1.0) * times[:, 1])


def _groups(points: Sequence[Deployed], usable: np.ndarray) -> Mapping[str, list[list[int]]]:
    """By model and device the groups of rows of equal lengths, aggregated or not, that have `LEAST` rows."""
    alike: dict[tuple[str, float, float], list[int]] = {}
    for place in np.flatnonzero(usable).tolist():
        point = points[place]
        if point.configuration.mode != "static":
            name = f"{point.architecture} on {point.spec.name}"
            alike.setdefault((name, point.prompt, point.output), []).append(place)
    found: dict[str, list[list[int]]] = {}
    for (name, *_), own in alike.items():
        if len(own) >= LEAST:
            found.setdefault(name, []).append(own)
    return found


def kendall(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Kendall's tau over the pairs whose measured values differ by more than `NOISE`; NaN without any [1]."""
    first, second = np.triu_indices(len(measured), 1)
    gap = np.log(measured[first] / measured[second])
    told = np.abs(gap) > NOISE
    if not told.any():
        return float("nan")
    return float(np.mean(np.sign(gap[told]) * np.sign(predicted[first] - predicted[second])[told]))


def regret(predicted: np.ndarray, measured: np.ndarray, promised: np.ndarray, kept: np.ndarray) -> float:
    """Share of the best measured rate that the pick loses, all of it where the pick misses the target in the
    measurement or none is picked; NaN where no measured configuration meets the target [1]."""
    if not kept.any():
        return float("nan")
    if not promised.any():
        return 1.0
    pick = int(np.argmax(np.where(promised, predicted, -np.inf)))
    return float(1.0 - measured[pick] * kept[pick] / measured[kept].max()) if kept[pick] else 1.0
