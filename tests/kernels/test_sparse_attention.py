"""The indexer, the selection and the attention to the chosen tokens, against loops over the queries."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.mla import LatentShape, mla_decode_cost
from jaxperf.kernels.sparse_attention import (
    Indexer,
    indexer_decode_cost,
    indexer_prefill_cost,
    ramp_tiles,
    sparse_decode_attention_cost,
    sparse_prefill_attention_cost,
    top_k_cost,
)
from tests.devices import H100, efficiencies, single

BF16, FP8 = number_format("bf16"), number_format("fp8")
HIGH = efficiencies("high")
INDEXER = Indexer(64, 128, 2048)  # DeepSeek-V3.2: index_n_heads, index_head_dim, index_topk
LATENT = LatentShape(128, 128, 64, 128, 512)
tiles_of = jax.jit(ramp_tiles)
lengths = st.one_of(st.integers(1, 900), st.integers(1, 7).map(lambda j: j * 128))
prefixes = st.one_of(st.integers(0, 900), st.integers(0, 7).map(lambda j: j * 128))
some = settings(max_examples=25)


def up(a: int, b: int) -> int:
    return -(-a // b)


@given(lengths, prefixes, st.integers(1, 1200))
def test_every_query_has_its_own_tiles(queries: int, prefix: int, span: int) -> None:
    want = sum(up(min(span, prefix + row + 1), 128) for row in range(queries))
    assert float(tiles_of(*(as_float(x) for x in (queries, prefix, span)))) == want


def test_tiles_far_into_a_sequence_are_exact_in_single_precision() -> None:
    point = tuple(as_float(x) for x in (3, 4_000_001, 8_000_000))
    want = float(tiles_of(*point))
    with jax.enable_x64(False):
        assert float(tiles_of(*single(point))) == pytest.approx(want, rel=1e-6)


@given(lengths, prefixes, st.integers(1, 8))
@some
def test_the_indexer_scores_every_causal_pair(queries: int, prefix: int, batch: int) -> None:
    numbers = (as_float(x) for x in (batch, queries, prefix))
    cost = indexer_prefill_cost(H100, INDEXER, *numbers, FP8, FP8, HIGH.gemm)
    pairs = batch * sum(prefix + row + 1 for row in range(queries))
    assert float(cost.flops) == pairs * 64 * (2 * 128 + 3)
    assert float(cost.bytes_moved) == batch * (queries * 64 * (128 + 4) + (prefix + queries) * 128) + pairs * 4
    assert float(cost.compute) * 1978.9e12 >= pairs * 64 * 2 * 128 * (1 - 1e-12)


@given(st.integers(1, 64), st.integers(1, 100_000))
@some
def test_a_step_of_the_indexer_reads_one_key_a_token(batch: int, context: int) -> None:
    cost = indexer_decode_cost(H100, INDEXER, as_float(batch), as_float(context), FP8, FP8, HIGH.gemm)
    assert float(cost.flops) == batch * context * 64 * (2 * 128 + 3)
    assert float(cost.bytes_moved) == batch * (64 * (128 + 4) + context * 128 + context * 4)
    waves = up(batch * up(context, 128), 132)
    slowest = max(2 * 128 / 1978.9e12, 3 / 67e12)  # the ReLU and the sum over heads run on the vector units
    np.testing.assert_allclose(cost.compute, waves * 128 * 64 * slowest * 132, rtol=1e-12)


def test_weak_vector_units_bound_the_indexer() -> None:
    device = H100.replace(vector_flops=10e12)
    cost = indexer_decode_cost(device, INDEXER, as_float(132), as_float(128), FP8, FP8, HIGH.gemm)
    np.testing.assert_allclose(cost.compute, 128 * 64 * 3 / (10e12 / 132), rtol=1e-12)


@given(st.integers(1, 5000), st.integers(1, 200_000))
@some
def test_selection_reads_scores_twice_only_where_they_do_not_stay_on_chip(rows: int, columns: int) -> None:
    cost = top_k_cost(H100, *(as_float(x) for x in (rows, columns, 2048)), HIGH.elementwise)
    reads = 1 if min(rows, 132) * columns * 4 <= 50 * 2**20 else 2
    assert float(cost.bytes_moved) == rows * columns * 4 * reads + rows * min(2048, columns) * 4


@given(lengths, prefixes, st.integers(1, 1200), st.integers(1, 4), st.sampled_from([0.0, 1e5, 50e6]))
@some
def test_sparse_prefill_counts_chosen_pairs(queries: int, prefix: int, chosen: int, batch: int, l2: float) -> None:
    device = H100.replace(l2_capacity=l2)
    numbers = [as_float(x) for x in (chosen, batch, queries, prefix)]
    cost = sparse_prefill_attention_cost(
        device, LATENT.absorbed, *numbers, FP8, BF16, efficiency=HIGH.attention_prefill
    )
    pairs = batch * sum(min(chosen, prefix + row + 1) for row in range(queries))
    assert float(cost.flops) == 2 * 128 * (576 + 512) * pairs
    stored = batch * (prefix + queries) * 576
    missed = max(1 - l2 / stored, 0.0)
    gathered = min(stored, pairs * 576) + max(pairs * 576 - stored, 0) * missed
    vectors = batch * queries * (128 * (576 + 512) * 2 + min(chosen, prefix + queries) * 4)
    assert float(cost.bytes_moved) == pytest.approx(gathered + vectors, rel=1e-13)
    assert float(cost.compute) * 989.4e12 >= float(cost.flops) * (1 - 1e-12)


@given(st.integers(1, 64), st.integers(1, 100_000))
@some
def test_sparse_decode_is_decode_of_the_chosen_tokens(batch: int, context: int) -> None:
    arguments = (FP8, BF16, HIGH.attention_decode)
    chosen = as_float(2048)
    sparse = sparse_decode_attention_cost(H100, LATENT, chosen, as_float(batch), as_float(context), *arguments)
    dense = mla_decode_cost(H100, LATENT, as_float(batch), as_float(min(context, 2048)), *arguments)
    assert float(sparse.time) == float(dense.time) and float(sparse.bytes_moved) == float(dense.bytes_moved)


def test_sparse_attention_pays_at_128k_and_not_at_4k() -> None:
    """DeepSeek-V3.2 (arXiv 2512.02556): the core falls from L^2 to L k, the indexer stays L^2 but is far lighter."""

    def ratio(context: int) -> float:
        batch, length = as_float(32), as_float(context)
        dense = mla_decode_cost(H100, LATENT, batch, length, BF16, BF16, HIGH.attention_decode)
        sparse = (
            indexer_decode_cost(H100, INDEXER, batch, length, FP8, FP8, HIGH.gemm)
            + top_k_cost(H100, batch, length, INDEXER.chosen, HIGH.elementwise)
            + sparse_decode_attention_cost(
                H100, LATENT, INDEXER.chosen, batch, length, BF16, BF16, HIGH.attention_decode
            )
        )
        return float(sparse.time / dense.time)

    assert ratio(131_072) < 0.25 < 0.6 < ratio(4096)
