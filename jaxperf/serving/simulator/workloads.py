"""Requests drawn from distributions: arrival processes, lengths, seeds. On the host, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show

# Kind -> the numbers it takes; a time between requests averages 1 / rate.
ARRIVALS = {"poisson": ("rate",), "gamma": ("rate", "cv"), "even": ("rate",), "burst": ()}
LENGTHS = {"fixed": ("value",), "uniform": ("low", "high"), "lognormal": ("mean", "cv")}
PARTS = ("count", "seed", "arrivals", "prompt", "output", "total", "prompt_to_output")
MOST_REQUESTS, MOST_TOKENS = 10**7, 1 << 24


@dataclass(frozen=True)
class Requests:
    """Requests in order of arrival: `arrived` [R] s, `prompt` and `output` [R] tokens, at least one each; `path`: the
    nodes of their blocks [R, P] in a prefix cache, None without one; `brought` [R]: tokens of the prompt whose keys and
    values come with the request, None for none; `priority` [R]: the lowest goes first, None for in order."""

    arrived: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    path: np.ndarray | None = None
    brought: np.ndarray | None = None
    priority: np.ndarray | None = None


def draw_requests(workload: Mapping[str, Any], where: str = "workload") -> Requests:
    """Requests as a workload describes them; the same seed gives the same requests.

    **Arguments:** `workload`: `count`; `seed` (0); `arrivals`: a kind of `ARRIVALS` with its numbers, as in
    `{"kind": "poisson", "rate": 2.0}`; either `prompt` and `output`, each a kind of `LENGTHS`, or `total` with
    `prompt_to_output`, the ratio in which every total is divided (Vidur's synthetic lengths).
    **Raises:** `InputError` naming the part that is missing, unknown or out of range.
    """
    for name in workload:
        if name not in PARTS:
            raise InputError(f"{where}: '{name}' is no part of a workload.{did_you_mean(name, PARTS)}")
    count = _whole(workload, "count", where, 1, MOST_REQUESTS)
    random = np.random.default_rng(_whole({"seed": 0} | dict(workload), "seed", where, 0, 2**63))
    arrived = draw_arrivals(random, _part(workload, "arrivals", where), count, f"{where}: arrivals")
    if "total" in workload:
        _refuse(workload, ("prompt", "output"), "beside total", where)
        total = draw_lengths(random, _part(workload, "total", where), count, f"{where}: total")
        ratio = _number(workload, "prompt_to_output", where, 1e-6, 1e6)
        output = np.maximum((total / (1.0 + ratio)).round(), 1.0).astype(int)
        return Requests(arrived, np.maximum(total - output, 1), output)
    _refuse(workload, ("prompt_to_output",), "without total", where)
    prompt, output = (
        draw_lengths(random, _part(workload, name, where), count, f"{where}: {name}") for name in ("prompt", "output")
    )
    return Requests(arrived, prompt, output)


def draw_arrivals(random: np.random.Generator, process: Mapping[str, Any], count: int, where: str) -> np.ndarray:
    """Times of arrival [count] s: exponential gaps (`poisson`), gaps of a gamma distribution with the coefficient of
    variation `cv` (1 is Poisson, more is burstier), equal gaps, or all at zero (`burst`)."""
    kind = _kind(process, ARRIVALS, where)
    if kind == "burst":
        return np.zeros(count)
    gap = 1.0 / _number(process, "rate", where, 1e-9, 1e9)
    if kind == "even":
        return gap * np.arange(count)
    if kind == "poisson":
        return np.cumsum(random.exponential(gap, count))
    shape = _number(process, "cv", where, 1e-3, 1e3) ** -2
    return np.cumsum(random.gamma(shape, gap / shape, count))


def draw_lengths(random: np.random.Generator, lengths: Mapping[str, Any], count: int, where: str) -> np.ndarray:
    """Whole tokens [count], at least one: a `fixed` value, `uniform` from low to high, both included, or `lognormal`
    with a mean and a coefficient of variation before rounding."""
    kind = _kind(lengths, LENGTHS, where)
    if kind == "fixed":
        return np.full(count, _whole(lengths, "value", where, 1, MOST_TOKENS))
    if kind == "uniform":
        low = _whole(lengths, "low", where, 1, MOST_TOKENS)
        return random.integers(low, _whole(lengths, "high", where, low, MOST_TOKENS) + 1, count)
    mean = _number(lengths, "mean", where, 1, MOST_TOKENS)
    variance = np.log1p(_number(lengths, "cv", where, 1e-6, 1e3) ** 2)
    drawn = random.lognormal(np.log(mean) - variance / 2.0, np.sqrt(variance), count)
    return np.clip(drawn.round(), 1, MOST_TOKENS).astype(int)


def round_robin(requests: Any, replicas: int, path: np.ndarray | None = None, **columns: np.ndarray) -> list[Requests]:
    """The share of each of `replicas`: every n-th request in order of arrival. Replicas without one get none.

    **Arguments:** `columns`: `brought` and `priority`, where there are any.
    """
    every = {"arrived": requests.arrived, "prompt": requests.prompt, "output": requests.output, **columns}
    every |= {} if path is None else {"path": path}
    shares = [slice(first, None, replicas) for first in range(min(replicas, len(requests.arrived)))]
    return [Requests(**{name: values[one] for name, values in every.items()}) for one in shares]


def _part(workload: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    part = workload.get(name)
    if not isinstance(part, Mapping):
        raise InputError(f'{where}: {name} is {show(part)}; write it as, say, {{"kind": "fixed", "value": 4}}.')
    return part


def _kind(part: Mapping[str, Any], kinds: Mapping[str, tuple[str, ...]], where: str) -> str:
    kind = str(part.get("kind"))
    if kind not in kinds:
        hint = did_you_mean(kind, kinds)
        raise InputError(f"{where}: kind is {show(kind)}; allowed: {', '.join(kinds)}.{hint}")
    for name in part:
        if name not in ("kind", *kinds[kind]):
            raise InputError(f"{where}: '{name}' is no number of {kind}; it takes {', '.join(kinds[kind]) or 'none'}.")
    return kind


def _number(part: Mapping[str, Any], name: str, where: str, low: float, high: float) -> float:
    value = part.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InputError(f"{where}: {name} is {show(value)}; it must be a number from {low:g} to {high:g}.")
    return value


def _whole(part: Mapping[str, Any], name: str, where: str, low: int, high: int) -> int:
    """A whole number, also written 512.0."""
    value = _number(part, name, where, low, high)
    if value != int(value):
        raise InputError(f"{where}: {name} is {show(value)}; it must be a whole number.")
    return int(value)


def _refuse(workload: Mapping[str, Any], names: Sequence[str], why: str, where: str) -> None:
    for name in names:
        if name in workload:
            raise InputError(f"{where}: {name} means nothing {why}.")
