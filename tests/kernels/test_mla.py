"""Latent attention: the published cache, absorbed against not absorbed, hand counts of its products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.efficiency import constant_efficiency
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.attention import decode_attention_cost
from jaxperf.kernels.mla import (
    LatentShape,
    mla_absorb_output_cost,
    mla_absorb_query_cost,
    mla_decode_cost,
    mla_expand_cost,
    mla_prefill_cost,
)
from tests.devices import H100, efficiencies

BF16, FP8 = number_format("bf16"), number_format("fp8")
HIGH = efficiencies("high")
DEEPSEEK = LatentShape(128, 128, 64, 128, 512)  # DeepSeek-V2 and V3: 128 heads, 4 x 128 latent, 64 rotary
small = st.integers(1, 64)
counts = (st.integers(1, 40), st.integers(1, 5000))


def test_deepseek_v2_caches_576_elements_a_token() -> None:
    """(d_c + d_h^R) l with d_c = 4 d_h = 512 and d_h^R = d_h / 2 = 64, arXiv 2405.04434 table 1; the whole of V3, 61
    layers, is 70,272 bytes a token in bf16 (arXiv 2505.09343 table 1: 70.272 KB)."""
    assert float(DEEPSEEK.cached_dim) == 576
    assert float(DEEPSEEK.cached_dim) * 61 * 2 == 70_272


@given(*counts)
@settings(max_examples=30)
def test_absorbed_decode_reads_each_latent_once_for_all_heads(batch: int, context: int) -> None:
    cost = mla_decode_cost(H100, DEEPSEEK, as_float(batch), as_float(context), FP8, BF16, HIGH.mla_decode)
    assert float(cost.flops) == 2 * 128 * batch * context * (2 * 512 + 64)
    assert float(cost.bytes_moved) == batch * (context * 576 + 128 * (576 + 512) * 2)


@given(st.integers(1, 300), *counts)
@settings(max_examples=30)
def test_the_cores_share_all_tiles_of_64_heads_and_64_latents(heads: int, batch: int, context: int) -> None:
    """FlashMLA's scheduler: sixteen heads fill an instruction, 64 a block; the busiest core has a tile more at most."""
    shape = LatentShape(heads, 128, 64, 128, 512)
    cost = mla_decode_cost(H100, shape, as_float(batch), as_float(context), BF16, BF16, HIGH.mla_decode)
    busiest = -(-(batch * -(-heads // 64) * -(-context // 64)) // 132)
    rows = min(-(-heads // 16) * 16, 64)
    np.testing.assert_allclose(cost.compute, busiest * 132 * rows * 64 * 2 * 1088 / 989.4e12, rtol=1e-12)
    assert float(cost.compute) * 989.4e12 >= float(cost.flops) * (1 - 1e-12)


@pytest.mark.parametrize("heads", [16, 128])
@pytest.mark.parametrize("batch", [1, 3, 8, 100])
def test_a_longer_context_never_takes_less(batch: int, heads: int) -> None:
    """Neither where few tiles leave cores idle nor where a last tile has begun."""
    shape = LatentShape(heads, 128, 64, 128, 512)
    contexts = jnp.array([1.0, 63, 64, 65, 128, 129, 256, 257, 1024, 4096, 4160, 4161, 4224, 4225, 4289, 8449, 16384])
    times = jax.vmap(
        lambda context: mla_decode_cost(H100, shape, as_float(batch), context, BF16, BF16, HIGH.mla_decode).time
    )(contexts)
    assert (jnp.diff(times) >= -1e-12 * times[1:]).all()


@pytest.mark.parametrize("batch", [1, 66, 200])
def test_the_busiest_core_stretches_the_read_of_latents_alone(batch: int) -> None:
    """Whole tiles: the read takes what the busiest core's tiles do at its share of the bandwidth, of 64 latents each,
    which two blocks of 64 heads share; queries and outputs come at all of it."""
    cost = mla_decode_cost(H100, DEEPSEEK, as_float(batch), as_float(192), BF16, BF16, constant_efficiency(1.0, 1.0))
    busiest = -(-batch * 2 * 3 // 132)
    moved = busiest * 132 * 64 / 2 * 576 * 2 + batch * 128 * (576 + 512) * 2
    np.testing.assert_allclose(cost.memory, moved / 3.35e12, rtol=1e-12)


@given(small, small, small, small, st.integers(1, 500), st.integers(1, 300))
@settings(max_examples=30)
def test_absorbing_moves_the_same_products_from_the_keys_to_the_queries(
    heads: int, nope: int, value: int, rank: int, tokens: int, rope: int
) -> None:
    """q (W_UK c) = (W_UK^T q) c: per token the two absorbed products cost what expanding one token costs."""
    shape = LatentShape(heads, nope, rope, value, rank)
    arguments = (H100, shape, as_float(tokens), BF16, BF16, HIGH.gemm)
    query, output = mla_absorb_query_cost(*arguments), mla_absorb_output_cost(*arguments)
    assert float(query.flops) == 2 * heads * tokens * nope * rank
    assert float(output.flops) == 2 * heads * tokens * value * rank
    assert float(query.flops + output.flops) == float(mla_expand_cost(*arguments).flops)
    partial_free = 2 * heads * (tokens * nope + nope * rank + tokens * rank)
    assert float(query.bytes_moved) == partial_free  # too shallow to be split


def test_absorbing_pays_in_decode_and_expanding_in_prefill() -> None:
    batch, context = as_float(8), as_float(4096)
    tokens = batch * context
    absorbed = (
        mla_decode_cost(H100, DEEPSEEK, batch, context, BF16, BF16, HIGH.attention_decode)
        + mla_absorb_query_cost(H100, DEEPSEEK, batch, BF16, BF16, HIGH.gemm)
        + mla_absorb_output_cost(H100, DEEPSEEK, batch, BF16, BF16, HIGH.gemm)
    )
    expanded = decode_attention_cost(
        H100, DEEPSEEK.expanded, batch, context, BF16, BF16, HIGH.attention_decode
    ) + mla_expand_cost(H100, DEEPSEEK, tokens, BF16, BF16, HIGH.gemm)
    assert float(absorbed.time) < 0.1 * float(expanded.time)
    assert float(absorbed.flops) < float(expanded.flops)
    prefill = mla_prefill_cost(H100, DEEPSEEK, as_float(1), context, as_float(0), BF16, HIGH.attention_prefill)
    pairs = 4096 * 4097 / 2
    assert float(prefill.flops) == 2 * 128 * (192 + 128) * pairs
    assert float(prefill.flops) < 2 * 128 * (576 + 512) * pairs / 3
    assert float(prefill.bytes_moved) == 4096 * 128 * 2 * 2 * (192 + 128)


def test_all_heads_of_a_token_fill_their_blocks() -> None:
    """128 queries are two blocks of rows: compute is theirs, without padding."""
    cost = mla_decode_cost(H100, DEEPSEEK, as_float(132 * 4), as_float(1024), BF16, BF16, HIGH.attention_decode)
    np.testing.assert_allclose(cost.compute, float(cost.flops) / 989.4e12, rtol=1e-12)
