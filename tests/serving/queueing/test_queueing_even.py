"""Even arrivals: how often one finds work and how much, beside Lindley's recursion, and the tail beside drawn steps."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.serving.queueing.arrivals import meets, work_found
from jaxperf.serving.queueing.engine import Engine, Load, prefill_first
from jaxperf.serving.queueing.gamma import gamma_below
from jaxperf.serving.queueing.lengths import lengths_as
from tests.serving.queueing.engines import even_law, percentiles, steady

PROMPT, ONE = lengths_as({"kind": "fixed", "value": 1000}), lengths_as({"kind": "fixed", "value": 1})


def gaps(variation: float, rate: float, count: int) -> np.ndarray:
    return np.random.default_rng(5).gamma(1.0 / variation, variation / rate, count)


@pytest.mark.parametrize("shape", [1.0, 2.5, 4.0, 10.0])
def test_the_chance_to_be_below_is_the_incomplete_gamma_function(shape: float) -> None:
    x = np.array([1e-3, 0.1, 0.5, 0.9, 1.0])
    assert gamma_below(as_float(x), as_float(1.0 / shape)) == pytest.approx(
        scipy.special.gammainc(shape, shape * x), rel=1e-6 if jax.config.jax_enable_x64 else 1e-4
    )


@pytest.mark.parametrize("service", [0.0, 0.33, 1.0])
@pytest.mark.parametrize("variation", [0.25, 0.5, 0.8])
def test_even_arrivals_find_work_as_lindley_says(variation: float, service: float) -> None:
    """W' = max(W + S - gap, 0). In front of works of one length GI/M/1 is up to 360 % high."""
    count = 400_000
    unit = np.ones(count) if service == 0.0 else np.random.default_rng(6).gamma(1.0 / service, service, count)
    for rho in (0.2, 0.35, 0.5, 0.65, 0.8):
        work = np.concatenate([[0.0], np.cumsum(rho * unit - gaps(variation, 1.0, count))])
        drawn = work - np.minimum.accumulate(work)
        chance = meets(as_float(rho), as_float(variation), as_float(service))
        assert float(chance) == pytest.approx((drawn > 1e-9).mean(), rel=0.13)
        poisson = 0.5 * rho**2 * (1.0 + service) / (1.0 - rho)
        found = work_found(as_float(rho), as_float(variation), as_float(service))
        assert float(found) * poisson == pytest.approx(drawn.mean(), rel=0.11)


def test_what_is_found_is_poissons_as_even_arrivals_become_poissons() -> None:
    for rho in (0.05, 0.5, 0.95):
        for service in (0.0, 0.5, 2.0):
            at = lambda variation, r=rho, s=service: (  # noqa: E731
                meets(as_float(r), variation, as_float(s)),
                work_found(as_float(r), variation, as_float(s)),
            )
            poisson = [float(each) for each in at(None)]
            assert poisson == pytest.approx([rho, 1.0], rel=1e-6)
            for variation in (1.0 - 1e-6, 1.0, 1.0 + 1e-6):
                assert [float(each) for each in at(as_float(variation))] == pytest.approx(poisson, rel=1e-5)


def test_more_even_arrivals_find_work_less_often() -> None:
    chances = jax.vmap(lambda variation: meets(as_float(0.5), variation, as_float(0.2)))
    found = np.asarray(chances(jnp.linspace(0.0, 2.0, 41)))
    assert (np.diff(found) >= 0.0).all() and found[0] < 0.1 < found[-1]


def drawn_steps(variation: float, rate: float, floor: float, each: float) -> np.ndarray:
    """Times to the end of their step of requests that share it with all that wait when it begins [s]."""
    times, count = np.cumsum(gaps(variation, rate, 100_000)), 0
    free, ended = 0.0, np.empty(100_000)
    while count < len(times):
        begins = max(free, times[count])
        end = np.searchsorted(times, begins, "right")
        free = begins + floor + each * (end - count)
        ended[count:end] = free
        count = end
    return ended - times


@pytest.mark.parametrize("variation", [0.25, 0.5])
@pytest.mark.parametrize(("floor", "each"), [(0.002, 0.1), (0.03, 0.07)])
def test_the_tail_of_prompts_that_share_steps_is_the_drawn_one(variation: float, floor: float, each: float) -> None:
    """Before these steps had a chance and a variance of their own, 14 to 76 % high."""
    law = even_law(floor, (0.0,) * 3, (0.0, each / 1000, 0.0, 0.0, 0.0))
    for rho in (0.3, 0.5, 0.7):
        rate = rho / (floor + each)
        drawn = drawn_steps(variation, rate, floor, each)
        load = Load(rate, PROMPT, ONE, variation)
        found = steady(prefill_first, law, load, Engine(64.0, 8000.0))
        assert float(found.ttft) == pytest.approx(drawn.mean(), rel=0.05)
        end = float(percentiles(found, load, as_float(0.99))["ttft"])
        assert end == pytest.approx(np.quantile(drawn, 0.99), rel=0.16)


@pytest.mark.parametrize("of", [meets, work_found])
def test_what_is_found_has_the_slope_of_its_differences(of: Callable[..., Scalar]) -> None:
    """By load, variation of gaps and variation of work, on both sides of Poisson's; finite at every bound."""
    both = jax.jit(jax.vmap(jax.value_and_grad(lambda at: of(*at))))
    ends = jnp.array([[0.0, 0.0, 0.0], [1e-6, 0.5, 0.0], [0.98, 0.0, 1.0], [0.5, 1.0, 0.0], [0.98, 4.0, 9.0]])
    assert all(np.isfinite(each).all() for each in both(ends))
    points, step = jnp.array([[0.3, 0.3, 0.1], [0.6, 0.7, 0.5], [0.6, 4.0, 0.5], [0.9, 0.05, 0.2]]), 1e-3
    for axis, slopes in enumerate(np.asarray(both(points)[1]).T):
        above, below = (np.asarray(both(points.at[:, axis].add(sign * step))[0]) for sign in (1.0, -1.0))
        assert slopes == pytest.approx((above - below) / (2.0 * step), rel=1e-2, abs=1e-3)
