"""Latent attention by hand: DeepSeek V3 (arXiv:2412.19437, section 4.2), its cache, the sparse attention of V3.2."""

from __future__ import annotations

import pytest

from jaxperf.core.feasible import Reason
from jaxperf.models.layers import Transformer
from tests.devices import H100, deployment, model
from tests.models.shipped import decode_once, prefill_once

ROOMY = H100.replace(memory_capacity=4e13)
V3, SPARSE, KIMI = model("deepseek-v3"), model("deepseek-v3.2"), model("kimi-k2")
HIDDEN, LAYERS, HEADS, Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 7168, 61, 128, 1536, 512, 128, 64, 128
BATCH, CONTEXT = 32, 4000


def weights_read(elements: float, inputs: float, outputs: float) -> float:
    """Bytes of one bf16 projection: weights, what goes in, what comes out."""
    return 2 * (elements + inputs + outputs)


@pytest.mark.parametrize(
    ("kernel", "columns", "depth"),
    [
        ("latent_projection", Q_RANK + KV_RANK + ROPE, HIDDEN),
        ("query_projection", HEADS * (NOPE + ROPE), Q_RANK),
        ("output_projection", HIDDEN, HEADS * VALUE),
    ],
)
def test_projections_by_hand(kernel: str, columns: int, depth: int) -> None:
    cost = decode_once(deployment(ROOMY), V3, BATCH, CONTEXT).kernels[kernel]
    assert float(cost.flops) == LAYERS * 2 * BATCH * columns * depth
    by_hand = LAYERS * weights_read(columns * depth, BATCH * depth, BATCH * columns)
    assert float(cost.bytes_moved) == pytest.approx(by_hand, rel=1e-12)


def test_absorbed_decode_by_hand() -> None:
    """Scores on 576 elements and values of 512, for 128 heads; the latent of a token is read once for all of them."""
    batch = 1024  # enough sequences that the latents of one are not split over cores
    kernels = decode_once(deployment(ROOMY), V3, batch, CONTEXT).kernels
    pairs = LAYERS * batch * HEADS * CONTEXT
    assert float(kernels["attention"].flops) == pairs * 2 * (KV_RANK + ROPE + KV_RANK)
    assert float(kernels["absorb_query"].flops) == LAYERS * 2 * batch * HEADS * NOPE * KV_RANK
    assert float(kernels["absorb_output"].flops) == LAYERS * 2 * batch * HEADS * VALUE * KV_RANK
    latents = LAYERS * batch * CONTEXT * (KV_RANK + ROPE) * 2
    queries_and_outputs = LAYERS * batch * HEADS * (KV_RANK + ROPE + KV_RANK) * 2
    assert float(kernels["attention"].bytes_moved) == latents + queries_and_outputs
    assert "latent_expansion" not in kernels


def test_a_long_prompt_is_expanded_by_hand() -> None:
    """Keys of 192 and values of 128 elements for every head, made from the latents of prompt and prefix."""
    prompt, prefix = 1000, 500
    kernels = prefill_once(deployment(ROOMY), V3, 2, prompt, prefix).kernels
    pairs = prompt * prefix + prompt * (prompt + 1) / 2
    assert float(kernels["attention"].flops) == LAYERS * 2 * HEADS * pairs * 2 * (NOPE + ROPE + VALUE)
    for kernel, tokens in (("latent_expansion", prompt), ("prefix_expansion", prefix)):
        assert float(kernels[kernel].flops) == LAYERS * 2 * 2 * tokens * KV_RANK * HEADS * (NOPE + VALUE)
    assert {float(kernels[kernel].time) for kernel in ("absorb_query", "absorb_output")} == {0.0}


def test_a_few_tokens_after_a_long_prefix_are_absorbed_by_hand() -> None:
    """Scores of 576 and values of 512 elements for every head, query and latent; the prefix is not expanded."""
    prompt, prefix = 16, 30_000
    kernels = prefill_once(deployment(ROOMY), V3, 2, prompt, prefix).kernels
    pairs = prompt * prefix + prompt * (prompt + 1) / 2
    assert float(kernels["attention"].flops) == LAYERS * 2 * HEADS * pairs * 2 * (KV_RANK + ROPE + KV_RANK)
    for kernel in ("absorb_query", "absorb_output"):
        assert float(kernels[kernel].flops) == LAYERS * 2 * 2 * prompt * HEADS * NOPE * KV_RANK
    latents = LAYERS * 2 * (prefix + (prompt + 1) / 2) * (KV_RANK + ROPE) * 2
    queries_and_outputs = LAYERS * 2 * prompt * HEADS * (KV_RANK + ROPE + KV_RANK) * 2
    assert float(kernels["attention"].bytes_moved) == latents + queries_and_outputs
    assert {float(kernels[kernel].time) for kernel in ("latent_expansion", "prefix_expansion")} == {0.0}


def test_a_prompt_takes_the_form_that_is_done_sooner() -> None:
    """Expanded without a prefix; with one, absorbed up to between the 128 and 512 tokens at which vLLM changes."""
    at = deployment(ROOMY, tensor=8)

    def expands(prompt: int, prefix: int) -> bool:
        return float(prefill_once(at, V3, 1, prompt, prefix).kernels["latent_expansion"].time) > 0.0

    assert [expands(prompt, 30_000) for prompt in (1, 128, 512, 4096)] == [False, False, True, True]
    assert expands(1, 0)
    one, token = prefill_once(at, V3, 1, 1, 30_000), decode_once(at, V3, 1, 30_001)
    assert float(one.flops) == float(token.flops)
    assert float(one.time) == pytest.approx(float(token.time), rel=1e-3)


@pytest.mark.parametrize("transformer", [V3, KIMI], ids=["deepseek-v3", "kimi-k2"])
@pytest.mark.parametrize("tensor", [1, 8])
def test_a_cached_token_takes_70_kilobytes_on_every_rank(transformer: Transformer, tensor: int) -> None:
    """70.272 KB in bf16 (DeepSeek, "Insights into DeepSeek-V3", arXiv:2505.09343, table 1); the latent is not split."""
    step = decode_once(deployment(ROOMY, tensor=tensor), transformer, 1, 1000)
    assert float(step.memory.kv_cache) == 1000 * 70_272


def test_tensor_parallelism_splits_the_heads_and_not_the_latents() -> None:
    one, eight = (decode_once(deployment(ROOMY, tensor=ranks), V3, BATCH, CONTEXT).kernels for ranks in (1, 8))
    for kernel in ("query_projection", "absorb_query", "attention", "absorb_output", "output_projection"):
        assert float(eight[kernel].flops) == float(one[kernel].flops) / 8
    for kernel in ("latent_projection", "latent_norm", "kv_write"):
        assert float(eight[kernel].bytes_moved) == float(one[kernel].bytes_moved)
    assert float(one["attention_all_reduce"].time) == 0.0 < float(eight["attention_all_reduce"].time)
    refused = decode_once(deployment(ROOMY, tensor=6), V3, BATCH, CONTEXT)
    assert Reason(int(refused.reason)) & Reason.TENSOR_PARALLEL


def test_experts_and_shared_expert_by_hand() -> None:
    kernels = decode_once(deployment(ROOMY), V3, BATCH, CONTEXT).kernels
    assert float(kernels["expert_up_projection"].flops) == pytest.approx(
        58 * 2 * BATCH * 8 * 2 * 2048 * HIDDEN, rel=1e-12
    )
    assert float(kernels["shared_down_projection"].flops) == 58 * 2 * BATCH * 2048 * HIDDEN
    assert float(kernels["up_projection"].flops) == 3 * 2 * BATCH * 2 * 18432 * HIDDEN
    assert float(kernels["router"].flops) == 58 * 2 * BATCH * 256 * HIDDEN


def test_sparse_attention_looks_at_2048_tokens_and_its_indexer_at_all() -> None:
    short, long = (decode_once(deployment(ROOMY), SPARSE, BATCH, context).kernels for context in (4000, 64_000))
    assert float(short["attention"].flops) == float(long["attention"].flops)
    assert float(long["attention"].flops) == LAYERS * BATCH * HEADS * 2048 * 2 * (KV_RANK + ROPE + KV_RANK)
    assert float(long["indexer"].flops) == pytest.approx(16 * float(short["indexer"].flops), rel=1e-6)
    assert float(short["indexer"].flops) >= LAYERS * BATCH * 4000 * 64 * 128 * 2
    full, sparse = (decode_once(deployment(ROOMY), each, BATCH, 64_000) for each in (V3, SPARSE))
    assert float(sparse.kernels["attention"].time) < 0.2 * float(full.kernels["attention"].time)
    assert float(sparse.memory.kv_cache) == 61 * (576 + 128) * 2 * 64_000 * BATCH
    prompt = prefill_once(deployment(ROOMY), SPARSE, 1, 8000).kernels
    pairs = 2048 * 2049 / 2 + (8000 - 2048) * 2048
    assert float(prompt["attention"].flops) == pytest.approx(LAYERS * HEADS * pairs * 2 * 1088, rel=1e-6)
