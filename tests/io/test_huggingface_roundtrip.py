"""Random valid models survive being written as a config.json and read back, under any accepted field names."""

from __future__ import annotations

import json
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.config_fields import SYNONYMS, WEIGHT_FORMATS
from jaxperf.io.families import FAMILIES
from jaxperf.io.huggingface import model_names, read_config
from jaxperf.models.config import Attention, Layer, Mlp, ModelConfig, Moe, layer_groups
from jaxperf.models.flops import flops_per_token
from jaxperf.models.parameters import (
    active_parameter_count,
    kv_bytes_per_token,
    parameter_breakdown,
    parameter_count,
    state_bytes,
)

SIZE = st.integers(1, 2**20)
COUNT = st.integers(1, 64)


@st.composite
def qwen_moe_models(draw: st.DrawFn) -> ModelConfig:
    """Qwen2-MoE can express the most: windows and experts layer by layer, biases, a shared expert."""
    kv_heads, group, head_dim = draw(COUNT), draw(COUNT), draw(SIZE)
    experts, shared = draw(st.integers(1, 512)), draw(st.integers(0, 2**20))
    moe = Moe(experts, draw(st.integers(1, experts)), draw(SIZE), True, shared, shared > 0)
    dense = Mlp(draw(SIZE))
    bias, window = draw(st.booleans()), draw(SIZE)
    shapes = draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=24))
    layers = tuple(
        Layer(
            Attention(kv_heads * group, kv_heads, head_dim, window if windowed else None, qkv_bias=bias),
            moe if sparse else dense,
        )
        for windowed, sparse in shapes
    )
    hidden = draw(SIZE)
    return ModelConfig(
        name=draw(st.sampled_from(["a", "model-1"])),
        architecture="Qwen2MoeForCausalLM",
        hidden=hidden,
        vocabulary=draw(SIZE),
        layers=layers,
        tied_embeddings=draw(st.booleans()),
        positions=0,
        embedding_width=hidden,
        final_norm=True,
        norm_bias=False,
        max_context=draw(SIZE),  # none is an assumption of what is read
        weight_format=draw(st.sampled_from(["bf16", "fp16", "fp32"])),
    )


def as_fields(config: ModelConfig) -> dict[str, Any]:
    """The config.json of a model from `qwen_moe_models`, under the preferred names."""
    first = config.layers[0].mixer
    dense = [index for index, layer in enumerate(config.layers) if isinstance(layer.ffn, Mlp)]
    fields: dict[str, Any] = {
        "hidden_size": config.hidden,
        "vocab_size": config.vocabulary,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": first.heads,
        "num_key_value_heads": first.kv_heads,
        "head_dim": first.head_dim,
        "qkv_bias": first.qkv_bias,
        "layer_types": ["sliding_attention" if layer.mixer.window else "full_attention" for layer in config.layers],
        "mlp_only_layers": dense,
        "tie_word_embeddings": config.tied_embeddings,
        "max_position_embeddings": config.max_context,
        "torch_dtype": next(key for key, value in WEIGHT_FORMATS.items() if value == config.weight_format),
        # values for what a model without sparse, dense or windowed layers does not show
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 0,
        "intermediate_size": 8,
        "sliding_window": 8,
    }
    for layer in config.layers:
        if layer.mixer.window:
            fields["sliding_window"] = layer.mixer.window
        if isinstance(layer.ffn, Mlp):
            fields["intermediate_size"] = layer.ffn.intermediate
        else:
            fields["num_experts"] = layer.ffn.experts
            fields["num_experts_per_tok"] = layer.ffn.experts_per_token
            fields["moe_intermediate_size"] = layer.ffn.intermediate
            fields["shared_expert_intermediate_size"] = layer.ffn.shared_intermediate
    return {"architectures": [config.architecture], **fields}


@given(config=qwen_moe_models(), data=st.data())
def test_write_and_read_gives_the_same_model(config: ModelConfig, data: st.DataObject) -> None:
    names = {field: data.draw(st.sampled_from(keys), label=field) for field, keys in SYNONYMS.items()}
    fields = {names.get(key, key): value for key, value in as_fields(config).items()}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        read = read_config(path, name=config.name)
    assert read == config == read_config(fields, name=config.name)
    assert [layer.mixer.window for layer in read.layers] == [layer.mixer.window for layer in config.layers]
    assert sum(count for _, count in layer_groups(read)) == fields[names["num_hidden_layers"]]


@given(qwen_moe_models())
def test_counting_identities(config: ModelConfig) -> None:
    total, active = parameter_count(config), active_parameter_count(config)
    parts = parameter_breakdown(config)
    assert total == sum(parts.values()) >= active > 0
    idle = sum(
        parts_of_layer.experts - parts_of_layer.experts_per_token
        for parts_of_layer in (layer.ffn for layer in config.layers)
        if isinstance(parts_of_layer, Moe)
    )
    assert (total == active) == (idle == 0)


GARBAGE = [None, True, -1, 0, 2**41, 1.5, float("nan"), "", "32", "bfloat16", [], [1], ["full_attention"] * 2, {"a": 1}]
FIELDS = sorted(
    {key for keys in SYNONYMS.values() for key in keys}
    | {"layer_types", "head_dim", "architectures", "model_type", "text_config", "mlp_only_layers", "sliding_window"}
    | {"use_sliding_window", "max_window_layers", "quantization_config", "tie_word_embeddings", "_jaxperf"}
)


def described_or_refused(fields: dict[str, Any]) -> None:
    try:
        config = read_config(fields)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert parameter_count(config) > 0 and flops_per_token(config, 4096) >= 0
        assert kv_bytes_per_token(config, 2) >= 0 and state_bytes(config, 2) >= 0


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(GARBAGE) | COUNT, max_size=8),
)
def test_garbage_is_described_or_refused_but_never_crashes(architecture: str, fields: dict[str, Any]) -> None:
    usual = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    described_or_refused({"architectures": [architecture], **usual, "vocab_size": 10, **fields})


def shipped_fields() -> dict[str, dict[str, Any]]:
    """One shipped config for each architecture."""
    folder = resources.files("jaxperf.models") / "configs"
    texts = [(folder / f"{name}.json").read_text(encoding="utf-8") for name in model_names()]
    return {fields["architectures"][0]: fields for fields in map(json.loads, texts)}


SHIPPED = shipped_fields()


@pytest.mark.parametrize("architecture", SHIPPED)
@settings(max_examples=20)
@given(data=st.data())
def test_a_damaged_config_is_described_or_refused_but_never_crashes(architecture: str, data: st.DataObject) -> None:
    fields = dict(SHIPPED[architecture])
    for key in data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=3), label="fields"):
        fields[key] = data.draw(st.sampled_from(GARBAGE) | COUNT, label=key)
    for key in data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=2), label="removed"):
        fields.pop(key, None)
    described_or_refused(fields)
