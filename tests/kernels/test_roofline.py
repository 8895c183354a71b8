"""Fitted utilizations in a kernel's cost: their floor, and the overlap that they were fitted with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.efficiency import SustainedEfficiency, Utilization
from jaxperf.core.numerics import as_float, overlap
from jaxperf.kernels.roofline import kernel_cost, partial_overlap, under_power_limit
from tests.devices import A100

times = st.floats(1e-7, 10.0)


def cost(utilization: Utilization, **changes: float):
    work = {"compute": 3e-4, "flops": 1e9, "bytes_moved": 8e8} | changes
    return kernel_cost(A100, utilization, **{name: as_float(value) for name, value in work.items()})


@given(times, times, st.floats(0.0, 1.0))
def test_partial_overlap_is_between_the_longest_and_the_sum(a: float, b: float, exposed: float) -> None:
    found = float(partial_overlap(as_float(a), as_float(b), as_float(exposed)))
    assert max(a, b) * (1.0 - 1e-12) <= found <= np.hypot(a, b) * (1.0 + 1e-12)


@given(times, times)
def test_at_its_ends_it_is_the_maximum_and_the_norm(a: float, b: float) -> None:
    x, y = as_float(a), as_float(b)
    np.testing.assert_allclose(partial_overlap(x, y, as_float(0.0)), max(a, b), rtol=1e-14)
    norm = overlap(x, y, sharpness=as_float(2.0))
    np.testing.assert_allclose(partial_overlap(x, y, as_float(1.0)), norm, rtol=1e-12)


@pytest.mark.parametrize("a", [0.0, 1e-5])
@pytest.mark.parametrize("b", [0.0, 1e-5])
def test_its_slope_is_finite_where_a_kernel_does_nothing(a: float, b: float) -> None:
    slopes = jax.grad(partial_overlap, (0, 1, 2))(as_float(a), as_float(b), as_float(1.0))
    assert all(np.isfinite(float(slope)) for slope in slopes)


def test_a_fitted_floor_stands_in_for_the_launch_latency() -> None:
    fitted = SustainedEfficiency(0.8, 0.9, 7e-6, 0.0)(A100, A100)
    plain = Utilization(as_float(0.8), as_float(0.9))
    assert float(cost(fitted).latency) == pytest.approx(7e-6)
    assert float(cost(plain).latency) == pytest.approx(float(A100.launch_latency))
    difference = float(cost(fitted).time) - float(cost(plain).time)
    assert difference == pytest.approx(7e-6 - float(A100.launch_latency), rel=1e-6)


def test_what_is_exposed_costs_time() -> None:
    hidden, shown = (cost(SustainedEfficiency(0.8, 0.9, 7e-6, exposed)(A100, A100)) for exposed in (0.0, 1.0))
    assert float(shown.time) > float(hidden.time)
    assert float(shown.compute) == float(hidden.compute)


@given(times, times)
def test_the_power_limit_is_the_4_norm_in_either_precision(a: float, b: float) -> None:
    found = float(under_power_limit(as_float(a), as_float(b)))
    assert found == pytest.approx((a**4 + b**4) ** 0.25, rel=1e-12)
    single = float(under_power_limit(jnp.float32(a), jnp.float32(b)))
    assert single == pytest.approx(max(a, b), rel=0.19) and single >= np.float32(max(a, b))
    slopes = jax.grad(under_power_limit, (0, 1))(as_float(0.0), as_float(b))
    assert all(np.isfinite(float(slope)) for slope in slopes)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("times", [(0.0, 0.0), (1e-9, 0.0), (0.0, 1e-9), (1e-9, 1e-6)])
def test_slopes_under_a_power_limit_are_finite_where_nothing_is_multiplied(
    times: tuple[float, float], wide: bool
) -> None:
    with jax.enable_x64(wide):
        found = jax.grad(under_power_limit, (0, 1))(*map(as_float, times))
    assert np.isfinite(np.array(found)).all()
