"""MiMo (arXiv:2505.07608), a Qwen 2 that predicts further tokens, and MiMo-V2-Flash with windows and experts."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, gated_mlp, grouped_attention, layer_kinds, sparse_where, stack
from jaxperf.io.families.experts import predicted_layers, with_shared_experts
from jaxperf.models.checks import check_count
from jaxperf.models.config import Attention, ModelConfig


def _mimo(fields: Fields) -> ModelConfig:
    attention = grouped_attention(fields, qkv_bias=fields.flag("attention_bias", True))
    layers = stack((attention,) * fields.layer_count(), (gated_mlp(fields),) * fields.layer_count())
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _mimo_v2(fields: Fields) -> ModelConfig:
    """Windowed layers have key and value heads of their own number and sinks; values are narrower than keys."""
    full, windowed = _attention(fields, ""), _attention(fields, "swa_")
    mixers = [windowed if one else full for one in _windowed(fields)]
    moe = with_shared_experts(fields, correction_bias=True)
    return decoder(fields, stack(mixers, sparse_where(fields, moe, _sparse(fields))))


def _attention(fields: Fields, prefix: str) -> Attention:
    """The attention of the full layers, or of the windowed ones (`prefix` "swa_"), which say where they differ; those
    have twice the key and value heads where nothing is said (Hugging Face transformers)."""

    def size(name: str, otherwise: int = 1) -> int:
        return (fields.optional_count(prefix + name) if prefix else None) or otherwise * fields.count(name)

    heads, kv_heads = size("num_attention_heads"), size("num_key_value_heads", 2 if prefix else 1)
    window = fields.count_or("sliding_window", 128) if prefix else None
    sinks = fields.flag(f"add_{prefix or 'full_'}attention_sink_bias", bool(prefix))
    bias = fields.flag("attention_bias", False)
    wide, narrow = size("head_dim"), size("v_head_dim")
    return Attention(heads, kv_heads, wide, window=window, qkv_bias=bias, value_dim=narrow, sinks=sinks)


def _windowed(fields: Fields) -> list[bool]:
    """By `hybrid_layer_pattern` (1 is windowed) or `layer_types`; else all but the first and each sixth."""
    count = fields.layer_count()
    pattern = fields.listing("hybrid_layer_pattern", int, count)
    if pattern is not None:
        return [check_count("An item of hybrid_layer_pattern", each, 0, 1) == 1 for each in pattern]
    kinds = layer_kinds(fields, ("full_attention", "sliding_attention"))
    if kinds is not None:
        return [kind == "sliding_attention" for kind in kinds]
    fields.notes.append("hybrid_layer_pattern is absent; the first and each sixth layer attend to everything.")
    return [index > 0 and (index + 1) % 6 > 0 for index in range(count)]


def _sparse(fields: Fields) -> list[bool]:
    """By `moe_layer_freq` (1 has experts) or `mlp_layer_types`; else all but the first layer."""
    count = fields.layer_count()
    listed = fields.listing("moe_layer_freq", int, count)
    if listed is not None:
        return [check_count("An item of moe_layer_freq", each, 0, 1) == 1 for each in listed]
    kinds = fields.listing("mlp_layer_types", str, count)
    if kinds is None:
        fields.notes.append("moe_layer_freq is absent; all layers but the first have experts.")
        return [index > 0 for index in range(count)]
    if set(kinds) - {"dense", "sparse"}:
        raise InputError("mlp_layer_types has an item that is neither dense nor sparse; give one of them.")
    return [kind == "sparse" for kind in kinds]


FAMILIES = {
    "MiMoForCausalLM": _mimo,
    "MiMoV2FlashForCausalLM": _mimo_v2,
}

MODEL_TYPES = {"mimo": "MiMoForCausalLM", "mimo_v2_flash": "MiMoV2FlashForCausalLM"}
