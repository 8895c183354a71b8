"""Products of experts whose rows come by chance: no stairs, the mean of random piles, plain limits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.device import load_device
from jaxperf.core.efficiency import constant_efficiency
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.moe import GroupedGemm, grouped_gemm_cost, routed_gemm_cost, routed_tiles

A100, BF16, FULL = load_device("a100-sxm-80gb"), number_format("bf16"), constant_efficiency(1.0, 1.0)
COST = jax.jit(
    jax.vmap(
        lambda rows: routed_gemm_cost(
            A100, GroupedGemm(rows, as_float(8.0), as_float(7168.0), as_float(4096.0)), BF16, BF16, FULL
        )
    )
)


def test_time_rises_with_the_rows_and_has_no_stairs() -> None:
    """One row an expert more, of 16 and more, never takes a fifth more; whole tiles of the mean would double at 65."""
    rows = jnp.arange(8.0 * 16, 8.0 * 600, 8.0)
    time = np.asarray(COST(rows).time)
    assert (np.diff(time) >= 0.0).all()
    assert (time[1:] / time[:-1]).max() < 1.08


@given(mean=st.floats(40.0, 2000.0))
def test_tiles_are_nearly_those_of_random_piles(mean: float) -> None:
    """Uneven piles (a standard deviation of half the mean) cut into tiles of the height that is taken."""
    height, expected = (float(each) for each in routed_tiles(as_float(mean)))
    piles = np.random.default_rng(0).gamma(4.0, mean / 4.0, 20_000).round()
    drawn = float(np.mean(-(-piles // height)))
    assert 16.0 <= height <= 128.0
    assert expected == pytest.approx(drawn, rel=0.05, abs=0.05)


def test_useful_flop_and_bytes_are_those_of_even_groups() -> None:
    gemm = GroupedGemm(*map(as_float, (640.0, 8.0, 1024.0, 2048.0)))
    routed, even = (cost(A100, gemm, BF16, BF16, FULL) for cost in (routed_gemm_cost, grouped_gemm_cost))
    assert float(routed.flops) == float(even.flops) == 2.0 * 640 * 1024 * 2048
    assert float(routed.bytes_moved) == float(even.bytes_moved)
    assert float(routed.compute) >= float(routed.flops / A100.peak_flops[BF16.compute])


def test_slopes_are_finite() -> None:
    slope = jax.grad(lambda rows: COST(rows[None]).time[0])
    assert np.isfinite([float(slope(as_float(each))) for each in (1.0, 100.0, 5000.0)]).all()
