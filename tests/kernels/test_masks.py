"""Masks against loops over rows and keys; what they and the extras of a layer do to the two attention kernels."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxperf.core.cost import Cost
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.attention import (
    ALIBI_FLOPS,
    SINK_FLOPS,
    AttentionShape,
    decode_attention_cost,
    prefill_attention_cost,
)
from jaxperf.kernels.masks import AbstractMask, Causal, Chunked, Cross, Full
from tests.devices import H100, efficiencies, single

BF16 = number_format("bf16")
PREFILL, DECODE = efficiencies("high").attention_prefill, efficiencies("high").attention_decode
BLOCK = 128


@jax.jit
def asked(mask: AbstractMask, queries: jax.Array, prefix: jax.Array) -> tuple[jax.Array, ...]:
    context = prefix + queries
    return (
        mask.pairs(queries, prefix),
        mask.tiles(queries, prefix),
        mask.longest(queries, prefix),
        mask.keys(queries, prefix),
        mask.visible(context),
        mask.kept(context),
    )


def answers(mask: AbstractMask, queries: int, prefix: int) -> list[int]:
    return [int(x) for x in asked(mask, as_float(queries), as_float(prefix))]


def seen_in_chunks(row: int, prefix: int, chunk: int) -> range:
    position = prefix + row
    return range(position - position % chunk, position + 1)


lengths = st.one_of(st.integers(1, 900), st.integers(1, 7).map(lambda j: j * BLOCK))
prefixes = st.one_of(st.integers(0, 900), st.integers(0, 7).map(lambda j: j * BLOCK))
chunks = st.one_of(st.integers(1, 600), st.sampled_from([128, 256, 512]))


@given(lengths, prefixes, chunks)
def test_chunked_attention_equals_loops_over_rows_and_over_chunks(queries: int, prefix: int, chunk: int) -> None:
    rows = [seen_in_chunks(row, prefix, chunk) for row in range(queries)]
    pairs, tiles, longest, keys, visible, kept = answers(Chunked(chunk), queries, prefix)
    assert pairs == sum(map(len, rows))
    assert keys == prefix + queries - min(min(row) for row in rows)
    assert visible == len(rows[-1]) and kept == min(chunk, prefix + queries)
    positions = np.arange(prefix, prefix + queries)
    per_tile = []
    for number in np.unique(positions // chunk):  # every chunk is a sequence of its own, tiled from its first query
        own = positions[positions // chunk == number] - number * chunk
        per_tile += [-(-(own[start : start + BLOCK][-1] + 1) // BLOCK) for start in range(0, len(own), BLOCK)]
    assert tiles == sum(per_tile) and longest == max(per_tile)


@given(lengths, prefixes, st.one_of(st.integers(1, 600), st.sampled_from([127, 128, 129, 256])))
@example(128, 777, 256)
def test_windows_equal_loops_over_rows(queries: int, prefix: int, window: int) -> None:
    rows = [range(max(0, prefix + row + 1 - window), prefix + row + 1) for row in range(queries)]
    pairs, tiles, longest, keys, _, _ = answers(Causal(window), queries, prefix)
    assert pairs == sum(map(len, rows)) and keys == prefix + queries - rows[0].start
    blocks = [rows[start : start + BLOCK] for start in range(0, queries, BLOCK)]
    per_tile = [-(-block[-1].stop // BLOCK) - block[0].start // BLOCK for block in blocks]
    assert tiles == sum(per_tile) and longest == max(per_tile)


@given(lengths, prefixes)
def test_an_encoder_sees_everything_both_ways(queries: int, prefix: int) -> None:
    keys = prefix + queries
    blocks = -(-queries // BLOCK) * -(-keys // BLOCK)
    assert answers(Full(), queries, prefix) == [queries * keys, blocks, -(-keys // BLOCK), keys, keys, keys]


@given(lengths, prefixes, st.integers(1, 3000))
def test_cross_attention_sees_the_other_sequence_only(queries: int, prefix: int, length: int) -> None:
    blocks = -(-queries // BLOCK) * -(-length // BLOCK)
    want = [queries * length, blocks, -(-length // BLOCK), length, length, length]
    assert answers(Cross(length), queries, prefix) == want


@given(lengths, prefixes)
def test_one_chunk_and_no_window_are_plain_causal_attention(queries: int, prefix: int) -> None:
    causal = answers(Causal(), queries, prefix)
    assert answers(Chunked(4096), queries, prefix) == causal
    assert answers(Causal(0), queries, prefix) == causal


@pytest.mark.parametrize(("queries", "prefix"), [(1, 10_000_000), (1, 8191), (8192, 1_000_000), (30_000, 5)])
def test_chunks_far_into_a_sequence_are_exact_in_single_precision(queries: int, prefix: int) -> None:
    want = answers(Chunked(8192), queries, prefix)
    with jax.enable_x64(False):
        got = asked(*single((Chunked(8192), as_float(queries), as_float(prefix))))
        np.testing.assert_allclose([float(x) for x in got], want, rtol=1e-5)


def prefill(shape: AttentionShape, batch: int, queries: int, prefix: int = 0) -> Cost:
    numbers = (as_float(x) for x in (batch, queries, prefix))
    return prefill_attention_cost(H100, shape, *numbers, BF16, BF16, PREFILL)


def decode(shape: AttentionShape, batch: int, context: int) -> Cost:
    return decode_attention_cost(H100, shape, as_float(batch), as_float(context), BF16, BF16, DECODE)


def test_a_llama_4_layer_restarts_at_8192_tokens() -> None:
    chunked, full = AttentionShape(40, 8, 128, mask=Chunked(8192)), AttentionShape(40, 8, 128)
    assert float(prefill(chunked, 1, 32768).flops) == 4 * float(prefill(full, 1, 8192).flops)
    assert float(decode(chunked, 4, 8192).bytes_moved) == float(decode(full, 4, 8192).bytes_moved)
    assert float(decode(chunked, 4, 8193).flops) == 4 * 40 * 4 * 128  # the first token of a chunk sees itself
    np.testing.assert_allclose(
        prefill(chunked, 1, 32768).time - 3e-6, 4 * (prefill(full, 1, 8192).time - 3e-6), rtol=2e-3
    )


def test_an_encoder_does_twice_the_pairs_of_a_decoder_and_moves_the_same_bytes() -> None:
    encoder, decoder = (prefill(AttentionShape(16, 16, 64, mask=mask), 8, 512) for mask in (Full(), None))
    assert float(encoder.flops) == 4 * 64 * 16 * 8 * 512**2
    assert float(decoder.flops) == 4 * 64 * 16 * 8 * 512 * 513 / 2
    assert float(encoder.bytes_moved) == float(decoder.bytes_moved)


@given(st.integers(1, 64), st.integers(1, 500), st.integers(1, 2000))
@settings(max_examples=20)
def test_cross_attention_reads_the_encoder_once_and_does_not_grow(batch: int, queries: int, length: int) -> None:
    shape = AttentionShape(20, 20, 64, mask=Cross(length))  # Whisper: 1500 frames
    cost = prefill(shape, batch, queries)
    assert float(cost.flops) == 4 * 64 * 20 * batch * queries * length
    assert float(cost.bytes_moved) == batch * 20 * 64 * 2 * (2 * queries + 2 * length)
    assert float(decode(shape, batch, 1).time) == float(decode(shape, batch, 400).time)
    assert float(decode(shape, batch, 7).flops) == 4 * 64 * 20 * batch * length


def test_alibi_adds_flops_to_every_score_and_no_bytes() -> None:
    plain, biased = AttentionShape(32, 32, 128), AttentionShape(32, 32, 128, score_flops=ALIBI_FLOPS)
    pairs = 2 * 32 * 1000 * 1001 / 2
    for cost in (prefill, decode):
        without, more = cost(plain, 2, 1000), cost(biased, 2, 1000)
        count = pairs if cost is prefill else 2 * 32 * 1000
        assert float(more.flops - without.flops) == 2 * count
        assert float(more.bytes_moved) == float(without.bytes_moved) and float(more.compute) > float(without.compute)
    added = prefill(biased, 2, 1024).compute - prefill(plain, 2, 1024).compute
    waves = -(-2 * 32 * 36 // 132)  # 36 tiles of a triangle of eight
    np.testing.assert_allclose(added, waves * 128 * 128 * 2 * 132 / 67e12, rtol=1e-9)


def test_a_sink_is_a_logit_per_head() -> None:
    plain, sinks = AttentionShape(64, 8, 64, 128), AttentionShape(64, 8, 64, 128, sinks=1)
    for cost, queries in ((prefill, 3 * 500), (decode, 3)):
        without, more = cost(plain, 3, 500), cost(sinks, 3, 500)
        assert float(more.flops - without.flops) == SINK_FLOPS * 64 * queries
        assert float(more.bytes_moved - without.bytes_moved) == 64 * 2
        assert float(more.time) == pytest.approx(float(without.time), rel=1e-3)


@given(st.integers(1, 256), st.integers(1, 256), st.integers(1, 700), st.integers(1, 9))
@settings(max_examples=20)
def test_values_may_be_of_another_width_than_keys(key: int, value: int, tokens: int, batch: int) -> None:
    shape = AttentionShape(16, 4, key, value_dim=value)
    pairs = tokens * (tokens + 1) // 2
    cost = prefill(shape, batch, tokens)
    assert float(cost.flops) == 2 * (key + value) * 16 * batch * pairs
    assert float(cost.bytes_moved) == batch * tokens * 2 * (key + value) * (16 + 4)
    assert float(decode(shape, batch, tokens).flops) == 2 * (key + value) * 16 * batch * tokens


@pytest.mark.parametrize("context", [2.0**23, 1.0e7, 5.0e7])
def test_full_attention_sees_all_of_a_context_of_many_millions(context: float) -> None:
    mask, tokens = Causal(), as_float(context)
    assert float(mask.visible(tokens)) == float(mask.kept(tokens)) == context
    assert float(mask.keys(as_float(1.0), tokens)) == context + 1.0
    assert float(mask.tiles(as_float(1.0), tokens)) == math.ceil((context + 1.0) / 128.0)
