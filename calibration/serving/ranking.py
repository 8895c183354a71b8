"""Whether the model orders measured configurations of one model as they were measured, and what its pick costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.orders import ordered_pairs
from calibration.serving.evaluate import LINE, OURS, HeldOut
from calibration.serving.layouts import Deployed

LEAST = 4  # configurations of a group; fewer are ordered rightly by chance
NOISE = 0.03  # measured values that differ by less are ties
RANDOM = "random"
ALL = "all of them"
PICKERS = (OURS, LINE, RANDOM)


@dataclass(frozen=True)
class Target:
    """What a service promises: mean time to first token and a token [s]."""

    name: str
    tpot: float
    ttft: float = np.inf

    def excess(self, times: np.ndarray) -> np.ndarray:
        """The larger of (TTFT, TPOT) over what is promised [rows]; kept up to 1 [1]."""
        return np.maximum(times[:, 0] / self.ttft, times[:, 1] / self.tpot)


TARGETS = (
    Target("20 ms a token", 0.02),
    Target("50 ms a token", 0.05),
    Target("1 s to the first, 50 ms a token", 0.05, 1.0),
)


def rank_rows(found: HeldOut, split: str) -> list[dict[str, Any]]:
    """By target, model and device, of each of `PICKERS`: groups of equal lengths, mean Kendall tau of output tokens
    a second and device [1], median and mean regret of its picks [1], share of picks that break the target [1].

    A picker takes the configuration with the most tokens among those it expects to keep the target, the nearest where
    it expects none to. "random" takes each alike.
    """
    measured = np.exp(found.measured)
    expected = {who: np.exp(found.log_time[split][who]) for who in (OURS, LINE)}
    usable = np.flatnonzero(np.isfinite(measured + expected[OURS]).all(1)).tolist()
    rates = {who: rate_of(found.points, times) for who, times in expected.items()}
    rate = rate_of(found.points, measured)
    rows = []
    for target in TARGETS:
        kept = target.excess(measured) <= 1.0 + NOISE
        for name, groups in groups_of(found.points, usable).items():
            reachable = [own for own in groups if kept[own].any()]
            for who in PICKERS if reachable else ():
                picker = _picker(who, target, expected, rates)
                figures = _figures(reachable, picker, rate, kept)
                taus = [kendall(rates[who][own], rate[own]) for own in reachable] if who != RANDOM else [0.0]
                label = {"split": split, "target": target.name, "group": name, "who": who}
                count = {"groups": len(reachable), "configurations": sum(map(len, reachable))}
                rows.append({**label, **count, "tau": _mean(taus), **figures})
    return rows


Picker = Callable[[Sequence[int]], list[int]]


def _picker(who: str, target: Target, expected: Mapping[str, np.ndarray], rates: Mapping[str, np.ndarray]) -> Picker:
    """Which of a group's rows are picked: one, or for `RANDOM` all, each as likely."""
    if who == RANDOM:
        return list
    excess, rate = target.excess(expected[who]), rates[who]

    def pick(own: Sequence[int]) -> list[int]:
        kept = [row for row in own if excess[row] <= 1.0]
        return [max(kept, key=lambda row: rate[row]) if kept else min(own, key=lambda row: excess[row])]

    return pick


def _figures(groups: Sequence[Sequence[int]], picker: Picker, rate: np.ndarray, kept: np.ndarray) -> dict[str, float]:
    """Median and mean regret, and share of broken targets, of a picker's picks in groups where a row keeps it [1]."""
    regrets, broken = [], []
    for own in groups:
        best = rate[own][kept[own]].max()
        picked = picker(own)
        regrets.append(_mean([regret(rate[row], bool(kept[row]), best) for row in picked]))
        broken.append(_mean([float(not kept[row]) for row in picked]))
    return {"median": float(np.median(regrets)), "mean": _mean(regrets), "broken": _mean(broken)}


def regret(rate: float, kept: bool, best: float) -> float:
    """Share of the best measured rate that a pick loses, all of it where it breaks the target [1]."""
    return max(0.0, 1.0 - rate / best) if kept else 1.0


def rate_of(points: Sequence[Deployed], times: np.ndarray) -> np.ndarray:
    """Output tokens a second and device of requests that take (TTFT, TPOT) [rows] [1/s]."""
    output = np.array([point.output for point in points])
    asked = np.array([point.concurrency / (point.group * point.replicas) for point in points])
    return asked * output / (times[:, 0] + (output - 1.0) * times[:, 1])


def groups_of(points: Sequence[Deployed], usable: Sequence[int]) -> Mapping[str, list[list[int]]]:
    """By model and device, and of `ALL`, the groups of rows of equal lengths, aggregated or not, of `LEAST` rows."""
    alike: dict[tuple[str, float, float], list[int]] = {}
    for place in usable:
        point = points[place]
        if point.configuration.mode != "static":
            name = f"{point.architecture} on {point.spec.name}"
            alike.setdefault((name, point.prompt, point.output), []).append(place)
    found: dict[str, list[list[int]]] = {}
    for (name, *_), own in alike.items():
        if len(own) >= LEAST:
            found.setdefault(name, []).append(own)
    everyone = [own for groups in found.values() for own in groups]
    return {**found, ALL: everyone} if found else {}


def kendall(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Kendall's tau over the pairs whose measured values differ by more than `NOISE`; NaN without any [1]."""
    pairs, right = ordered_pairs(predicted, measured, NOISE)
    return 2.0 * right / pairs - 1.0 if pairs else float("nan")


def _mean(values: Sequence[float]) -> float:
    """Mean of the numbers among them; NaN of none."""
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")
