"""State-space layers, linear attention and their convolution against loops over chunks, tokens and heads."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.causal_conv import causal_conv_cost, causal_conv_decode_cost
from jaxperf.kernels.delta_rule import delta_decode_cost, delta_prefill_cost, inverse_flops
from jaxperf.kernels.lightning import lightning_prefill_cost
from jaxperf.kernels.recurrent import STATE_ITEMSIZE, LinearAttentionShape, chunk_pairs, decayed_decode_cost
from jaxperf.kernels.selective_scan import SelectiveScan, selective_scan_cost, selective_scan_decode_cost
from jaxperf.kernels.ssd import ssd_prefill_cost
from tests.devices import H100, TPU_V5P, efficiencies

BF16 = number_format("bf16")
HIGH = efficiencies("high")
MAMBA_2 = LinearAttentionShape(80, 1, 128, 64, 256)  # Mamba-2 2.7B: 5120 channels in heads of 64, state 128
QWEN3_NEXT = LinearAttentionShape(32, 16, 128, 128, 64)  # 32 value heads, 16 key heads of 128
MINIMAX = LinearAttentionShape(64, 64, 128, 128, 256, gates=0)
sizes = (st.integers(1, 8), st.integers(1, 3000))
some = settings(max_examples=20)


def chunk_lengths(tokens: int, chunk: int) -> list[int]:
    return [min(chunk, tokens - start) for start in range(0, tokens, chunk)]


@given(st.integers(1, 3000), st.integers(1, 400))
@some
def test_pairs_within_chunks_equal_a_loop(tokens: int, chunk: int) -> None:
    want = sum(position % chunk + 1 for position in range(tokens))
    assert float(chunk_pairs(as_float(tokens), as_float(chunk))) == want


def matmul(m: int, n: int, k: int) -> int:
    return 2 * m * n * k


@given(*sizes)
@some
def test_ssd_does_the_four_products_of_the_paper(batch: int, tokens: int) -> None:
    """Section 6 and listing 1 of arXiv 2405.21060, with the pairs a query may see counted instead of whole squares."""
    heads, groups, state, width, chunk = 80, 1, 128, 64, 256
    want = 0
    for length in chunk_lengths(tokens, chunk):
        pairs = length * (length + 1) // 2
        want += groups * 2 * state * pairs + heads * 2 * width * pairs  # C B^T, times x
        want += heads * matmul(state, width, length)  # states
        want += heads * 2 * state * width  # passed on
        want += heads * matmul(length, width, state)  # outputs of the states
    cost = ssd_prefill_cost(H100, MAMBA_2, as_float(batch), as_float(tokens), BF16, HIGH.linear_attention)
    assert float(cost.flops) == batch * want
    chunks = batch * -(-tokens // chunk)
    per_token = (128 + 80 * 64) * 2 * (1 + 2) + 2 * 80 * 4
    assert float(cost.bytes_moved) == batch * tokens * per_token + 4 * chunks * 80 * 128 * 64 * 4
    assert float(cost.launches) == 3


def test_ssd_of_a_long_prompt_is_linear_in_its_length() -> None:
    one, two = (
        ssd_prefill_cost(H100, MAMBA_2, as_float(1), as_float(length), BF16, HIGH.linear_attention)
        for length in (65536, 131072)
    )
    assert float(two.flops) == 2 * float(one.flops)
    assert float(two.time) == pytest.approx(2 * float(one.time), rel=0.01)


@given(*sizes)
@some
def test_the_delta_rule_folds_passes_and_reads_out(batch: int, tokens: int) -> None:
    heads, key, value, chunk = 32, 128, 128, 64
    want = 0
    for n in chunk_lengths(tokens, chunk):
        pairs, below = n * (n + 1) // 2, n * (n - 1) // 2
        inverse = sum(2 * (row - column - 1) for row in range(n) for column in range(row))
        fold = 2 * key * below + inverse + 2 * (key + value) * pairs
        states = matmul(n, value, key) + matmul(key, value, n)
        outputs = 2 * (key + value) * pairs + matmul(n, value, key)
        want += heads * (fold + states + outputs)
    cost = delta_prefill_cost(H100, QWEN3_NEXT, as_float(batch), as_float(tokens), BF16, HIGH.linear_attention)
    assert float(cost.flops) == pytest.approx(batch * want, rel=1e-14)
    chunks = batch * -(-tokens // chunk)
    keys, values = 16 * key, heads * value
    fold = 2 * (keys + values + heads * key + values) + 2 * heads * 4  # k, v in; w, u out; decay and beta
    states = 2 * (keys + heads * key + values + values) + heads * 4  # k, w, u in; new values out
    outputs = 2 * (2 * keys + 2 * values) + heads * 4  # q, k, new values in; outputs out
    borders = 2 * chunks * heads * key * value * 2  # written and read in bf16
    ends = 2 * batch * heads * key * value * 4
    assert float(cost.bytes_moved) == batch * tokens * (fold + states + outputs) + borders + ends


@given(st.integers(0, 80))
@some
def test_a_unit_triangle_is_inverted_by_substitution(size: int) -> None:
    counted = sum(2 * (row - column - 1) for row in range(size) for column in range(row))
    assert float(inverse_flops(as_float(size))) == pytest.approx(counted, abs=1e-9)


@given(*sizes)
@some
def test_lightning_attention_reads_its_inputs_once(batch: int, tokens: int) -> None:
    heads, width, chunk = 64, 128, 256
    pairs = sum(n * (n + 1) // 2 for n in chunk_lengths(tokens, chunk))
    cost = lightning_prefill_cost(H100, MINIMAX, as_float(batch), as_float(tokens), BF16, HIGH.linear_attention)
    assert float(cost.flops) == batch * heads * (4 * width * pairs + 4 * tokens * width**2)
    assert float(cost.bytes_moved) == batch * (tokens * 4 * heads * width * 2 + 2 * heads * width**2 * 4)


DECODES = {
    "ssd": (decayed_decode_cost, MAMBA_2, 5, 1),
    "delta": (delta_decode_cost, QWEN3_NEXT, 7, 2),
    "kimi delta": (delta_decode_cost, LinearAttentionShape(32, 32, 128, 128, 64, gates=128), 7, 129),
    "lightning": (decayed_decode_cost, MINIMAX, 5, 0),
}


@pytest.mark.parametrize("name", DECODES)
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_a_step_reads_and_writes_the_state_in_single_precision(name: str, batch: int) -> None:
    cost_of, shape, operations, gates = DECODES[name]
    heads, keys, k, v = (int(x) for x in (shape.heads, shape.key_heads, shape.key_dim, shape.value_dim))
    cost = cost_of(H100, shape, as_float(batch), BF16, HIGH.elementwise)
    state = heads * k * v
    assert float(cost.flops) == batch * operations * state
    assert float(cost.bytes_moved) == batch * (8 * state + 2 * 2 * (keys * k + heads * v) + gates * heads * 4)
    blocks = batch * heads * v // 16
    stretch = -(-blocks // 132) * 132 / blocks
    np.testing.assert_allclose(cost.memory, float(cost.bytes_moved) * stretch / 3.35e12, rtol=1e-13)


def test_the_state_of_mamba_2_does_not_grow_with_the_context() -> None:
    assert float(MAMBA_2.state_elements) * STATE_ITEMSIZE == 80 * 64 * 128 * 4
    assert "context" not in decayed_decode_cost.__wrapped__.__annotations__


@given(*sizes)
@some
def test_a_selective_scan_runs_on_the_vector_units(batch: int, tokens: int) -> None:
    channels, state = 5120, 16  # Mamba 2.8B
    cost = selective_scan_cost(
        H100, SelectiveScan(channels, state), as_float(batch), as_float(tokens), BF16, HIGH.linear_attention
    )
    assert float(cost.flops) == batch * tokens * channels * (7 * state + 3)
    moved = batch * tokens * (4 * channels + 2 * state) * 2 + (batch + 1) * channels * state * 4
    assert float(cost.bytes_moved) == moved
    waves = -(-batch * channels // 132)
    np.testing.assert_allclose(cost.compute, waves * tokens * (7 * state + 3) / (67e12 / 132), rtol=1e-12)
    step = selective_scan_decode_cost(H100, SelectiveScan(channels, state), as_float(batch), BF16, HIGH.elementwise)
    assert float(step.flops) == batch * channels * (7 * state + 3)
    states = (2 * batch + 1) * channels * state * 4
    assert float(step.bytes_moved) == batch * (4 * channels + 2 * state) * 2 + states


def test_duality_beats_the_scan_at_a_larger_state() -> None:
    """arXiv 2405.21060, abstract: the core layer is 2 to 8 times as fast as the selective scan."""
    tokens = as_float(8192)
    scan = selective_scan_cost(H100, SelectiveScan(5120, 128), as_float(1), tokens, BF16, HIGH.linear_attention)
    ssd = ssd_prefill_cost(H100, MAMBA_2, as_float(1), tokens, BF16, HIGH.linear_attention)
    assert float(ssd.time) < 0.5 * float(scan.time)


@given(st.integers(1, 64), st.integers(1, 5000), st.integers(1, 9000), st.integers(2, 4))
@some
def test_a_convolution_keeps_its_last_inputs(batch: int, tokens: int, channels: int, width: int) -> None:
    numbers = [as_float(x) for x in (batch, tokens, channels, width, 2)]
    cost = causal_conv_cost(TPU_V5P, *numbers, HIGH.elementwise)
    kept = batch * channels * (width - 1)
    assert float(cost.flops) == 2 * width * batch * tokens * channels
    assert float(cost.bytes_moved) == 2 * (2 * batch * tokens * channels + channels * width + kept)
    step = causal_conv_decode_cost(TPU_V5P, numbers[0], *numbers[2:], HIGH.elementwise)
    assert float(step.flops) == 2 * width * batch * channels
    assert float(step.bytes_moved) == 2 * (2 * batch * channels + channels * width + 2 * kept)


PREFILLS = {"ssd": ssd_prefill_cost, "delta": delta_prefill_cost, "lightning": lightning_prefill_cost}


@pytest.mark.parametrize("name", PREFILLS)
def test_cores_never_do_less_than_the_useful_work(name: str) -> None:
    for shape in (MAMBA_2, QWEN3_NEXT, MINIMAX):
        for tokens in (1, 63, 64, 1000, 4096):
            cost = PREFILLS[name](H100, shape, as_float(1), as_float(tokens), BF16, HIGH.linear_attention)
            vector = 2.0 * float(shape.state_elements) * -(-tokens // float(shape.chunk)) if name == "ssd" else 0.0
            assert float(cost.compute) * 989.4e12 >= float(cost.flops) - vector
            assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(cost))


def busiest(blocks: int, block_flops: int, peak: float = 989.4e12) -> float:
    """Time of the busiest of 132 cores."""
    return -(-blocks // 132) * block_flops / (peak / 132)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("tokens", [1, 64, 1000])
def test_the_busiest_core_multiplies_whole_chunks(batch: int, tokens: int) -> None:
    arguments = (as_float(batch), as_float(tokens), BF16, HIGH.linear_attention)
    heads, width = 64, 128
    lightning = lightning_prefill_cost(H100, MINIMAX, *arguments)
    step = 2 * 256 * 256 * (width + 64) + 2 * 2 * 256 * width * 64  # half of the value columns in a block
    blocks = batch * heads * 2
    np.testing.assert_allclose(lightning.compute, busiest(blocks, -(-tokens // 256) * step), rtol=1e-13)
    stretch = -(-blocks // 132) * 132 / blocks
    np.testing.assert_allclose(lightning.memory, lightning.bytes_moved * stretch / 3.35e12, rtol=1e-13)

    delta = delta_prefill_cost(H100, QWEN3_NEXT, *arguments)
    heads, chunk, chunks = 32, 64, -(-tokens // 64)
    inverse = sum(2 * (row - column - 1) for row in range(chunk) for column in range(row))
    fold = busiest(batch * heads * chunks, 2 * chunk * chunk * 3 * width + inverse)
    states = busiest(batch * heads * 2, chunks * 2 * matmul(chunk, 64, width))
    outputs = busiest(batch * heads * chunks, 2 * chunk * chunk * 2 * width + matmul(chunk, width, width))
    np.testing.assert_allclose(delta.compute, fold + states + outputs, rtol=1e-13)

    ssd = ssd_prefill_cost(H100, MAMBA_2, *arguments)
    heads, chunk, chunks = 80, 256, -(-tokens // 256)
    own_share = 2 * chunk * chunk * (128 / heads + 64)  # C B^T is computed once for all heads
    blocks = batch * heads * chunks
    passing = 2 * blocks * 128 * 64 / 67e12
    products = busiest(blocks, matmul(chunk, 64, 128)) + busiest(blocks, own_share + matmul(chunk, 64, 128))
    np.testing.assert_allclose(ssd.compute, products + passing, rtol=1e-13)


@pytest.mark.parametrize("batch", [1, 7])
def test_idle_cores_of_the_last_wave_stretch_a_step_and_a_scan(batch: int) -> None:
    step = decayed_decode_cost(H100, MINIMAX, as_float(batch), BF16, HIGH.elementwise)
    blocks = batch * 64 * 8
    np.testing.assert_allclose(step.compute, busiest(blocks, 5 * 128 * 16, 67e12), rtol=1e-13)
    scan = selective_scan_cost(H100, SelectiveScan(100, 16), as_float(batch), as_float(9), BF16, HIGH.linear_attention)
    stretch = -(-batch * 100 // 132) * 132 / (batch * 100)
    np.testing.assert_allclose(scan.memory, scan.bytes_moved * stretch / 3.35e12, rtol=1e-13)
