"""Checkpoint intervals against Young, Daly and brute force, and the shares of a run's time against simulation."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.training.checkpoint import goodput, optimal_interval, save_time, slowdown

MTBF = 11_137.0  # 3.1 hours
costs = st.floats(1e-3, 2.0).map(lambda ratio: ratio * MTBF)
best = jax.jit(optimal_interval)


@given(costs)
def test_no_other_interval_is_better(save: float) -> None:
    interval = float(best(as_float(save), as_float(MTBF)))
    least = float(slowdown(as_float(interval), as_float(save), as_float(MTBF), as_float(600.0)))
    for factor in (0.5, 0.99, 1.01, 2.0):
        other = slowdown(as_float(factor * interval), as_float(save), as_float(MTBF), as_float(600.0))
        assert float(other) > least


@pytest.mark.parametrize("ratio", [1e-6, 1e-4, 1e-2, 0.3, 3.0])
def test_the_best_interval_solves_its_equation(ratio: float) -> None:
    x = float(best(as_float(ratio), as_float(1.0)))
    assert (1.0 - x) * np.exp(x) == pytest.approx(np.exp(-ratio), rel=1e-9)


def test_young_and_daly_approach_the_exact_one() -> None:
    """sqrt(2 C M) (Young, CACM 17, 1974), and Daly's perturbation solution (FGCS 22, 2006, eq. 37)."""
    for ratio, young_error, daly_error in ((1e-6, 1e-3, 1e-6), (1e-2, 0.06, 2e-4)):
        exact, young, half = float(best(as_float(ratio), as_float(1.0))), np.sqrt(2.0 * ratio), ratio / 2.0
        assert young == pytest.approx(exact, rel=young_error)
        assert young * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - ratio == pytest.approx(exact, rel=daly_error)


def test_goodput_against_simulation() -> None:
    save, restart = 60.0, 600.0
    kept = goodput(as_float(save), as_float(MTBF), as_float(restart))
    random = np.random.default_rng(5)
    spent = dict.fromkeys(("saving", "redone", "restarting"), 0.0)
    segments, segment = 20_000, float(kept.interval) + save
    for _ in range(segments):
        while (alive := random.exponential(MTBF)) < segment:
            spent["redone"] += alive
            while (down := random.exponential(MTBF)) < restart:
                spent["restarting"] += down
            spent["restarting"] += restart
        spent["saving"] += save
    total = segments * float(kept.interval) + sum(spent.values())
    assert float(kept.share) == pytest.approx(segments * float(kept.interval) / total, abs=3e-3)
    for name, time in spent.items():
        assert float(getattr(kept, name)) == pytest.approx(time / total, abs=3e-3), name
    assert float(kept.share + kept.saving + kept.redone + kept.restarting) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("save", [0.01, 60.0, 1e5])
def test_goodput_is_one_over_the_slowdown(save: float) -> None:
    kept = goodput(as_float(save), as_float(MTBF), as_float(600.0))
    spent = slowdown(kept.interval, as_float(save), as_float(MTBF), as_float(600.0))
    assert float(kept.share * spent) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("save", "restart"), [(1e4, 600.0), (1.0, 1e5), (1e4, 0.0), (1e6, 1e6)])
def test_a_run_that_never_reaches_a_checkpoint_has_all_its_shares(save: float, restart: float) -> None:
    kept = goodput(as_float(save), as_float(1.0), as_float(restart))
    parts = [float(each) for each in (kept.share, kept.saving, kept.redone, kept.restarting)]
    assert sum(parts) == pytest.approx(1.0, rel=1e-12)
    assert all(0.0 <= part <= 1.0 for part in parts)
    assert float(kept.share) < 1e-300


def test_slope_of_goodput_is_that_of_finite_differences() -> None:
    share = jax.jit(lambda save: goodput(save, as_float(MTBF), as_float(600.0)).share)
    slope = jax.grad(share)(as_float(60.0))
    assert float(slope) == pytest.approx(float(share(as_float(60.01)) - share(as_float(59.99))) / 0.02, rel=1e-4)


def test_saving_is_bounded_by_the_store_and_never_free() -> None:
    assert float(save_time(as_float(12e12), as_float(2e12), as_float(1.0))) == 7.0
    assert float(save_time(as_float(0.0), as_float(2e12), as_float(1.0))) == 1.0
