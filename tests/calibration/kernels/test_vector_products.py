"""Products on vector units: the load of the busiest core, and which products have one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.kernels.hardware import load_hardware
from calibration.kernels.vector_products import USUAL, busiest_batch_flops, busiest_flops, set_of
from jaxperf.core.device import Device


def device(name: str = "a100-pcie-80gb") -> Device:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), load_hardware([name])).device


def load(m: float, n: float, k: float, parts: float = 1.0) -> float:
    return float(busiest_flops(device(), *(jnp.asarray(float(x)) for x in (m, n, k, parts))))


def load_of_batch(m: float, n: float, k: float, products: float, architecture: str = "hopper") -> float:
    given = (m, n, k, products, set_of(architecture))
    return float(busiest_batch_flops(device(), *(jnp.asarray(float(x)) for x in given)))


def test_whole_waves_of_large_tiles_lose_nothing() -> None:
    assert load(128 * 108, 128, 1024) == 2.0 * 128 * 128 * 1024
    assert load_of_batch(128, 128, 64, products=216) == 2 * 2.0 * 128 * 128 * 64


def test_a_small_product_takes_a_small_tile_and_pays_for_its_loads() -> None:
    assert load_of_batch(64, 64, 1024, products=108) == pytest.approx(2.0 * 64 * 64 * 1024 * (1.25 / 1.125))
    assert load_of_batch(10, 10, 1024, products=108) == load_of_batch(64, 64, 1024, products=108)


def test_a_deep_reduction_is_divided_among_idle_cores() -> None:
    assert load(128, 128, 64 * 1024, parts=27) < load(128, 128, 64 * 1024) / 20


@settings(max_examples=30)
@given(*(st.integers(1, 5000) for _ in range(3)), st.integers(1, 300))
def test_the_busiest_core_does_its_part_at_least(m: int, n: int, k: int, products: int) -> None:
    assert load_of_batch(m, n, k, products) * 108 >= 2.0 * m * n * k * products * 0.999
    assert load_of_batch(m + 1, n, k, products) >= load_of_batch(m, n, k, products) * 0.999
    assert load_of_batch(m, n, k, 1) == load(m, n, k)


@pytest.mark.parametrize(
    ("architecture", "rows", "columns"),
    [
        ("ampere-ga100", 128, 128),
        ("ada", 128, 128),
        ("pascal", 64, 128),
        ("pascal-gp100", 64, 128),
        ("turing", 64, 64),
    ],
)
def test_a_batch_is_padded_to_the_tiles_that_its_library_has(architecture: str, rows: int, columns: int) -> None:
    """A product of one element takes as long as its library's smallest tile."""
    slower = (1.0 + 8.0 * (1.0 / rows + 1.0 / columns)) / 1.125
    assert load_of_batch(1, 1, 512, 108, architecture) == pytest.approx(2.0 * rows * columns * 512 * slower)


def test_an_architecture_that_nobody_profiled_takes_the_usual_tiles() -> None:
    assert {set_of(name) for name in ("hopper", "blackwell", "cdna2", "mine")} == {0.0}
    smallest = min(2.0 * m * n * 512 * (1.0 + 8.0 * (1.0 / m + 1.0 / n)) / 1.125 for m, n in USUAL)
    assert load_of_batch(1, 1, 512, 108, "hopper") == pytest.approx(smallest)
