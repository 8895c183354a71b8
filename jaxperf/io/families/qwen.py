"""Qwen 1 to 3, Qwen3-Next and 3.5, dense and with experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    Windows,
    biased_attention,
    decoder,
    every,
    full_heads,
    gated_mlp,
    grouped_attention,
    indices,
    layer_kinds,
    rotary_model,
    routed,
    sparse_where,
    stack,
)
from jaxperf.io.families.experts import predicted_layers
from jaxperf.models.config import FeedForward, GatedDelta, Mlp, ModelConfig, Moe


def _late_windows(fields: Fields) -> Windows:
    """With `use_sliding_window`, the layers from `max_window_layers` on are windowed."""
    count = fields.layer_count()
    if not fields.flag("use_sliding_window", False) or fields.find("layer_types") is not None:
        return (None,) * count
    window, first = fields.count("sliding_window"), fields.count("max_window_layers", smallest=0)
    return tuple(window if index >= first else None for index in range(count))


def sparse_steps(fields: Fields, moe: Moe) -> tuple[FeedForward, ...]:
    """Every `decoder_sparse_step`-th layer has experts, except `mlp_only_layers`, which like the rest are dense."""
    step = fields.optional_count("decoder_sparse_step") or 1
    dense_only = indices(fields, "mlp_only_layers")
    sparse = [index not in dense_only and (index + 1) % step == 0 for index in range(fields.layer_count())]
    return sparse_where(fields, moe, sparse)


def _qwen1(fields: Fields) -> ModelConfig:
    """`intermediate_size` counts the two inputs of the gate together; only queries, keys and values have biases."""
    width = fields.count("intermediate_size")
    if width % 2:
        raise InputError(f"intermediate_size is {width}; {fields.architecture} splits it in two, so it must be even.")
    return rotary_model(fields, full_heads(fields, qkv_bias=True), Mlp(width >> 1))


def _qwen2(fields: Fields) -> ModelConfig:
    attention = grouped_attention(fields, qkv_bias=True)
    return rotary_model(fields, attention, gated_mlp(fields), _late_windows(fields))


def _qwen2_moe(fields: Fields) -> ModelConfig:
    shared = fields.count("shared_expert_intermediate_size", smallest=0)
    moe = routed(fields, shared_intermediate=shared, shared_gate=shared > 0)
    widths = _late_windows(fields)
    if any(widths):
        fields.notes.append(
            "use_sliding_window is true without layer_types; the layers from max_window_layers on are windowed, "
            "which is one of two readings in Hugging Face releases of this family."
        )
    attention = grouped_attention(fields, qkv_bias=fields.flag("qkv_bias", True))
    return rotary_model(fields, attention, sparse_steps(fields, moe), widths)


def _qwen3(fields: Fields) -> ModelConfig:
    attention = biased_attention(fields, multi_head=False, head_dim=128, qk_norm=True)
    return rotary_model(fields, attention, gated_mlp(fields), _late_windows(fields))


def _qwen3_moe(fields: Fields) -> ModelConfig:
    window = fields.count("sliding_window") if fields.flag("use_sliding_window", False) else None
    attention = biased_attention(fields, multi_head=False, qk_norm=True)
    return rotary_model(fields, attention, sparse_steps(fields, routed(fields)), (window,) * fields.layer_count())


def _delta_hybrid(fields: Fields, blocks: Sequence[FeedForward]) -> ModelConfig:
    """Three layers of the gated delta rule, then one of gated attention, as those that predict further tokens are."""
    attention = biased_attention(fields, multi_head=False, head_dim=256, qk_norm=True, output_gate=True)
    attention = dataclasses.replace(attention, gate_bias=attention.qkv_bias)
    delta = gated_delta(fields)
    full = full_layers(fields, fields.optional_count("full_attention_interval") or 4)
    layers = stack([attention if one else delta for one in full], blocks)
    further = predicted_layers(fields, stack([attention], blocks[-1:]))
    return decoder(fields, layers, mtp_layers=further)


def full_layers(fields: Fields, step: int) -> list[bool]:
    """The layers of full attention among linear ones: by `layer_types`, else the last of each `step`."""
    kinds = layer_kinds(fields, ("full_attention", "linear_attention"))
    return every(step, fields.layer_count()) if kinds is None else [kind == "full_attention" for kind in kinds]


def shared_moe(fields: Fields) -> Moe:
    """Experts beside a shared one with a gate, of 512 units where nothing is said."""
    shared = fields.count_or("shared_expert_intermediate_size", 512, smallest=0)
    return routed(fields, shared_intermediate=shared, shared_gate=shared > 0)


def _qwen3_next(fields: Fields) -> ModelConfig:
    return _delta_hybrid(fields, sparse_steps(fields, shared_moe(fields)))


def _qwen3_5(fields: Fields) -> ModelConfig:
    return _delta_hybrid(fields, (gated_mlp(fields),) * fields.layer_count())


def _qwen3_5_moe(fields: Fields) -> ModelConfig:
    return _delta_hybrid(fields, (shared_moe(fields),) * fields.layer_count())


def gated_delta(fields: Fields) -> GatedDelta:
    """Sizes of the delta rule, the defaults being those of Qwen3-Next."""
    return GatedDelta(
        key_heads=fields.count_or("linear_num_key_heads", 16),
        value_heads=fields.count_or("linear_num_value_heads", 32),
        key_dim=fields.count_or("linear_key_head_dim", 128),
        value_dim=fields.count_or("linear_value_head_dim", 128),
        conv=fields.count_or("conv_kernel", 4),
    )


FAMILIES = {
    "QWenLMHeadModel": _qwen1,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen2MoeForCausalLM": _qwen2_moe,
    "Qwen3ForCausalLM": _qwen3,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "Qwen3NextForCausalLM": _qwen3_next,
    "Qwen3_5ForCausalLM": _qwen3_5,
    "Qwen3_5MoeForCausalLM": _qwen3_5_moe,
}

MODEL_TYPES = {
    "qwen": "QWenLMHeadModel",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen2_5_omni_text": "Qwen2ForCausalLM",
    "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}
