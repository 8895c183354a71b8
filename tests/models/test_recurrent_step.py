"""Layers with a state of constant size, by hand: Nemotron-H, Qwen3-Next, MiniMax-01, Kimi Linear, Mamba, LFM2."""

from __future__ import annotations

import math

import pytest

from jaxperf.core.feasible import Reason
from jaxperf.models.layers import Transformer
from tests.devices import H100, deployment, model
from tests.models.shipped import decode_once, prefill_once

ROOMY = H100.replace(memory_capacity=4e13)
NEMOTRON, QWEN, MINIMAX = model("nemotron-h-8b"), model("qwen3-next-80b-a3b"), model("minimax-text-01")
KIMI, MAMBA, LFM2 = model("kimi-linear-48b-a3b"), model("falcon-mamba-7b"), model("lfm2-1.2b")
BATCH = 16


def test_nemotron_h_by_hand() -> None:
    """24 Mamba-2, 24 feed-forward and 4 attention layers, one norm each (arXiv:2504.03624, table 1)."""
    kernels = decode_once(deployment(ROOMY), NEMOTRON, BATCH, 1000).kernels
    inner, shared, heads = 128 * 64, 2 * 8 * 128, 128
    assert float(kernels["mamba_in_projection"].flops) == 24 * 2 * BATCH * 4096 * (2 * inner + shared + heads)
    assert float(kernels["mamba_out_projection"].flops) == 24 * 2 * BATCH * 4096 * inner
    assert float(kernels["mamba_convolution"].flops) == 24 * BATCH * (inner + shared) * 2 * 4
    state = 128 * 64 * 128
    assert float(kernels["mamba_scan"].flops) == 24 * BATCH * 5 * state
    states_moved = 24 * BATCH * 2 * 4 * state  # read and written, in fp32
    assert states_moved <= float(kernels["mamba_scan"].bytes_moved) <= 1.02 * states_moved
    assert float(kernels["attention"].flops) == 4 * 4 * BATCH * 32 * 128 * 1000
    assert float(kernels["up_projection"].flops) == 24 * 2 * BATCH * 4096 * 21504
    for norm, layers in (("mixer_norm", 24), ("attention_norm", 4), ("ffn_norm", 24)):
        assert float(kernels[norm].bytes_moved) == layers * 4 * BATCH * 4096 * 2
    assert "rotary" not in kernels and "branch_add" not in kernels


def test_a_state_is_the_same_at_any_length_and_a_cache_grows_in_four_layers() -> None:
    short, long = (decode_once(deployment(ROOMY), NEMOTRON, 1, context).memory for context in (1000, 5000))
    per_token = 4 * 2 * 8 * 128 * 2
    assert float(long.kv_cache - short.kv_cache) == 4000 * per_token
    state = 24 * (128 * 64 * 128 * 4 + (128 * 64 + 2 * 8 * 128) * 3 * 2)
    assert float(short.kv_cache) == 1000 * per_token + state
    pure = [float(decode_once(deployment(ROOMY), MAMBA, 1, context).memory.kv_cache) for context in (10, 100_000)]
    assert pure[0] == pure[1] == 64 * (8192 * 16 * 4 + 8192 * 3 * 2)


def test_qwen3_next_by_hand() -> None:
    """36 gated delta layers of 16 key and 32 value heads, 12 gated attention layers."""
    kernels = decode_once(deployment(ROOMY), QWEN, BATCH, 1000).kernels
    keys, values = 16 * 128, 32 * 128
    assert float(kernels["delta_in_projection"].flops) == 36 * 2 * BATCH * 2048 * 2 * (keys + values)
    assert float(kernels["delta_gate_projection"].flops) == 36 * 2 * BATCH * 2048 * 2 * 32
    assert float(kernels["delta_convolution"].flops) == 36 * BATCH * (2 * keys + values) * 2 * 4
    assert float(kernels["delta_rule"].flops) == 36 * BATCH * 7 * 32 * 128 * 128
    assert float(kernels["delta_out_projection"].flops) == 36 * 2 * BATCH * 2048 * values
    gated_query = 2 * 16 * 256 + 2 * 2 * 256
    assert float(kernels["qkv_projection"].flops) == 12 * 2 * BATCH * 2048 * gated_query
    assert float(kernels["output_gate"].bytes_moved) == 12 * 3 * BATCH * 16 * 256 * 2
    assert float(kernels["router"].flops) == 48 * 2 * BATCH * 2048 * 512


def test_minimax_kimi_and_lfm2_by_hand() -> None:
    kernels = decode_once(deployment(ROOMY), MINIMAX, BATCH, 1000).kernels
    assert float(kernels["linear_attention"].flops) == 70 * BATCH * 5 * 64 * 128 * 128
    assert float(kernels["attention"].flops) == 10 * 4 * BATCH * 64 * 128 * 1000
    assert float(kernels["gate_projection"].flops) == 70 * 2 * BATCH * 6144 * 8192
    kernels = decode_once(deployment(ROOMY), KIMI, BATCH, 1000).kernels
    assert float(kernels["delta_rule"].flops) == 20 * BATCH * 7 * 32 * 128 * 128
    assert float(kernels["attention"].flops) == 7 * BATCH * 32 * 1000 * 2 * (2 * 512 + 64)
    assert "rotary" not in kernels
    kernels = decode_once(deployment(ROOMY), LFM2, BATCH, 1000).kernels
    assert float(kernels["conv_in_projection"].flops) == 10 * 2 * BATCH * 2048 * 3 * 2048
    assert float(kernels["short_convolution"].flops) == 10 * BATCH * 2048 * 2 * 3


def test_mamba_sums_its_selection_over_the_ranks() -> None:
    one, four = (decode_once(deployment(ROOMY, tensor=ranks), MAMBA, BATCH, 1000).kernels for ranks in (1, 4))
    assert float(one["state_all_reduce"].time) == 0.0 < float(four["state_all_reduce"].time)
    assert float(four["mamba_scan"].flops) == float(one["mamba_scan"].flops) / 4
    message = BATCH * (256 + 2 * 16) * 2
    assert float(four["state_all_reduce"].bytes_moved) == 64 * 2 * 3 / 4 * message


@pytest.mark.parametrize("transformer", [NEMOTRON, QWEN, MINIMAX, KIMI, LFM2])
def test_a_prompt_costs_in_proportion_to_its_length_but_for_attention(transformer: Transformer) -> None:
    short, long = (prefill_once(deployment(ROOMY), transformer, 1, prompt).kernels for prompt in (2048, 8192))
    for name in ("mamba_scan", "delta_rule", "linear_attention", "short_convolution", "mamba_convolution"):
        if name in short:
            assert float(long[name].flops) == pytest.approx(4 * float(short[name].flops), rel=1e-3), name
    assert float(long["attention"].flops) > 15 * float(short["attention"].flops)


@pytest.mark.parametrize(
    ("transformer", "tensor", "reason"),
    [
        (NEMOTRON, 8, Reason(0)),
        (NEMOTRON, 16, Reason(0)),  # groups of B and C replicated twice
        (NEMOTRON, 3, Reason.TENSOR_PARALLEL),
        (QWEN, 16, Reason(0)),
        (QWEN, 32, Reason.TENSOR_PARALLEL),  # 16 key heads
        (MINIMAX, 64, Reason(0)),
        (LFM2, 8, Reason(0)),
        (MAMBA, 7, Reason.TENSOR_PARALLEL),
    ],
)
def test_which_splits_are_even(transformer: Transformer, tensor: int, reason: Reason) -> None:
    step = decode_once(deployment(ROOMY, tensor=tensor), transformer, BATCH, 1000)
    assert Reason(int(step.reason)) == reason
    assert math.isnan(float(step.time)) == bool(reason)


def test_states_split_with_the_heads() -> None:
    one, eight = (decode_once(deployment(ROOMY, tensor=ranks), QWEN, 1, 1).memory for ranks in (1, 8))
    keys = 12 * 2 * 2 * 256 * 2  # two KV heads are replicated once there are eight ranks
    assert float(eight.kv_cache - keys / 2) == (float(one.kv_cache) - keys) / 8
