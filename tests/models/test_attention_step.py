"""Kinds of attention and of layers in a step: gpt-oss, Llama 4, Gemma 2 and 3n, Falcon, GPT-J, BLOOM by hand."""

from __future__ import annotations

import pytest

from tests.devices import H100, deployment, model
from tests.models.shipped import decode_once, prefill_once

ROOMY = H100.replace(memory_capacity=4e13)
GPT_OSS, SCOUT, MAVERICK = model("gpt-oss-20b"), model("llama-4-scout"), model("llama-4-maverick-text")
BATCH = 8


def test_gpt_oss_by_hand() -> None:
    """Every second layer sees 128 tokens; a logit for each head joins the softmax (arXiv:2508.10925, section 2)."""
    kernels = decode_once(deployment(ROOMY), GPT_OSS, BATCH, 4000).kernels
    pairs, sinks = 12 * (4000 + 128), 24 * 2
    assert float(kernels["attention"].flops) == BATCH * 64 * (4 * 64 * pairs + sinks)
    assert float(kernels["qkv_projection"].flops) == 24 * 2 * BATCH * 2880 * (64 + 2 * 8) * 64
    touched = 32 * (1 - (1 - 4 / 32) ** BATCH)
    rows = BATCH * 4
    moved = touched * 2 * 2880 * 2880 * 2 + rows * (2880 + 2 * 2880) * 2
    assert float(kernels["expert_up_projection"].bytes_moved) == pytest.approx(24 * moved, rel=1e-12)


def test_gpt_oss_windows_stop_growing() -> None:
    found = [float(decode_once(deployment(ROOMY), GPT_OSS, 1, context).memory.kv_cache) for context in (128, 4000)]
    per_token = 2 * 8 * 64 * 2
    assert found == [24 * 128 * per_token, 12 * (128 + 4000) * per_token]


def test_llama_4_attends_in_blocks_and_every_fourth_layer_everywhere() -> None:
    """Blocks of 8192 tokens: token 20,000 is the 3,616th of its block."""
    step = decode_once(deployment(ROOMY), SCOUT, BATCH, 20_000)
    assert float(step.kernels["attention"].flops) == 4 * BATCH * 40 * 128 * (36 * 3616 + 12 * 20_000)
    assert float(step.memory.kv_cache) == BATCH * 2 * 8 * 128 * 2 * (36 * 8192 + 12 * 20_000)
    prompt = prefill_once(deployment(ROOMY), SCOUT, 1, 20_000).kernels["attention"]
    whole, rest = 8192 * 8193 / 2, 3616 * 3617 / 2
    pairs = 36 * (2 * whole + rest) + 12 * 20_000 * 20_001 / 2
    assert float(prompt.flops) == 4 * 40 * 128 * pairs
    assert float(step.kernels["rotary"].bytes_moved) == 36 * BATCH * 48 * 128 * 2 * 2  # none in the full layers


def test_llama_4_maverick_interleaves_dense_and_expert_layers() -> None:
    kernels = decode_once(deployment(ROOMY), MAVERICK, BATCH, 1000).kernels
    assert float(kernels["router"].flops) == 24 * 2 * BATCH * 5120 * 128
    assert float(kernels["up_projection"].flops) == 24 * 2 * BATCH * 5120 * 2 * 16384
    assert float(kernels["shared_up_projection"].flops) == 24 * 2 * BATCH * 5120 * 2 * 8192


def test_gemma_norms_before_and_after_each_block() -> None:
    kernels = decode_once(deployment(ROOMY), model("gemma-2-2b"), BATCH, 6000).kernels
    for name in ("attention_norm", "post_attention_norm", "ffn_norm", "post_ffn_norm"):
        assert float(kernels[name].bytes_moved) == 26 * 4 * BATCH * 2304 * 2
    assert float(kernels["attention"].flops) == 4 * BATCH * 8 * 256 * 13 * (4096 + 6000)


def test_gemma_3n_layers_without_keys_of_their_own() -> None:
    step = decode_once(deployment(ROOMY), model("gemma-3n-e2b-text"), BATCH, 400)
    queries, keys_and_values = 8 * 256, 2 * 2 * 256
    assert float(step.kernels["qkv_projection"].flops) == 2 * BATCH * 2048 * (30 * queries + 20 * keys_and_values)
    assert float(step.memory.kv_cache) == BATCH * 20 * 400 * keys_and_values * 2
    assert float(step.kernels["attention"].flops) == 30 * 4 * BATCH * 8 * 256 * 400


@pytest.mark.parametrize(("name", "norms"), [("falcon-40b", 2), ("gpt-j-6b", 1), ("command-r-35b", 1)])
def test_parallel_blocks_are_added_once_and_reduced_once(name: str, norms: int) -> None:
    one, two = (decode_once(deployment(ROOMY, tensor=ranks), model(name), BATCH, 1000) for ranks in (1, 2))
    layers, hidden = float(model(name).num_layers), float(model(name).hidden)
    assert "attention_all_reduce" not in two.kernels
    assert float(two.kernels["ffn_all_reduce"].bytes_moved) == layers * BATCH * hidden * 2
    assert float(one.kernels["branch_add"].bytes_moved) == layers * 3 * BATCH * hidden * 2
    assert sum(kernel in one.kernels for kernel in ("attention_norm", "ffn_norm")) == norms


def test_a_linear_position_bias_costs_vector_work_and_no_bytes() -> None:
    kernels = decode_once(deployment(ROOMY), model("bloom-176b"), 512, 1000).kernels
    assert float(kernels["attention"].flops) == 70 * 512 * 112 * 1000 * (4 * 128 + 2)
    assert "rotary" not in kernels


def test_a_second_mixer_shares_norm_and_all_reduce() -> None:
    step = decode_once(deployment(ROOMY, tensor=2), model("falcon-h1-0.5b"), BATCH, 1000)
    assert {"mamba_scan", "attention", "branch_add"} <= set(step.kernels)
    reduces = [name for name in step.kernels if name.endswith("_all_reduce")]
    assert reduces in (["attention_all_reduce", "ffn_all_reduce"], ["mixer_all_reduce", "ffn_all_reduce"])
    layers = float(model("falcon-h1-0.5b").num_layers)
    assert float(step.kernels[reduces[0]].bytes_moved) == layers * BATCH * 1024 * 2


def test_several_replicas_add_up_the_shared_expert() -> None:
    """With tensor and data parallelism the shared expert's partial sums are in no other collective."""
    at = deployment(ROOMY, tensor=2, data=2, expert=4)
    shared = decode_once(at, SCOUT, BATCH, 1000).kernels["shared_all_reduce"]
    assert float(shared.bytes_moved) == 48 * (BATCH / 2) * 5120 * 2
    for layout in ({"tensor": 4}, {"data": 4}):
        none = decode_once(deployment(ROOMY, expert=4, **layout), SCOUT, BATCH, 1000).kernels["shared_all_reduce"]
        assert float(none.time) == 0.0
