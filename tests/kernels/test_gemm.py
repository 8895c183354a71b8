"""One GEMM against an implementation in Python integers: tiles, waves, bytes, FLOP."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.device import Device
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.gemm import Gemm, gemm_cost, linear_cost
from jaxperf.kernels.tiling import Tile, choose_tile, deepest_split
from tests.devices import A100, DEVICES, H100, TPU_V5P, efficiencies, peak_index

ROOFLINE = efficiencies("high").gemm
NOMINAL = efficiencies().gemm
BF16, INT4, FP8 = number_format("bf16"), number_format("int4"), number_format("fp8")
gemm = jax.jit(gemm_cost)
tile_of = jax.jit(lambda device, m, n, k: choose_tile(device, m, n, k, as_float(1.0), deepest_split(k)))
dimension = st.one_of(st.integers(1, 20_000), st.sampled_from([2**j for j in range(15)]))
TILES = ((256, 128), (128, 256), (128, 128))
STEP_TILES = ((256, 128), (64, 256), (64, 128))


def up(a: int, b: int) -> int:
    return -(-a // b)


def numbers(*values: float) -> tuple[jax.Array, ...]:
    return tuple(as_float(value) for value in values)


def busiest_flops(cores: int, m: int, n: int, k: int, tile: tuple[int, int, int]) -> int:
    """FLOP of the core with the most tiles, counted tile by tile."""
    height, width, split = tile
    tiles = up(m, height) * up(n, width) * split
    return up(tiles, cores) * 2 * height * width * up(k, split)


def best_tile(cores: int, m: int, n: int, k: int, tiles: Sequence[tuple[int, int]] = TILES) -> tuple[int, int, int]:
    rows = max(1 << (m - 1).bit_length(), 16)
    choices = []
    for height, width in tiles:
        height = min(rows, height)
        split = max(1, min(cores // (up(m, height) * up(n, width)), max(1, k // 512)))
        choices.append((height, width, split))
    return min(choices, key=lambda tile: busiest_flops(cores, m, n, k, tile))  # the first of equals


def traffic(m: int, n: int, k: int, split: int, operand: Fraction, weight: Fraction, output: Fraction) -> Fraction:
    partial_sums = split * m * n * 4 if split > 1 else 0
    spilled = max(partial_sums - int(H100.l2_capacity), 0)
    return m * k * operand + n * k * weight + m * n * output + 2 * spilled


@given(dimension, dimension, dimension, st.sampled_from([16, 64, 128, 256]), st.sampled_from([1, 2, 3, 7]))
def test_a_gemm_equals_python_integers(m: int, n: int, k: int, height: int, split: int) -> None:
    tile = (height, 128, split)
    cost = gemm(H100, Gemm(*numbers(m, n, k)), BF16, BF16, Tile(*numbers(*tile)), ROOFLINE)
    assert int(cost.flops) == 2 * m * n * k
    assert float(cost.bytes_moved) == traffic(m, n, k, split, Fraction(2), Fraction(2), Fraction(2))
    compute = busiest_flops(132, m, n, k, tile) * 132 / 989.4e12
    np.testing.assert_allclose(cost.compute, compute, rtol=1e-14)
    np.testing.assert_allclose(cost.memory, float(cost.bytes_moved) / 3.35e12, rtol=1e-14)
    np.testing.assert_allclose(cost.time, max(compute, float(cost.memory)) + 3e-6, rtol=1e-14)


@given(dimension, dimension, dimension, st.sampled_from(sorted(DEVICES)))
def test_the_chosen_tile_has_the_least_busy_core(m: int, n: int, k: int, name: str) -> None:
    tile = tile_of(DEVICES[name], *numbers(m, n, k))
    cores = int(DEVICES[name].num_cores)
    assert (int(tile.m), int(tile.n), int(tile.split_k)) == best_tile(cores, m, n, k)


@given(dimension, dimension, dimension)
def test_a_linear_layer_takes_the_chosen_tile(m: int, n: int, k: int) -> None:
    cost = linear_cost(A100, *numbers(m, n, k), BF16, BF16, NOMINAL)
    tile = best_tile(108, m, n, k, STEP_TILES)
    np.testing.assert_allclose(cost.compute, busiest_flops(108, m, n, k, tile) * 108 / 312e12 / 0.70, rtol=1e-13)
    assert float(cost.bytes_moved) == traffic(m, n, k, tile[2], Fraction(2), Fraction(2), Fraction(2))
    np.testing.assert_allclose(cost.memory, float(cost.bytes_moved) / (2.039e12 * 0.80), rtol=1e-13)


@pytest.mark.parametrize("name", sorted(DEVICES))
@pytest.mark.parametrize("m", [128, 256, 384, 512])
def test_one_row_more_is_no_wave_more(name: str, m: int) -> None:
    """The up projection of Llama-3-70B on eight ranks: with tiles of 128 rows alone, 129 took twice as long as 128."""
    one, more = (
        linear_cost(DEVICES[name], *numbers(rows, 7168, 8192), BF16, BF16, NOMINAL).time for rows in (m, m + 1)
    )
    assert float(more) < 1.6 * float(one)


@given(dimension, dimension, dimension, st.sampled_from(sorted(DEVICES)))
def test_no_efficiency_beats_the_roofline(m: int, n: int, k: int, name: str) -> None:
    device = DEVICES[name]
    peak, bandwidth = float(device.peak_flops[peak_index("bf16")]), float(device.memory_bandwidth)
    cost = linear_cost(device, *numbers(m, n, k), BF16, BF16, ROOFLINE)
    assert float(cost.time) >= max(2 * m * n * k / peak, 2 * (m * k + n * k + m * n) / bandwidth)


def compute_time(device: Device, m: int, n: int, k: int) -> float:
    return float(gemm(device, Gemm(*numbers(m, n, k)), BF16, BF16, Tile(*numbers(128, 128)), ROOFLINE).compute)


def test_one_tile_more_than_the_cores_doubles_the_compute_time() -> None:
    full = compute_time(H100, 128 * 132, 128, 4096)
    assert compute_time(H100, 128 * 133, 128, 4096) == 2.0 * full
    assert compute_time(H100, 128 * 131 + 1, 128, 4096) == full
    assert compute_time(H100, 128, 128, 4096) == full  # one tile keeps one core as long as a full wave
    np.testing.assert_allclose(full, 2 * 128 * 128 * 4096 / (989.4e12 / 132), rtol=1e-14)


@pytest.mark.parametrize("waves", range(1, 6))
def test_compute_time_is_a_staircase_in_waves(waves: int) -> None:
    one = compute_time(H100, 128, 128, 512)
    assert compute_time(H100, 128 * 132 * waves, 128, 512) == pytest.approx(waves * one, rel=1e-14)
    assert compute_time(H100, 128 * 132 * waves + 1, 128, 512) == pytest.approx((waves + 1) * one, rel=1e-14)


def test_the_reduction_is_split_where_the_output_has_fewer_tiles_than_cores() -> None:
    narrow = tile_of(H100, *numbers(1, 4096, 4096))
    assert (int(narrow.m), int(narrow.n), int(narrow.split_k)) == (16, 128, 4)  # 32 tiles, 132 cores
    assert int(tile_of(H100, *numbers(1, 4096, 511)).split_k) == 1
    assert int(tile_of(H100, *numbers(8192, 8192, 8192)).split_k) == 1
    assert int(tile_of(TPU_V5P, *numbers(1, 4096, 4096)).split_k) == 1


@pytest.mark.parametrize("l2_capacity", [0.0, 1e6, 50e6])
def test_splitting_divides_the_busiest_core_and_spills_partial_sums_beyond_l2(l2_capacity: float) -> None:
    m, n, k = 64, 4096, 8192
    device = H100.replace(l2_capacity=l2_capacity)
    whole = gemm(device, Gemm(*numbers(m, n, k)), BF16, BF16, Tile(*numbers(64, 128, 1)), ROOFLINE)
    split = gemm(device, Gemm(*numbers(m, n, k)), BF16, BF16, Tile(*numbers(64, 128, 4)), ROOFLINE)
    assert float(split.compute) == float(whole.compute) / 4
    assert float(split.bytes_moved - whole.bytes_moved) == 2 * max(4 * m * n * 4 - l2_capacity, 0)
    assert float(split.flops) == float(whole.flops)


@pytest.mark.parametrize(("n", "share"), [(4096, 1.0), (6400, 1.0), (6401, 0.0), (20_000, 0.0)])
def test_resident_weights_save_traffic_only_where_they_fit_the_l2(n: int, share: float) -> None:
    device = H100.replace(l2_capacity=2.0 * 6400 * 4096)
    cold = gemm(device, Gemm(*numbers(8, n, 4096, 0)), BF16, BF16, Tile(*numbers(16, 128)), ROOFLINE)
    warm = gemm(device, Gemm(*numbers(8, n, 4096, 1)), BF16, BF16, Tile(*numbers(16, 128)), ROOFLINE)
    half = gemm(device, Gemm(*numbers(8, n, 4096, 0.5)), BF16, BF16, Tile(*numbers(16, 128)), ROOFLINE)
    assert float(cold.bytes_moved - warm.bytes_moved) == share * 2 * n * 4096
    assert float(cold.bytes_moved - half.bytes_moved) == share * n * 4096


def test_weight_only_int4_streams_its_stored_bytes_and_multiplies_in_bf16() -> None:
    m, n, k = 4, 4096, 4096
    shape, tile = Gemm(*numbers(m, n, k)), Tile(*numbers(16, 128))
    wide, narrow = (gemm(H100, shape, weights, BF16, tile, ROOFLINE) for weights in (BF16, INT4))
    assert float(wide.bytes_moved - narrow.bytes_moved) == n * k * (2 - 0.515625)
    assert float(narrow.compute) == float(wide.compute)
    assert float(narrow.time) < float(wide.time)


def test_fp8_runs_at_its_own_rate_where_native_and_at_the_stand_ins_elsewhere() -> None:
    m = n = k = 8192
    shape, tile = Gemm(*numbers(m, n, k)), Tile(*numbers(128, 128))
    on_h100 = [gemm(H100, shape, weights, BF16, tile, ROOFLINE) for weights in (BF16, FP8)]
    on_a100 = [gemm(A100, shape, weights, BF16, tile, ROOFLINE) for weights in (BF16, FP8)]
    np.testing.assert_allclose(on_h100[1].compute / on_h100[0].compute, 989.4 / 1978.9, rtol=1e-14)
    assert float(on_a100[1].compute) == float(on_a100[0].compute)
    # natively both operands are narrow; with a stand-in only the stored weights are
    assert float(on_h100[1].bytes_moved) == m * k + n * k + 2 * m * n
    assert float(on_a100[1].bytes_moved) == 2 * m * k + n * k + 2 * m * n
