"""Blocks that a quantized checkpoint leaves alone, and what that does to memory and traffic."""

from __future__ import annotations

import dataclasses

import pytest

from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.excluded import unquantized_blocks
from jaxperf.models.layers import transformer
from jaxperf.models.parameters import parameter_breakdown
from jaxperf.models.quantization import Quantization
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
    ],
)
def test_which_blocks_of_which_layers(name: str, modules: tuple[str, ...], index: int, blocks: tuple[str, ...]) -> None:
    assert unquantized_blocks(excluding(name, *modules), index) == blocks


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
    assert [(float(group.repeats), group.unquantized) for group in groups] == [(2.0, ("mixer", "ffn")), (30.0, ())]
