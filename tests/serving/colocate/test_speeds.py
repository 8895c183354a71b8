"""Speeds of engines in what they do at the same time, and what they leave of the device."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.serving.colocate.overlap import IDLE
from jaxperf.serving.colocate.speeds import busy_seconds, speeds_in_turns, speeds_side_by_side

STATES = np.array([state for state in np.ndindex(3, 3, 3) if set(state) != {IDLE}])
shares = st.lists(st.floats(0.01, 1.0), min_size=18, max_size=18).map(lambda each: np.array(each).reshape(3, 2, 3))


@given(shares)
def test_no_resource_is_more_than_full_and_nobody_slower_than_in_turns(needs: np.ndarray) -> None:
    speeds, turns = speeds_side_by_side(STATES, needs), speeds_in_turns(STATES)
    for state, found, sliced in zip(STATES, speeds, turns, strict=True):
        working = [engine for engine in range(3) if state[engine] != IDLE]
        used = sum(found[engine] * needs[engine, state[engine]] for engine in working)
        assert (used <= 1.0 + 1e-9).all()
        assert all(sliced[engine] - 1e-9 <= found[engine] <= 1.0 + 1e-9 for engine in working)
        assert all(sliced[engine] == 1.0 / len(working) for engine in working)


@given(shares, st.integers(0, 2**32 - 1))
def test_shares_of_a_resource_add_up_to_one_at_most(needs: np.ndarray, seed: int) -> None:
    seconds = np.random.default_rng(seed).exponential(1.0, len(STATES))
    for speeds in (speeds_side_by_side(STATES, needs), speeds_in_turns(STATES)):
        busy = busy_seconds(STATES, seconds, speeds, needs)
        assert (busy.sum(axis=0) <= seconds.sum() * (1.0 + 1e-9)).all() and (busy > 0.0).all()


def test_who_is_by_itself_runs_at_its_own_speed_and_full_memory_is_halved() -> None:
    needs = np.array([[[0.9, 0.2, 0.0], [0.1, 1.0, 0.0]], [[1.0, 0.1, 0.0], [0.1, 1.0, 0.0]]])
    states = np.array([[0, IDLE], [1, 1], [0, 1], [IDLE, 0]])
    alone, both, mixed, other = speeds_side_by_side(states, needs)
    assert alone[0] == 1.0 and other[1] == 1.0
    np.testing.assert_allclose(both, [0.5, 0.5])
    # A prefill needs 0.2 of the memory and a decode all of it: both grow to 1 / 1.2.
    np.testing.assert_allclose(mixed, [1.0 / 1.2, 1.0 / 1.2])
