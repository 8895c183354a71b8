"""Energy adds up, respects the power limit, and falls back on the TDP where the facts are missing."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwspecs
from jaxperf.core.cost import Cost
from jaxperf.core.device import ASSUMED_IDLE_SHARE, Device, load_device
from jaxperf.core.formats import COMPUTE_FORMATS, number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.energy import average_power, kernel_energy
from jaxperf.kernels.gemm import linear_cost
from tests.devices import H100, efficiencies

BF16 = number_format("bf16")
PER_FLOP = [1e-12 * (index + 1) for index in range(len(COMPUTE_FORMATS))]
KNOWN = H100.replace(energy_per_flop=PER_FLOP, energy_per_byte=30e-12, idle_power=70.0, energy_facts=1.0)


def gemm(device: Device, m: float, n: float = 8192, k: float = 8192) -> Cost:
    return linear_cost(device, as_float(m), as_float(n), as_float(k), BF16, BF16, efficiencies("high").gemm)


@given(st.integers(1, 8192))
def test_energy_is_arithmetic_plus_memory_plus_idle(m: int) -> None:
    cost = gemm(KNOWN, m)
    energy = kernel_energy(KNOWN, cost, BF16)
    assert float(energy.compute) == pytest.approx(2 * m * 8192**2 * PER_FLOP[COMPUTE_FORMATS.index("bf16")], rel=1e-14)
    assert float(energy.memory) == pytest.approx(float(cost.bytes_moved) * 30e-12, rel=1e-14)
    assert float(energy.idle) == pytest.approx(70.0 * float(cost.time), rel=1e-14)
    assert float(energy.total) == pytest.approx(float(energy.compute + energy.memory + energy.idle), rel=1e-15)


@given(st.integers(1, 8192))
def test_without_facts_a_device_draws_its_tdp(m: int) -> None:
    cost = gemm(H100, m)
    energy = kernel_energy(H100, cost, BF16)
    assert float(energy.compute) == float(energy.memory) == 0.0
    assert float(average_power(energy, cost.time)) == pytest.approx(700.0, rel=1e-14)


def test_slopes_are_finite_with_and_without_facts() -> None:
    def spent(device: Device) -> jax.Array:
        cost = gemm(device, 4096.0)
        return kernel_energy(device, cost, BF16).total + cost.time

    for device in (H100, KNOWN, KNOWN.replace(idle_power=700.0), KNOWN.replace(tdp=200.0)):
        slopes = jax.grad(spent)(device)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))
    step = 1e-15
    moved = [KNOWN.replace(energy_per_byte=30e-12 + sign * step) for sign in (1, -1)]
    slope = float(spent(moved[0]) - spent(moved[1])) / (2 * step)
    assert float(jax.grad(spent)(KNOWN).energy_per_byte) == pytest.approx(slope, rel=1e-6)


def test_a_shipped_device_takes_its_facts_from_its_process_and_memory() -> None:
    spec, device = hwspecs.load("h100-sxm"), load_device("h100-sxm")
    facts = hwspecs.energy_of(spec)
    assert facts is not None and float(device.energy_facts) == 1.0
    assert float(device.energy_per_byte) == pytest.approx(facts.per_byte.si, rel=1e-15)
    bf16, fp4 = (float(device.energy_per_flop[COMPUTE_FORMATS.index(name)]) for name in ("bf16", "fp4"))
    assert bf16 == pytest.approx(facts.per_flop["bf16"].si, rel=1e-15) == fp4  # no fp4 units: multiplied in bf16
    assert float(device.idle_power) == pytest.approx(ASSUMED_IDLE_SHARE * 700, rel=1e-15)


@pytest.mark.parametrize("name", hwspecs.names())
def test_no_device_has_undefined_energies(name: str) -> None:
    device = load_device(name)
    facts = hwspecs.energy_of(hwspecs.load(name))
    leaves = [device.energy_per_flop, device.energy_per_byte, device.idle_power]
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
    known = float(device.energy_facts)
    assert known == (1.0 if facts is not None else 0.0)
    assert known == float(device.energy_per_byte > 0.0) == float(device.idle_power > 0.0)
    multiplied = np.asarray(device.peak_flops) > 0.0
    assert np.all(np.asarray(device.energy_per_flop)[multiplied] > 0.0) or not known
