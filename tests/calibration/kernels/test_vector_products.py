"""Products on vector units: the load of the busiest core, and which products have one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.kernels.hardware import load_hardware
from calibration.kernels.vector_products import busiest_flops
from jaxperf.core.device import Device


def device(name: str = "a100-pcie-80gb") -> Device:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), load_hardware([name])).device


def load(m: float, n: float, k: float, products: float = 1.0, parts: float = 1.0) -> float:
    return float(busiest_flops(device(), *(jnp.asarray(float(x)) for x in (m, n, k, products, parts))))


def test_whole_waves_of_large_tiles_lose_nothing() -> None:
    assert load(128 * 108, 128, 1024) == 2.0 * 128 * 128 * 1024
    assert load(128, 128, 64, products=216) == 2 * 2.0 * 128 * 128 * 64


def test_a_small_product_takes_a_small_tile_and_pays_for_its_loads() -> None:
    assert load(64, 64, 1024, products=108) == pytest.approx(2.0 * 64 * 64 * 1024 * (1.25 / 1.125))
    assert load(10, 10, 1024, products=108) == load(64, 64, 1024, products=108)


def test_a_deep_reduction_is_divided_among_idle_cores() -> None:
    assert load(128, 128, 64 * 1024, parts=27) < load(128, 128, 64 * 1024) / 20


@settings(max_examples=30)
@given(*(st.integers(1, 5000) for _ in range(3)), st.integers(1, 300))
def test_the_busiest_core_does_its_part_at_least(m: int, n: int, k: int, products: int) -> None:
    assert load(m, n, k, products) * 108 >= 2.0 * m * n * k * products * 0.999
    assert load(m + 1, n, k, products) >= load(m, n, k, products) * 0.999
