"""Convolutions: what each algorithm multiplies, which one is taken, and what runs beside it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.kernels.convolutions import (
    Algorithm,
    apart,
    as_product,
    chosen,
    in_one_kernel,
    side,
)
from calibration.kernels.formats import Formats, format_columns
from calibration.kernels.hardware import load_hardware
from jaxperf.core.device import Device
from tests.calibration.tables import blank_table

NAMES = ("batch", "input_channels", "output_channels", "input_size", "kernel_size", "stride", "padding")


def device(name: str = "v100-pcie-32gb") -> Device:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), load_hardware([name])).device


def formats(dtype: str = "fp32") -> Formats:
    one = {name: np.ones(1) for name in NAMES}
    found, _ = format_columns(blank_table("convolution", one, np.array(["v100-pcie-32gb"], dtype=object), dtype))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), found)


def shape(*sizes: int) -> dict[str, jax.Array]:
    return {name: jnp.asarray(float(size)) for name, size in zip(NAMES, sizes, strict=True)}


def test_minimal_filterings_multiply_less() -> None:
    x = shape(8, 64, 64, 32, 3, 1, 1)
    product = as_product(device(), x)
    assert float(side(x)) == 32.0
    assert float(product.flops) == 2.0 * 8 * 32**2 * 64 * 64 * 9
    assert float(product.flops / in_one_kernel(device(), x).flops) == pytest.approx(2.25)  # Lavin and Gray
    assert float(product.flops / apart(device(), x).flops) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("kernel", "stride", "dtype"), [(1, 1, "fp32"), (5, 1, "fp32"), (3, 2, "fp32"), (3, 1, "fp16")]
)
def test_others_are_products(kernel: int, stride: int, dtype: str) -> None:
    x = shape(32, 256, 256, 28, kernel, stride, 1)
    assert _same(chosen(device(), x, formats(dtype)), as_product(device(), x))


def test_which_is_taken() -> None:
    """As cuDNN does in most rows: few input channels, few pixels or many make the three cases."""
    few, apart_, whole = (
        shape(32, 8, 512, 28, 3, 1, 1),
        shape(32, 256, 256, 12, 3, 1, 1),
        shape(8, 64, 32, 112, 3, 1, 1),
    )
    assert _same(chosen(device(), few, formats()), as_product(device(), few))
    assert _same(chosen(device(), apart_, formats()), apart(device(), apart_))
    assert _same(chosen(device("p4"), whole, formats()), in_one_kernel(device("p4"), whole))


def _same(found: Algorithm, wanted: Algorithm) -> bool:
    return all(
        np.isclose(float(a), float(b)) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    )


@settings(max_examples=30)
@given(st.tuples(*(st.integers(1, most) for most in (64, 2000, 2000, 200))))
def test_the_busiest_core_does_its_part_at_least(sizes: tuple[int, int, int, int]) -> None:
    x = shape(*sizes, 3, 1, 1)
    taken = chosen(device(), x, formats())
    assert float(taken.busy) * 80 >= float(taken.flops) * 0.999
    assert float(taken.flops) > 0.0
    assert float(taken.beside) >= 0.0
    more = {**x, "batch": 2.0 * x["batch"]}
    for way in (as_product, in_one_kernel, apart):
        assert float(way(device(), more).busy) >= float(way(device(), x).busy)
