"""Batched products and their schedules against integers: whole tiles, split reductions, even streams with a fix-up."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.batched_gemm import BatchedGemm, batched_gemm_cost
from jaxperf.kernels.gemm import linear_cost
from jaxperf.kernels.moe import GroupedGemm, grouped_gemm_cost
from jaxperf.kernels.schedules import SCHEDULES, scheduled_work, stream_k_work
from jaxperf.kernels.tiling import Tile
from tests.devices import DEVICES, H100, efficiencies

BF16, FP8 = number_format("bf16"), number_format("fp8")
ROOFLINE, MOE = efficiencies("high").gemm, efficiencies("high").moe
dimension = st.one_of(st.integers(1, 6000), st.sampled_from([2**j for j in range(13)]))
some = settings(max_examples=40)
streams = jax.jit(stream_k_work)


def up(a: int, b: int) -> int:
    return -(-a // b)


def numbers(*values: float) -> tuple[jax.Array, ...]:
    return tuple(as_float(value) for value in values)


@given(st.integers(1, 300), dimension, dimension, dimension)
@some
def test_a_batch_moves_its_operands_and_shares_the_waves(batch: int, m: int, n: int, k: int) -> None:
    cost = batched_gemm_cost(H100, BatchedGemm(*numbers(batch, m, n, k)), FP8, BF16, ROOFLINE, "data-parallel")
    assert float(cost.flops) == 2 * batch * m * n * k
    assert float(cost.bytes_moved) == batch * (m * k + n * k + 2 * m * n)
    rows = max(1 << (m - 1).bit_length(), 16)
    tiles = [(min(rows, height), width) for height, width in ((256, 128), (64, 256), (64, 128))]
    busiest = min(up(batch * up(m, a) * up(n, b), 132) * 2 * a * b * k for a, b in tiles)
    np.testing.assert_allclose(cost.compute, busiest * 132 / 1978.9e12, rtol=1e-13)


def test_small_products_fill_the_device_together() -> None:
    """A single tile leaves 131 cores idle; 132 of them take no longer."""
    one, full, more = (
        batched_gemm_cost(H100, BatchedGemm(*numbers(batch, 64, 128, 512)), BF16, BF16, ROOFLINE)
        for batch in (1, 132, 133)
    )
    assert float(full.compute) == float(one.compute) and float(more.compute) == 2 * float(one.compute)


@given(dimension, dimension, dimension)
@some
def test_a_batch_of_one_is_a_linear_layer(m: int, n: int, k: int) -> None:
    one = batched_gemm_cost(H100, BatchedGemm(*numbers(1, m, n, k)), BF16, BF16, ROOFLINE)
    linear = linear_cost(H100, *numbers(m, n, k), BF16, BF16, ROOFLINE)
    for got, want in zip(jax.tree.leaves(one), jax.tree.leaves(linear), strict=True):
        assert float(got) == pytest.approx(float(want), rel=1e-14)


def simulated(cores: int, tiles: int, depth: int) -> tuple[int, int, int]:
    """(iterations of the busiest core, borders inside a tile, most partial tiles one core adds), core by core."""
    total = tiles * depth
    share = up(total, cores)
    parts: dict[int, list[int]] = {}
    for core in range(cores):
        for tile in {step // depth for step in range(core * share, min((core + 1) * share, total))}:
            parts.setdefault(tile, []).append(core)
    borders = sum(len(owners) - 1 for owners in parts.values())
    return share, borders, max(len(owners) - 1 for owners in parts.values())


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 40), st.integers(1, 3), st.integers(1, 60))
@some
def test_a_stream_is_cut_into_even_shares(rows: int, columns: int, depth: int, groups: int, cores: int) -> None:
    device, tile = H100.replace(num_cores=cores), Tile(*numbers(128, 128))
    work = streams(device, *numbers(128 * rows, 128 * columns, 32 * depth, groups), tile)
    share, borders, most = simulated(cores, rows * columns * groups, depth)
    assert float(work.busiest) == share * 2 * 128 * 128 * 32
    assert borders * 128 * 128 * 4 <= float(work.partial_sums) < cores * 128 * 128 * 4
    assert most * 128 * 128 <= float(work.additions) <= (most + 1) * 128 * 128
    if share % depth == 0:
        assert float(work.partial_sums) == float(work.additions) == 0.0


def test_a_stream_does_not_pay_for_a_part_filled_wave() -> None:
    """133 tiles on 132 cores: two waves of whole tiles, or 1.01 tiles a core."""
    gemm = BatchedGemm(*numbers(1, 128 * 133, 128, 8192))
    whole, stream = (
        batched_gemm_cost(H100, gemm, BF16, BF16, ROOFLINE, schedule) for schedule in ("data-parallel", "stream-k")
    )
    ideal = float(whole.flops) / 989.4e12
    assert float(whole.compute) > 1.4 * ideal and float(stream.compute) < 1.05 * ideal
    assert float(stream.bytes_moved) == float(whole.bytes_moved)  # the partial tiles stay in L2


def test_the_fix_up_adds_partial_sums_on_the_vector_units() -> None:
    work = scheduled_work("stream-k", H100, *numbers(128 * 133, 128, 8192, 1))
    gemm = BatchedGemm(*numbers(1, 128 * 133, 128, 8192))
    cost = batched_gemm_cost(H100, gemm, BF16, BF16, ROOFLINE, "stream-k")
    products, additions = float(work.busiest) / (989.4e12 / 132), float(work.additions) / (67e12 / 132)
    assert additions > 0.0
    np.testing.assert_allclose(cost.compute, products + additions, rtol=1e-13)
    experts = GroupedGemm(*numbers(128 * 133, 1, 128, 8192))
    grouped = grouped_gemm_cost(H100, experts, BF16, BF16, MOE, schedule="stream-k")
    np.testing.assert_allclose(grouped.compute, products + additions, rtol=1e-13)


def test_partial_tiles_spill_beyond_the_l2() -> None:
    device, gemm = H100.replace(l2_capacity=0.0), BatchedGemm(*numbers(1, 128 * 133, 128, 8192))
    kept, spilled = (batched_gemm_cost(at, gemm, BF16, BF16, ROOFLINE, "stream-k") for at in (H100, device))
    work = scheduled_work("stream-k", H100, *numbers(128 * 133, 128, 8192, 1))
    assert float(work.partial_sums) > 0.0
    assert float(spilled.bytes_moved - kept.bytes_moved) == 2 * float(work.partial_sums)


@given(dimension, dimension, st.integers(2048, 20_000), st.sampled_from(sorted(DEVICES)))
@some
def test_a_stream_multiplies_at_most_what_whole_tiles_do(m: int, n: int, k: int, name: str) -> None:
    work = {each: scheduled_work(each, DEVICES[name], *numbers(m, n, k, 1)) for each in SCHEDULES}
    whole = float(work["data-parallel"].busiest) * (32 * up(k, 32)) / k  # the stream rounds the depth up
    assert float(work["stream-k"].busiest) <= whole * (1 + 1e-12)
    assert float(work["split-k"].busiest) <= float(work["data-parallel"].busiest)
    assert float(work["stream-k"].busiest) * DEVICES[name].num_cores >= 2 * m * n * k


def test_experts_may_be_streamed_too() -> None:
    shape = GroupedGemm(*numbers(512, 57, 4096, 7168))
    whole = grouped_gemm_cost(H100, shape, BF16, BF16, MOE)
    assert float(grouped_gemm_cost(H100, shape, BF16, BF16, MOE, schedule="data-parallel").time) == float(whole.time)
    stream = grouped_gemm_cost(H100, shape, BF16, BF16, MOE, schedule="stream-k")
    assert float(stream.flops) == float(whole.flops) and float(stream.compute) < float(whole.compute)


def test_an_unknown_schedule_says_what_is_allowed() -> None:
    with pytest.raises(InputError, match="stream_k.*allowed: data-parallel, split-k, stream-k.*stream-k"):
        scheduled_work("stream_k", H100, *numbers(1, 1, 1, 1))  # type: ignore[arg-type]
