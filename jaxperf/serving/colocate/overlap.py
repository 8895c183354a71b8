"""What engines do at the same time: how long each combination of their phases lasts. On the host, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxperf.serving.simulator.state import Log

PHASES = ("prefill", "decode")  # a step with tokens of a prompt, and one of nothing but decodes
IDLE = len(PHASES)  # the state of an engine without work; else it is in the phase of that number


class Timeline(NamedTuple):
    """Runs of steps of one engine, one after the other: their `start` and `end` [runs] s, and the `phase` of each, a
    place in `PHASES`."""

    start: np.ndarray
    end: np.ndarray
    phase: np.ndarray


class Overlap(NamedTuple):
    """Every combination of states that occurs: `states` [combinations, engines], a place in `PHASES` or `IDLE`; the
    `seconds` [combinations] that it lasts in all; and the time from the first step to the last, `span` s."""

    states: np.ndarray
    seconds: np.ndarray
    span: float


def timeline_of(log: Log) -> Timeline:
    """The runs of one replica's complete log; it is without a pipeline, so that no two of them overlap."""
    count = int(log.count)
    start, seconds, steps = (np.asarray(values)[:count] for values in (log.start, log.seconds, log.steps))
    prompts = np.asarray(log.tokens)[:count] > np.asarray(log.decodes)[:count]
    return Timeline(start, start + steps * seconds, np.where(prompts, 0, 1))


def overlap_of(timelines: Sequence[Timeline]) -> Overlap:
    """The combinations in which at least one engine has work. The clocks of all engines are the same."""
    edges = np.unique(np.concatenate([times for one in timelines for times in (one.start, one.end)]))
    if len(edges) < 2:
        return Overlap(np.empty((0, len(timelines)), int), np.empty(0), 0.0)
    states = np.stack([_states(one, (edges[:-1] + edges[1:]) / 2.0) for one in timelines], axis=1)
    found, place = np.unique(states, axis=0, return_inverse=True)
    seconds = np.bincount(place.reshape(-1), weights=np.diff(edges), minlength=len(found))
    works = (found != IDLE).any(axis=1)
    return Overlap(found[works], seconds[works], float(edges[-1] - edges[0]))


def _states(timeline: Timeline, times: np.ndarray) -> np.ndarray:
    """The state of an engine at `times`, none of which is the beginning or the end of a run."""
    if not len(timeline.start):
        return np.full(len(times), IDLE)
    last = np.searchsorted(timeline.start, times, side="right") - 1
    within = (last >= 0) & (times < timeline.end[np.maximum(last, 0)])
    return np.where(within, timeline.phase[last], IDLE)


def mean_stretch(overlap: Overlap, speeds: np.ndarray) -> np.ndarray:
    """How many times as long as alone each phase of each engine takes [engines, phases] [1].

    An engine that runs at speed x_c of its own for T_c seconds does what takes sum_c x_c T_c alone, so a phase is
    stretched by sum_c T_c / sum_c x_c T_c over the combinations c in which the engine is in it; 1 where it never is.

    **Arguments:** `speeds` [combinations, engines]: over the speed alone [1].
    """
    found = np.ones((overlap.states.shape[1], len(PHASES)))
    for engine, phase in np.ndindex(*found.shape):
        inside = np.where(overlap.states[:, engine] == phase, overlap.seconds, 0.0)
        alone = float(inside @ speeds[:, engine])
        if alone > 0.0:
            found[engine, phase] = inside.sum() / alone
    return found
