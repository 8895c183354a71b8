"""Models side by side: max-min fair speeds, no resource beyond full."""

from __future__ import annotations

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.models.step import decode_cost
from jaxperf.serving.techniques.colocation import busy_shares, fair_speeds
from tests.devices import H100, QUICK, deployment, model

speeds_of = jax.jit(fair_speeds)
step_of = jax.jit(decode_cost, compiler_options=QUICK)
demands = st.lists(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), min_size=4, max_size=4)


def filled(shares: np.ndarray) -> np.ndarray:
    """Progressive filling in steps of a thousandth: slow, and nothing but the definition."""
    speeds, step = np.zeros(len(shares)), 1e-3
    growing = np.ones(len(shares), bool)
    while growing.any():
        used = (speeds + step * growing) @ shares
        full = used > 1.0
        stops = growing & ((shares[:, full] > 1e-9).any(1) | (speeds + step > 1.0 + 1e-9))
        if not stops.any():
            speeds = speeds + step * growing
        growing = growing & ~stops
    return speeds


@given(demands)
def test_speeds_are_those_of_progressive_filling(given: list[list[float]]) -> None:
    shares = np.round(np.array(given), 3)
    found = np.asarray(speeds_of(as_float(shares)))
    np.testing.assert_allclose(found, filled(shares), atol=6e-3)
    assert (found <= 1.0 + 1e-12).all() and (found >= 0.0).all()
    assert (found @ shares <= 1.0 + 1e-9).all()


@given(demands)
def test_nobody_is_slower_than_in_turns(given: list[list[float]]) -> None:
    found = np.asarray(speeds_of(as_float(given)))
    assert (found >= (1.0 - 1e-9) / len(given)).all()


def test_alone_nobody_is_slowed() -> None:
    assert np.asarray(fair_speeds(as_float([[1.0, 0.4, 0.0]]))).tolist() == [1.0]


def test_a_full_and_an_empty_batch_share_better_than_two_of_a_kind() -> None:
    """A decode of thousands of sequences waits for arithmetic, one of a few for memory."""
    at, llama = deployment(H100.replace(memory_capacity=4e12)), model("llama-3.1-8b")
    steps = [step_of(at, llama, as_float(batch), as_float(64)) for batch in (4096, 8)]
    many, few = (busy_shares(step.kernels, step.time) for step in steps)
    assert int(many.argmax()) == 0 and int(few.argmax()) == 1
    mixed, alike = (speeds_of(as_float([few.tolist(), other.tolist()])) for other in (many, few))
    assert float(mixed.sum()) > float(alike.sum())
