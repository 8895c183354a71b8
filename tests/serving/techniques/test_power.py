"""Power of a step and the clock under a limit: the parts add up, limits hold, memory-bound steps lose nothing."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.cost import Cost
from jaxperf.core.device import load_device
from jaxperf.core.numerics import as_float
from jaxperf.serving.techniques.power import (
    LEAST_CLOCK,
    PowerLaw,
    capped_clock,
    clocked,
    clocked_time,
    drawn,
    power_at,
    step_power,
    work_of,
)

LAW = PowerLaw(0.3, 0.9, 0.4)
DEVICES = {"known": load_device("h100-sxm")}
DEVICES["unknown energies"] = DEVICES["known"].replace(energy_facts=0.0, energy_per_byte=0.0, idle_power=0.0)
shares = st.floats(0.01, 1.0)
clocks = st.floats(0.2, 1.0)


@jax.jit
def clock_of(device, law, kernels, time, limit):
    return capped_clock(device, law, kernels, functools.partial(clocked_time, kernels, time), limit)


@jax.jit
def power_of(device, law, kernels, time, clock):
    return step_power(device, law, kernels, functools.partial(clocked_time, kernels, time), clock)


def step(compute: float, memory: float, latency: float = 1e-4) -> tuple[dict[str, Cost], float]:
    """One kernel of 10 ms for the longer of its resources, and the step's time."""
    time = 1e-2 * max(compute, memory) + latency
    zero = as_float(0.0)
    moved = 1e-2 * memory * 3.0e12
    parts = (time, 1e-2 * compute, 1e-2 * memory, zero, latency, 1e12, moved)
    return {"gemm": Cost(*map(as_float, parts))}, as_float(time)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@given(compute=shares, memory=shares)
def test_without_a_limit_it_is_the_law_or_the_tdp(device, compute: float, memory: float) -> None:
    kernels, time = step(compute, memory)
    busy = (float(kernels["gemm"].compute / time), float(kernels["gemm"].memory / time))
    want = 700.0 * min(1.0, 0.3 + 0.9 * busy[0] + 0.4 * busy[1])
    np.testing.assert_allclose(power_of(device, LAW, kernels, time, as_float(1.0)), want, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@given(compute=shares, memory=shares, low=clocks, high=clocks)
def test_a_lower_clock_is_never_faster_and_never_draws_more(device, compute, memory, low, high) -> None:
    kernels, time = step(compute, memory)
    low, high = sorted((low, high))
    slow, fast = (float(clocked_time(kernels, time, as_float(clock))) for clock in (low, high))
    assert slow >= fast * (1.0 - 1e-12)
    few, many = (float(power_of(device, LAW, kernels, time, as_float(clock))) for clock in (low, high))
    assert few <= many * (1.0 + 1e-12)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@given(compute=shares, memory=shares, limit=st.floats(60.0, 700.0))
def test_the_limit_is_met_by_the_highest_clock(device, compute: float, memory: float, limit: float) -> None:
    kernels, time = step(compute, memory)
    rest = (device, LAW, kernels, time)
    clock = clock_of(*rest, as_float(limit))
    power = float(power_of(*rest, clock))
    free = float(power_of(*rest, as_float(1.0)))
    if free <= limit:
        assert float(clock) == 1.0
    elif float(clock) > LEAST_CLOCK:
        assert power == pytest.approx(limit, rel=1e-9)
    else:
        assert power >= limit * (1.0 - 1e-9)


def test_a_step_that_waits_for_memory_loses_nothing() -> None:
    """Splitwise (ISCA 2024): the token phase does not suffer from a cap, the prompt phase does."""
    device = DEVICES["known"]
    limits = as_float(450.0)
    decode, prefill = step(0.05, 1.0), step(1.0, 0.1)
    slower = [
        float(clocked_time(*phase, clock_of(device, LAW, *phase, limits)) / phase[1]) for phase in (decode, prefill)
    ]
    assert float(clock_of(device, LAW, *decode, limits)) < 1.0
    assert slower[0] == 1.0 and slower[1] > 1.1


def test_arithmetic_alone_follows_the_cube_root() -> None:
    """No idle power, no memory, no latency: P ~ f^3 (V ~ f), so half of the power leaves 2^(-1/3) of the clock."""
    device, law = DEVICES["unknown energies"], PowerLaw(0.0, 1.0, 0.0)
    kernels, time = step(1.0, 0.0, latency=0.0)
    clock = clock_of(device, law, kernels, time, as_float(350.0))
    np.testing.assert_allclose(clock, 0.5 ** (1.0 / 3.0), rtol=1e-12)


def test_the_slope_of_the_clock_is_that_of_a_difference() -> None:
    kernels, time = step(1.0, 0.5)

    rest = (DEVICES["known"], LAW, kernels, time)
    slope_of = jax.jit(jax.grad(lambda limit: clock_of(*rest, limit)))
    less, more = (clock_of(*rest, as_float(limit)) for limit in (399.99, 400.01))
    np.testing.assert_allclose(slope_of(as_float(400.0)), (more - less) / 0.02, rtol=1e-6)
    assert float(slope_of(as_float(699.0))) >= 0.0


@given(shares, shares, st.floats(0.2, 1.0))
def test_one_kernel_at_a_clock(compute: float, memory: float, clock: float) -> None:
    kernels, _ = step(compute, memory)
    found = clocked(kernels["gemm"], as_float(clock))
    want = 1e-2 * max(compute / clock, memory) + 1e-4
    np.testing.assert_allclose(found.time, want, rtol=1e-12)
    assert float(clocked(kernels["gemm"], as_float(1.0)).time) == float(kernels["gemm"].time)


def test_the_parts_are_those_of_the_equation() -> None:
    device = DEVICES["known"]
    kernels, time = step(0.5, 0.4, latency=5e-3)
    parts = drawn(device, LAW, work_of(kernels, time))
    assert float(parts.still) == pytest.approx(70.0) and float(parts.clocked) == pytest.approx(140.0)
    assert float(parts.stored) == pytest.approx(float(device.energy_per_byte) * 1.2e10)
    half = 70.0 + 140.0 / 8.0 + (float(parts.stored) + float(parts.worked) / 4.0) / 1e-2
    np.testing.assert_allclose(power_at(parts, as_float(0.5), as_float(1e-2)), half, rtol=1e-12)
