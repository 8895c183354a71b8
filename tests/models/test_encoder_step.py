"""Encoders in a step: T5 and Whisper with cross-attention, LLaVA and Qwen2-VL with images, BERT and ViT alone."""

from __future__ import annotations

import math

import pytest

from hwspecs.errors import InputError
from jaxperf.core.feasible import Reason
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.parameters import parameter_count
from jaxperf.serving.phases import serving_cost
from tests.devices import H100, deployment, model
from tests.models.shipped import decode_once, prefill_once

ROOMY = H100.replace(memory_capacity=4e13)
T5, WHISPER, LLAVA = (model(name) for name in ("t5-base", "whisper-large-v3", "llava-1.5-7b"))
MLLAMA = model("llama-3.2-11b-vision")


def test_towers_that_join_positions_say_so() -> None:
    """Four into one: Qwen2-VL (arXiv:2409.12191, section 2.1) and its successors, Mistral Small 3.1."""
    for name in ("qwen2-vl-7b", "qwen2.5-vl-7b", "qwen3-vl-8b", "mistral-small-3.1-24b"):
        assert [tower.merge for tower in load_model(name).encoders] == [4], name


def test_t5_encodes_its_prompt_and_decodes_from_one_token() -> None:
    """12 layers of 12 heads of 64, feed-forward 3072 without a gate (arXiv:1910.10683, section 3.1.1)."""
    prompt, batch = 300, 4
    kernels = prefill_once(deployment(ROOMY), T5, batch, prompt).kernels
    assert float(kernels["encoder_qkv_projection"].flops) == 12 * 2 * batch * prompt * 768 * 3 * 768
    assert float(kernels["encoder_up_projection"].flops) == 12 * 2 * batch * prompt * 768 * 3072
    pairs = batch * prompt * prompt * 12  # every token sees every other, in each of twelve heads
    assert float(kernels["encoder_attention"].flops) == pairs * (12 * 4 * 64 + 2)  # the first layer adds its biases
    assert float(kernels["cross_kv_projection"].flops) == 12 * 2 * batch * prompt * 768 * 2 * 768
    assert float(kernels["cross_query_projection"].flops) == 12 * 2 * batch * 768 * 768
    assert float(kernels["cross_attention"].flops) == 12 * 4 * batch * 12 * 64 * prompt
    assert float(kernels["qkv_projection"].flops) == 12 * 2 * batch * 768 * 3 * 768
    assert "encoder_kv_write" not in kernels


def test_t5_decode_reads_the_encoders_keys_and_makes_none() -> None:
    step = decode_once(deployment(ROOMY), T5, 512, 20, source=300)
    assert float(step.kernels["cross_attention"].flops) == 12 * 4 * 512 * 12 * 64 * 300
    assert "cross_kv_projection" not in step.kernels
    assert not any(name.startswith("encoder_") for name in step.kernels)
    assert float(step.memory.kv_cache) == 512 * 12 * 2 * 768 * 2 * (20 + 300)


def test_a_request_to_t5_has_a_short_context_and_a_long_source() -> None:
    cost = serving_cost(deployment(ROOMY), T5, as_float(8), as_float(300), as_float(50))
    assert int(cost.reason) == 0
    assert float(cost.memory.kv_cache) == 8 * 12 * 2 * 768 * 2 * (1 + 50 + 300)
    assert float(cost.decode.kernels["cross_attention"].flops) == 12 * 4 * 8 * 12 * 64 * 300
    bias = 2 * 8 * 12 * 26  # of the first layer
    assert float(cost.decode.kernels["attention"].flops) == 12 * 4 * 8 * 12 * 64 * 26 + bias
    alone = prefill_once(deployment(ROOMY), T5, 1, 300)
    assert float(cost.ttft) == pytest.approx(float(alone.time), rel=1e-13)


def test_whisper_reads_thirty_seconds_whatever_the_prompt() -> None:
    """1500 positions of width 1280 (arXiv:2212.04356, section 2.2), encoded once for each sequence."""
    kernels = prefill_once(deployment(ROOMY), WHISPER, 2, 4).kernels
    assert float(kernels["encoder_attention"].flops) == 32 * 4 * 2 * 20 * 64 * 1500 * 1500
    assert float(kernels["encoder_input_projection"].flops) == pytest.approx(2 * 2 * 1500 * 5409280, rel=1e-12)
    assert float(kernels["cross_attention"].flops) == 32 * 4 * 2 * 20 * 64 * 4 * 1500
    step = decode_once(deployment(ROOMY), WHISPER, 2, 100, source=1500)
    assert float(step.memory.kv_cache) == 2 * 32 * 2 * 1280 * 2 * (100 + 1500)
    cost = serving_cost(deployment(ROOMY), WHISPER, as_float(2), as_float(4), as_float(192))
    assert float(cost.memory.kv_cache) == 2 * 32 * 2 * 1280 * 2 * (4 + 192 + 1500)


def test_image_towers_are_idle_without_images_and_run_once_for_each() -> None:
    idle = prefill_once(deployment(ROOMY), LLAVA, 1, 2000)
    assert not any(name.startswith("encoder_") for name in idle.kernels)
    one, three = (prefill_once(deployment(ROOMY), LLAVA, 1, 2000, media=576 * images) for images in (1, 3))
    attention = 24 * 4 * 16 * 64 * 577 * 577
    assert float(one.kernels["encoder_attention"].flops) == attention
    assert float(three.kernels["encoder_attention"].flops) == 3 * attention
    assert float(one.kernels["qkv_projection"].flops) == float(idle.kernels["qkv_projection"].flops)
    assert float(idle.time) < float(one.time) < float(three.time)
    assert float(idle.memory.weights) == float(one.memory.weights)
    none = prefill_once(deployment(ROOMY), LLAVA, 1, 2000, media=0)
    assert float(none.time) == pytest.approx(float(idle.time), rel=1e-12)


def test_a_tower_of_any_size_works_on_four_positions_a_token() -> None:
    kernels = prefill_once(deployment(ROOMY), model("qwen2-vl-7b"), 1, 2000, media=1000).kernels
    assert float(kernels["encoder_attention"].flops) == 32 * 4 * 16 * 80 * 4000 * 4000
    assert float(kernels["encoder_projector"].flops) == pytest.approx(
        2 * 1000 * float(model("qwen2-vl-7b").towers[0].projector), rel=1e-12
    )


def test_cross_attention_to_images_costs_nothing_without_them() -> None:
    text, image = (prefill_once(deployment(ROOMY), MLLAMA, 1, 500, media=media) for media in (None, 6404))
    assert float(text.kernels["cross_attention"].time) == 0.0 < float(image.kernels["cross_attention"].time)
    assert float(text.memory.kv_cache) < float(image.memory.kv_cache)
    assert int(image.reason) == 0  # they are no part of the prompt


def test_a_prompt_holds_the_tokens_of_its_images() -> None:
    most, more = (prefill_once(deployment(ROOMY), LLAVA, 1, 576, media=media) for media in (576, 577))
    assert int(most.reason) == 0 and math.isfinite(float(most.time))
    assert int(more.reason) == Reason.PROMPT and math.isnan(float(more.time))
    numbers = (as_float(number) for number in (1, 576, 16, 577))
    served = serving_cost(deployment(ROOMY), LLAVA, *numbers)
    assert int(served.reason) == Reason.PROMPT and math.isnan(float(served.ttft))


@pytest.mark.parametrize("name", ["bert-base", "vit-large-16", "clip-vit-large-14", "modernbert-base"])
def test_a_model_of_encoders_has_a_prefill_and_no_decode(name: str) -> None:
    step = prefill_once(deployment(ROOMY), model(name), 4, 64)
    assert int(step.reason) == 0 and float(step.time) > 0.0
    assert all(kernel.startswith("encoder_") for kernel in step.kernels)
    assert float(step.memory.kv_cache) == 0.0
    assert float(step.memory.weights) == pytest.approx(2 * parameter_count(load_model(name)), rel=0.005)
    with pytest.raises(InputError, match="it generates no tokens, so it has no decode; ask for its prefill"):
        decode_once(deployment(ROOMY), model(name), 4, 64)


def test_bert_by_hand() -> None:
    """12 layers, 12 heads of 64, feed-forward 3072 (arXiv:1810.04805, section 3)."""
    kernels = prefill_once(deployment(ROOMY), model("bert-base"), 4, 100).kernels
    assert float(kernels["encoder_attention"].flops) == 12 * 4 * 4 * 12 * 64 * 100 * 100
    assert float(kernels["encoder_up_projection"].flops) == 12 * 2 * 400 * 768 * 3072
    two = prefill_once(deployment(ROOMY, tensor=2), model("bert-base"), 4, 100).kernels
    assert float(two["encoder_attention_all_reduce"].bytes_moved) == 12 * 400 * 768 * 2


def test_windows_of_an_image_tower_are_sequences_of_their_own() -> None:
    kernels = prefill_once(deployment(ROOMY), model("qwen2.5-vl-7b"), 1, 2000, media=1024).kernels
    whole, local = 4096 * 4096, 4096 * 64
    assert float(kernels["encoder_attention"].flops) == 4 * 16 * 80 * (4 * whole + 28 * local)
