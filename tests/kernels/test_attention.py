"""Attention against loops over rows and blocks; the decode kernel's bytes, splits and stretch."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.attention import (
    AttentionShape,
    decode_attention_cost,
    prefill_attention_cost,
)
from jaxperf.kernels.masks import causal_pairs, visited_tiles
from tests.devices import DEVICES, H100, TPU_V5P, efficiencies

BF16, FP8 = number_format("bf16"), number_format("fp8")
PREFILL, DECODE = efficiencies("high").attention_prefill, efficiencies("high").attention_decode
BLOCK = 128
LLAMA_70B = AttentionShape(64, 8, 128)
MHA_70B = AttentionShape(64, 64, 128)
pairs = jax.jit(lambda queries, prefix, shape: causal_pairs(queries, prefix, shape.span))
tiles = jax.jit(lambda queries, prefix, shape: visited_tiles(queries, prefix, shape.span))
lengths = st.one_of(st.integers(1, 900), st.integers(1, 7).map(lambda j: j * BLOCK))
prefixes = st.one_of(st.integers(0, 900), st.integers(0, 7).map(lambda j: j * BLOCK))
windows = st.one_of(st.just(0), st.integers(1, 1000), st.integers(1, 7).map(lambda j: j * BLOCK))


def visible(row: int, prefix: int, window: int) -> range:
    """Keys that one query sees, by position."""
    last = prefix + row
    return range(max(0, last + 1 - window) if window else 0, last + 1)


def prefill(device: Device, shape: AttentionShape, batch: float, queries: float, prefix: float) -> Cost:
    return prefill_attention_cost(
        device, shape, as_float(batch), as_float(queries), as_float(prefix), BF16, BF16, PREFILL
    )


def decode(device: Device, shape: AttentionShape, batch: float, context: float, cache: str = "bf16") -> Cost:
    return decode_attention_cost(device, shape, as_float(batch), as_float(context), number_format(cache), BF16, DECODE)


@given(lengths, prefixes, windows)
def test_causal_pairs_equal_a_loop_over_the_rows(queries: int, prefix: int, window: int) -> None:
    want = sum(len(visible(row, prefix, window)) for row in range(queries))
    assert float(pairs(as_float(queries), as_float(prefix), AttentionShape(1, 1, 64, window))) == want


@given(lengths, prefixes, windows)
def test_visited_tiles_equal_a_loop_over_the_blocks(queries: int, prefix: int, window: int) -> None:
    want = 0
    for start in range(0, queries, BLOCK):
        rows = range(start, min(start + BLOCK, queries))
        keys = {key // BLOCK for row in rows for key in visible(row, prefix, window)}
        want += max(keys) - min(keys) + 1
    assert float(tiles(as_float(queries), as_float(prefix), AttentionShape(1, 1, 64, window))) == want


@given(lengths, prefixes, windows, st.integers(1, 40))
def test_prefill_counts_flops_of_the_pairs_and_bytes_of_the_keys_in_reach(
    queries: int, prefix: int, window: int, batch: int
) -> None:
    cost = prefill(H100, AttentionShape(64, 8, 128, window), batch, queries, prefix)
    seen = {key for row in (0, queries - 1) for key in visible(row, prefix, window)}
    keys = prefix + queries - min(seen)  # the first row's first key to the last row's last key
    count = sum(len(visible(row, prefix, window)) for row in range(queries))
    assert float(cost.flops) == 4 * 128 * 64 * batch * count
    assert float(cost.bytes_moved) == batch * 128 * 2 * (2 * queries * 64 + 2 * keys * 8)


def test_prefill_of_a_long_prompt_takes_half_of_the_square() -> None:
    cost = prefill(H100, LLAMA_70B, 1, 32768, 0)
    square = 4 * 128 * 64 * 32768**2
    assert 0.5 < float(cost.flops) / square < 0.5001
    # all but the diagonal tiles are whole, so the padding is below one tile a row block
    np.testing.assert_allclose(cost.compute, 0.5 * square / 989.4e12, rtol=1.2 / (32768 / BLOCK))


def test_the_longest_query_tile_bounds_a_prefill_with_too_few_tiles() -> None:
    cost = prefill(H100, AttentionShape(1, 1, 128), 1, 1, 128 * 1000 - 1)
    np.testing.assert_allclose(cost.compute, 1000 * 4 * 128**3 / (989.4e12 / 132), rtol=1e-13)


def test_a_window_bounds_the_work_of_a_long_prompt() -> None:
    full, windowed = (prefill(H100, AttentionShape(64, 8, 128, window), 1, 32768, 0) for window in (0, 4096))
    assert float(windowed.flops) / float(full.flops) == pytest.approx(1 - (1 - 1 / 8) ** 2, rel=1e-3)
    assert float(windowed.time) < 0.3 * float(full.time)
    same = prefill(H100, AttentionShape(64, 8, 128, 4096), 1, 4096, 0)
    assert float(same.time) == float(prefill(H100, LLAMA_70B, 1, 4096, 0).time)


def reference_splits(cores: int, groups: int, keys: int) -> int:
    return max(1, min(2 * cores // groups, max(1, keys // 128)))


@given(st.integers(1, 600), st.integers(1, 20_000), windows, st.sampled_from(sorted(DEVICES)))
def test_decode_equals_python_integers(batch: int, context: int, window: int, name: str) -> None:
    device = DEVICES[name]
    cores, heads, kv_heads, width = int(device.num_cores), 64, 8, 128
    cost = decode(device, AttentionShape(heads, kv_heads, width, window), batch, context)
    keys = min(context, window) if window else context
    groups = batch * kv_heads
    splits = reference_splits(cores, groups, keys)
    partial = 2 * splits * batch * heads * width * 4 if splits > 1 else 0
    assert float(cost.flops) == 4 * batch * heads * width * keys
    assert float(cost.bytes_moved) == 2 * groups * keys * width * 2 + 2 * batch * heads * width * 2 + partial
    blocks = groups * splits
    share = max(1.0, blocks / cores)
    stretch = share * cores / blocks
    np.testing.assert_allclose(cost.memory, float(cost.bytes_moved) * stretch / device.memory_bandwidth, rtol=1e-13)
    block_flops = 4 * 16 * -(-keys // splits) * width  # eight query heads fill sixteen rows
    np.testing.assert_allclose(cost.compute, share * block_flops * cores / device.peak_flops[3], rtol=1e-13)


@given(st.integers(1, 400), st.integers(256, 20_000), st.integers(100, 300))
def test_neither_a_core_more_nor_a_sequence_less_is_slower(batch: int, context: int, cores: int) -> None:
    def time(sequences: int, number: int) -> float:
        scale = number / H100.num_cores
        device = H100.replace(
            num_cores=number, peak_flops=H100.peak_flops * scale, vector_flops=H100.vector_flops * scale
        )
        return float(decode(device, LLAMA_70B, sequences, context).time)

    now = time(batch, cores)
    assert time(batch, cores + 8) < 1.04 * now  # partial outputs of further splits
    assert time(batch + 1, cores) > 0.96 * now and time(batch + 1, cores) < (1.05 + 1.0 / batch) * now


def test_one_layer_of_llama_2_70b_reads_4096_bytes_of_cache_per_token() -> None:
    cost = decode(H100, LLAMA_70B, 16, 4096)
    outputs = 16 * 64 * 128
    splits = 2 * 132 // (16 * 8)
    assert float(cost.bytes_moved) == 16 * 4096 * 4096 + 2 * outputs * 2 + 2 * splits * outputs * 4
    assert 80 * 4096 == 327_680  # the published cache of the whole model, bytes a token


def test_grouped_queries_read_the_cache_once_per_kv_head() -> None:
    outputs = 2 * 32 * 64 * 128 * 2
    grouped, multi = (decode(H100, shape, 32, 250) for shape in (LLAMA_70B, MHA_70B))
    assert float(multi.bytes_moved - outputs) == 8 * float(grouped.bytes_moved - outputs)
    assert float(multi.flops) == float(grouped.flops)


def test_the_cache_format_scales_the_cache_bytes_only() -> None:
    wide, narrow = decode(H100, LLAMA_70B, 32, 500), decode(H100, LLAMA_70B, 32, 500, "fp8")
    assert float(wide.bytes_moved - narrow.bytes_moved) == 32 * 8 * 2 * 500 * 128


@pytest.mark.parametrize("context", [4096, 4097, 100_000])
def test_a_window_caps_the_decode(context: int) -> None:
    windowed = AttentionShape(64, 8, 128, 4096)
    assert float(decode(H100, windowed, 8, context).time) == float(decode(H100, LLAMA_70B, 8, 4096).time)


def stretch_of(device: Device, batch: int, context: int) -> float:
    cost = decode(device, LLAMA_70B, batch, context)
    return float(cost.memory * device.memory_bandwidth / cost.bytes_moved)


@given(st.integers(1, 2000), st.integers(1, 100), st.sampled_from(sorted(DEVICES)))
def test_enough_splits_keep_the_stretch_from_one_to_one_and_a_half(batch: int, extra: int, name: str) -> None:
    device = DEVICES[name]
    context = 128 * 4 * int(device.num_cores) + extra  # every core can have four stretches of keys
    assert 1.0 - 1e-12 <= stretch_of(device, batch, context) < 1.5


def test_too_few_keys_to_split_leave_cores_idle() -> None:
    assert stretch_of(H100, 1, 255) == pytest.approx(132 / 8, rel=1e-12)
    assert stretch_of(H100, 1, 256) == pytest.approx(132 / 16, rel=1e-12)
    assert stretch_of(TPU_V5P, 1, 255) == pytest.approx(1.0, rel=1e-12)


@given(st.integers(1, 64), st.integers(1, 100_000), st.integers(1, 5000))
def test_a_longer_context_is_never_faster_once_no_more_splits_pay(batch: int, extra: int, more: int) -> None:
    enough = 128 * 4 * 132
    shorter, longer = (decode(H100, LLAMA_70B, batch, context) for context in (enough + extra, enough + extra + more))
    assert float(longer.time) >= float(shorter.time)
