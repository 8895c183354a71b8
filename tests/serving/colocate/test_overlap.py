"""Timelines side by side: how long each combination lasts, and what it makes of the time of a step."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.serving.colocate.overlap import IDLE, Timeline, mean_stretch, overlap_of, timeline_of

# Runs as (gap before, length, phase) in whole seconds.
runs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 1)), max_size=6)
engines = st.lists(runs, min_size=1, max_size=3)


def timeline(given: list[tuple[int, int, int]]) -> Timeline:
    ends = np.cumsum([gap + length for gap, length, _ in given])
    lengths = np.array([length for _, length, _ in given], float)
    return Timeline(ends - lengths, ends.astype(float), np.array([phase for _, _, phase in given], int))


def second_by_second(given: list[list[tuple[int, int, int]]]) -> list[tuple[int, ...]]:
    """What each engine does in each second."""
    rows = [[each for gap, length, phase in one for each in [IDLE] * gap + [phase] * length] for one in given]
    longest = max(map(len, rows))
    return list(zip(*(row + [IDLE] * (longest - len(row)) for row in rows), strict=True))


@given(engines)
def test_every_second_is_counted_where_somebody_works(given: list) -> None:
    found = overlap_of([timeline(one) for one in given])
    counted = {tuple(state): seconds for state, seconds in zip(found.states.tolist(), found.seconds, strict=True)}
    plain = [state for state in second_by_second(given) if set(state) != {IDLE}]
    assert counted == {state: float(plain.count(state)) for state in set(plain)}


@given(engines, st.integers(0, 2**32 - 1))
def test_a_phase_takes_the_mean_of_what_its_seconds_do(given: list, seed: int) -> None:
    found = overlap_of([timeline(one) for one in given])
    speeds = np.random.default_rng(seed).uniform(0.2, 1.0, found.states.shape)
    stretch = mean_stretch(found, speeds)
    speed_in = dict(zip(map(tuple, found.states.tolist()), speeds.tolist(), strict=True))
    for engine in range(len(given)):
        for phase in (0, 1):
            inside = [speed_in[state][engine] for state in second_by_second(given) if state[engine] == phase]
            np.testing.assert_allclose(stretch[engine, phase], len(inside) / sum(inside) if inside else 1.0)


def test_a_step_with_a_prompt_is_a_prefill_and_unwritten_rows_are_none() -> None:
    log = SimpleNamespace(
        count=2, start=[1.0, 3.0, -1.0], seconds=[0.5, 0.25, -1.0], steps=[2, 4, 0], tokens=[9, 3, 0], decodes=[2, 3, 0]
    )
    found = timeline_of(log)  # type: ignore[arg-type]
    assert found.start.tolist() == [1.0, 3.0] and found.end.tolist() == [2.0, 4.0] and found.phase.tolist() == [0, 1]
