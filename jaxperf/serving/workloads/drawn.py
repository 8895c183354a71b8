"""What every kind of workload draws: requests, what their texts have in common, and which of them follows which."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show
from jaxperf.serving.simulator.workloads import MOST_REQUESTS, Requests, draw_lengths, draw_requests

TIMES = ("fixed", "exponential")
LONGEST = 1e6  # s
PLAIN = ("count", "seed", "arrivals", "prompt", "output")  # what `draw_requests` knows

# Where each part of prompt and output ends [tokens], and what it is: two parts with one name are the same text after
# the same beginning.
Text = list[tuple[int, object]]


@dataclass(frozen=True)
class Stage:
    """What comes before the engine: `servers` that take requests first come, first served, and the `seconds` [R] that
    each request takes."""

    seconds: np.ndarray
    servers: int


@dataclass(frozen=True)
class Drawn:
    """Requests in order of arrival: `arrived` [R] s, `prompt` and `output` [R] tokens; `texts`: what each is made of;
    `after` [R]: the request that one follows, -1 for none, and `delay` [R] s, how long after its end; None where none
    follows another; `asked` [R]: when the client asked, where that is not when the engine is asked [s], and the
    `stages` that requests go through in between."""

    arrived: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    texts: Sequence[Text]
    after: np.ndarray | None = None
    delay: np.ndarray | None = None
    asked: np.ndarray | None = None
    stages: Sequence[Stage] = ()


def check_parts(workload: Mapping[str, Any], parts: tuple[str, ...], where: str) -> None:
    """Raises `InputError` for a part that this kind of workload does not have."""
    for name in workload:
        if name not in ("kind", *PLAIN, *parts):
            known = (*PLAIN, *parts)
            hint = did_you_mean(name, known)
            raise InputError(f"{where}: '{name}' is no part of {workload['kind']}; it has {', '.join(known)}.{hint}")


def plain_part(workload: Mapping[str, Any], where: str) -> Requests:
    """The requests that a workload's arrivals, prompts and outputs describe by themselves."""
    return draw_requests({name: workload[name] for name in PLAIN if name in workload}, where)


def generator(workload: Mapping[str, Any]) -> np.random.Generator:
    """Random numbers beside those of `plain_part`, whose seed is checked there."""
    return np.random.default_rng([int(workload.get("seed", 0)), 1])


def part_of(workload: Mapping[str, Any], name: str, default: Mapping[str, Any] | None, where: str) -> Mapping[str, Any]:
    """A part that is a distribution. Raises `InputError` where it is missing without a default, or no object."""
    part = workload.get(name, default)
    if not isinstance(part, Mapping):
        raise InputError(f'{where}: {name} is {show(part)}; write it as, say, {{"kind": "fixed", "value": 4}}.')
    return part


def draw_repeats(
    random: np.random.Generator, workload: Mapping[str, Any], name: str, count: int, where: str
) -> np.ndarray:
    """How many requests each of `count` draws becomes [count].

    **Raises:** `InputError` as `part_of` and `draw_lengths` do, and where they are too many together.
    """
    repeats = draw_lengths(random, part_of(workload, name, None, where), count, f"{where}: {name}")
    if repeats.sum() > MOST_REQUESTS:
        raise InputError(f"{where}: {name} make {repeats.sum():,} requests in all; at most {MOST_REQUESTS:,}.")
    return repeats


def draw_times(random: np.random.Generator, part: Mapping[str, Any], count: int, where: str) -> np.ndarray:
    """Durations [count] s: `fixed`, or `exponential` with that `mean`.

    **Raises:** `InputError` for another kind or part, and a mean that is no number of seconds.
    """
    kind, mean = part.get("kind"), part.get("mean")
    if kind not in TIMES or set(part) - {"kind", "mean"}:
        given = ", ".join(map(str, part)) or "nothing"
        example = '{"kind": "fixed", "mean": 2.0}'
        raise InputError(f"{where}: a time is {' or '.join(TIMES)} with a mean, such as {example}; it has {given}.")
    if isinstance(mean, bool) or not isinstance(mean, int | float) or not 0.0 <= mean <= LONGEST:
        raise InputError(f"{where}: mean is {show(mean)}; it must be a number of seconds from 0 to {LONGEST:g}.")
    return np.full(count, float(mean)) if kind == "fixed" else random.exponential(mean, count)


def through_stage(arrived: np.ndarray, stage: Stage) -> np.ndarray:
    """When each request leaves a stage [R] s."""
    free, ends = [0.0] * stage.servers, np.empty(len(arrived))
    for place in np.argsort(arrived, kind="stable").tolist():
        end = max(float(arrived[place]), heapq.heappop(free)) + float(stage.seconds[place])
        heapq.heappush(free, end)
        ends[place] = end
    return ends


def text_paths(texts: Sequence[Text], block_size: int) -> np.ndarray:
    """The node of every full block of every request in a prefix cache [R, P], -1 behind the last.

    A block is known by the part of the text in which it ends, and its place: what is before it is the same for all who
    have that part there.
    """
    known: dict[tuple[object, int], int] = {}
    rows = []
    for text in texts:
        blocks = text[-1][0] // block_size
        ends = [(place + 1) * block_size for place in range(blocks)]
        parts = [next(name for last, name in text if end <= last) for end in ends]
        rows.append([known.setdefault((name, end), len(known)) for name, end in zip(parts, ends, strict=True)])
    longest = max(1, *(len(row) for row in rows))
    return np.array([row + [-1] * (longest - len(row)) for row in rows])
