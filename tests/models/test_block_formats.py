"""Blocks that a quantized checkpoint leaves alone, and what that does to memory and traffic."""

from __future__ import annotations

import dataclasses

import pytest

from jaxperf.io.huggingface import load_model, read_config
from jaxperf.models.block_formats import PLAIN, own_formats
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.parameters import parameter_breakdown
from jaxperf.models.quantization import Quantization
from jaxperf.models.split_formats import split_blocks
from tests.devices import H100, deployment
from tests.models.shipped import decode_once

ROOMY = H100.replace(memory_capacity=4e13)
GPT_OSS = ("model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head")
KIMI_K2_THINKING = (
    "lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
)


def excluding(name: str, *modules: str) -> ModelConfig:
    scheme = Quantization("test", "int4", 4, excluded=modules)
    return dataclasses.replace(load_model(name), quantization=scheme)


@pytest.mark.parametrize(
    ("name", "modules", "index", "blocks"),
    [
        ("gpt-oss-20b", GPT_OSS, 3, ("mixer",)),
        ("kimi-k2", KIMI_K2_THINKING, 0, ("mixer", "ffn")),  # the first layer is dense
        ("kimi-k2", KIMI_K2_THINKING, 5, ("mixer", "shared")),
        ("deepseek-v3", (), 5, ()),
        ("deepseek-v3", ("lm_head",), 5, ()),
        ("llama-3.1-8b", ("model.layers.3.mlp",), 3, ("ffn",)),
        ("llama-3.1-8b", ("model.layers.3.mlp",), 30, ()),  # whole parts of a name only
        ("llama-3.1-8b", ("mlp.down_proj", "self_attn"), 0, ("mixer", "ffn")),
        ("llama-3.1-8b", ("self",), 0, ()),
        ("qwen3-next-80b-a3b", ("linear_attn",), 0, ("mixer",)),
        ("qwen3-next-80b-a3b", ("linear_attn",), 3, ()),  # every fourth layer is attention
        ("llama-4-maverick", ("language_model.model.layers.1.feed_forward.shared_expert.down_proj",), 1, ("shared",)),
        ("mixtral-8x7b", ("model.layers.3.block_sparse_moe.experts.0.w2",), 3, ("ffn",)),
        ("minimax-m2", ("re:.*block_sparse_moe.experts.*",), 3, ("ffn",)),
        ("kimi-linear-48b-a3b", ("block_sparse_moe.shared_experts.down_proj",), 3, ("shared",)),
        ("granite-4.0-h-small", ("re:.*shared_mlp.*",), 3, ("shared",)),
        ("granite-4.0-h-small", ("model.layers.3.block_sparse_moe.output_linear",), 3, ("ffn",)),
        ("granite-4.0-h-micro", ("re:.*shared_mlp.*",), 3, ("ffn",)),
        ("hunyuan-a13b", ("mlp.shared_mlp.down_proj",), 3, ("shared",)),
        ("jamba-v0.1", ("model.layers.1.feed_forward.experts.0.down_proj",), 1, ("ffn",)),
        ("lfm2-8b-a1b", ("model.layers.0.conv.out_proj",), 0, ("mixer",)),
        ("lfm2-8b-a1b", ("model.layers.2.self_attn.out_proj",), 2, ("mixer",)),
        ("lfm2-8b-a1b", ("model.layers.2.feed_forward.experts.0.w2",), 2, ("ffn",)),
        ("phi-2", ("model.layers.0.self_attn.dense", "model.layers.0.mlp.fc2"), 0, ("mixer", "ffn")),
        (
            "falcon-40b",
            ("transformer.h.0.self_attention.dense", "transformer.h.0.mlp.dense_4h_to_h"),
            0,
            ("mixer", "ffn"),
        ),
        ("opt-13b", ("model.decoder.layers.0.self_attn.out_proj", "model.decoder.layers.0.fc2"), 0, ("mixer", "ffn")),
        (
            "pythia-12b",
            ("gpt_neox.layers.0.attention.dense", "gpt_neox.layers.0.mlp.dense_4h_to_h"),
            0,
            ("mixer", "ffn"),
        ),
        ("internlm2-20b", ("model.layers.0.attention.wo", "model.layers.0.feed_forward.w2"), 0, ("mixer", "ffn")),
        ("falcon-h1-7b", ("re:.*mamba.*",), 3, ("beside",)),
        ("falcon-h1-7b", ("model.layers.3.self_attn",), 3, ("mixer",)),
        ("arctic-480b", ("model.layers.0.residual_mlp.w2",), 1, ()),
        ("arctic-480b", ("model.layers.1.residual_mlp.w2",), 1, ("shared",)),
    ],
)
def test_which_blocks_of_which_layers(name: str, modules: tuple[str, ...], index: int, blocks: tuple[str, ...]) -> None:
    own = own_formats(excluding(name, *modules), index)
    assert tuple(block for block, stored in own if stored == PLAIN) == blocks


def test_excluded_blocks_are_stored_and_read_unquantized() -> None:
    config = excluding("gpt-oss-20b", *GPT_OSS)
    kept, all_small = transformer(config), transformer(excluding("gpt-oss-20b"))
    at = deployment(ROOMY, weights="int4")
    found, plain = decode_once(at, kept, 8, 1000), decode_once(at, all_small, 8, 1000)
    attention = 24 * 2880 * 64 * 2 * (64 + 8)
    assert attention < parameter_breakdown(config)["attention"] < 1.01 * attention  # biases and sinks
    saved = 2.0 - 0.515625
    assert float(found.memory.weights - plain.memory.weights) == pytest.approx(attention * saved, rel=1e-9)
    assert float(found.bytes_moved - plain.bytes_moved) == pytest.approx(attention * saved, rel=1e-6)
    assert float(found.kernels["expert_up_projection"].time) == float(plain.kernels["expert_up_projection"].time)


def test_a_shared_expert_may_stay_unquantized_alone() -> None:
    config = excluding("kimi-k2", "re:.*shared_experts.*")
    at = deployment(ROOMY, weights="int4")
    found, plain = (decode_once(at, transformer(each), 8, 1000) for each in (config, excluding("kimi-k2")))
    elements = 60 * 3 * 7168 * 2048
    assert float(found.memory.weights - plain.memory.weights) == pytest.approx(elements * (2.0 - 0.515625), rel=1e-9)
    assert float(found.kernels["shared_up_projection"].bytes_moved) > 3 * float(
        plain.kernels["shared_up_projection"].bytes_moved
    )


def test_layers_that_are_excluded_differ_from_those_that_are_not() -> None:
    groups = transformer(excluding("llama-3.1-8b", "model.layers.0", "model.layers.31")).groups
    assert [(float(group.repeats), group.own) for group in groups] == [
        (2.0, (("mixer", PLAIN), ("ffn", PLAIN))),
        (30.0, ()),
    ]


@pytest.mark.parametrize(
    ("name", "modules", "split"),
    [
        ("llama-3.1-8b", ("model.layers.3.mlp.down_proj", "lm_head"), {"ffn": 1}),
        ("llama-3.1-8b", ("re:.*down_proj",), {"ffn": 32}),
        ("llama-3.1-8b", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), {"mixer": 32}),
        ("deepseek-v3", ("self_attn.q_a_proj", "self_attn.kv_b_proj"), {"mixer": 61}),  # as of its NVFP4-v2 by NVIDIA
        ("mixtral-8x7b", ("block_sparse_moe.experts.0.w2", "gate"), {"ffn": 32}),
        ("llama-3.1-8b", tuple(f"self_attn.{name}_proj" for name in "qkvo"), {}),
        ("llama-3.1-8b", ("mlp", "lm_head", "model.layers.99.mlp.down_proj"), {}),
        ("gpt-oss-20b", GPT_OSS, {}),
        ("kimi-k2", KIMI_K2_THINKING, {}),
    ],
)
def test_blocks_of_several_formats_are_told(name: str, modules: tuple[str, ...], split: dict[str, int]) -> None:
    assert split_blocks(excluding(name, *modules)) == split


def test_a_block_of_several_formats_is_an_assumption() -> None:
    fp8 = {"quant_method": "fp8", "ignored_layers": ["lm_head", "model.layers.3.mlp.down_proj"]}
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4}
    llama |= {"num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256, "quantization_config": fp8}
    said = "quantization_config lists some products of a block alone (feed-forward of 1 layers); each block was read"
    assert any(each.startswith(said) for each in read_config(llama).assumptions)
