"""Whether the model orders measured configurations of one model as they were measured, and what its pick costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.orders import ordered_pairs
from calibration.serving.evaluate import LINE, OURS, HeldOut, folds_of
from calibration.serving.layouts import Deployed
from calibration.serving.predict import part_of

LEAST = 4  # configurations of a group; fewer are ordered rightly by chance
NOISE = 0.03  # measured values that differ by less are ties
RANDOM, EXPECTED = "random", "expected"
ALL = "all of them"
PICKERS = (OURS, LINE, RANDOM, EXPECTED)


@dataclass(frozen=True)
class Target:
    """What a service promises: mean time to first token and a token [s]."""

    name: str
    tpot: float
    ttft: float = np.inf

    def excess(self, times: np.ndarray) -> np.ndarray:
        """The larger of (TTFT, TPOT) over what is promised [...], from times [..., 2] [s]; kept up to 1 [1]."""
        return np.maximum(times[..., 0] / self.ttft, times[..., 1] / self.tpot)


TARGETS = (
    Target("20 ms a token", 0.02),
    Target("50 ms a token", 0.05),
    Target("1 s to the first, 50 ms a token", 0.05, 1.0),
)


def rank_rows(found: HeldOut, split: str) -> list[dict[str, Any]]:
    """By target, model and device, of each of `PICKERS`: groups of equal lengths, mean Kendall tau of output tokens
    a second and device [1], median and mean regret of its picks [1], share of picks that break the target [1].

    A picker takes the configuration with the most tokens among those it expects to keep the target, the nearest where
    it expects none to. "random" takes each alike. "expected" takes the most of our rate times the chance to keep the
    target, by the scatter of what other models (folds) measured around our predictions.
    """
    measured = np.exp(found.measured)
    expected = {who: np.exp(found.log_time[split][who]) for who in (OURS, LINE)}
    usable = np.flatnonzero(np.isfinite(measured + expected[OURS]).all(1)).tolist()
    rates = {who: rate_of(found.points, times) for who, times in expected.items()}
    rate = rate_of(found.points, measured)
    rows = []
    for target in TARGETS:
        kept = target.excess(measured) <= 1.0 + NOISE
        goodput = _by_goodput(rates[OURS] * chances(found, split, target))
        for name, groups in groups_of(found.points, usable).items():
            reachable = [own for own in groups if kept[own].any()]
            for who in PICKERS if reachable else ():
                picker = _picker(who, target, expected, rates) if who != EXPECTED else goodput
                figures = _figures(reachable, picker, rate, kept)
                order = rates.get(OURS if who == EXPECTED else who)
                taus = [0.0] if order is None else [kendall(order[own], rate[own]) for own in reachable]
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


def _by_goodput(goodput: np.ndarray) -> Picker:
    """The row of the most `goodput`."""
    return lambda own: [max(own, key=lambda row: goodput[row])]


def chances(found: HeldOut, split: str, target: Target) -> np.ndarray:
    """Chance of each row to keep a target: the share of the residuals of the other folds in its part with which its
    prediction does; 0 or 1 where there are none [rows] [1]."""
    ours, residual = found.log_time[split][OURS], found.residual(split)
    folds, parts = folds_of(found.points)[split], np.array([part_of(point) for point in found.points])
    known, chance = np.isfinite(residual).all(1), np.zeros(len(ours))
    for fold in np.unique(folds):
        for part in np.unique(parts[folds == fold]):
            own, others = (folds == fold) & (parts == part), (folds != fold) & (parts == part) & known
            shown = residual[others] if others.any() else np.zeros((1, 2))
            chance[own] = (target.excess(np.exp(ours[own][:, None] - shown)) <= 1.0).mean(1)
    return chance


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
