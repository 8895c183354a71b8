"""Phi 1 to 4 and Phi-3.5-MoE."""

from __future__ import annotations

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    biased_attention,
    decoder,
    gated_mlp,
    grouped_attention,
    one_window,
    rotary_model,
    routed,
)
from jaxperf.models.config import Layer, Mlp, ModelConfig


def _phi(fields: Fields) -> ModelConfig:
    """Phi 1 to 2: both blocks read one LayerNorm; everything has a bias, the output head too."""
    norm = fields.flag("qk_layernorm", False)
    attention = grouped_attention(
        fields, multi_head=True, qkv_bias=True, output_bias=True, qk_norm=norm, qk_norm_bias=norm
    )
    block = Mlp(fields.count("intermediate_size"), gated=False, bias=True)
    layer = Layer(attention, block, norms=1, norm_bias=True, parallel=True)
    return decoder(fields, (layer,) * fields.layer_count(), head_bias=True)


def _phi3(fields: Fields) -> ModelConfig:
    return rotary_model(fields, grouped_attention(fields, multi_head=True), gated_mlp(fields), one_window(fields))


def _phimoe(fields: Fields) -> ModelConfig:
    attention = biased_attention(fields, multi_head=False)
    model = rotary_model(fields, attention, routed(fields, "intermediate_size"), one_window(fields), norm_bias=True)
    return decoder(fields, model.layers, head_bias=fields.flag("lm_head_bias", False))


def _phi4_multimodal(fields: Fields) -> ModelConfig:
    """Phi-4-multimodal (arXiv:2503.01743): Phi-4-mini, with towers and adapters for images and speech beside it."""
    model = _phi3(fields)
    fields.notes.append(
        "The towers for images and speech and their adapters (LoRA) are not described: prompts are text, and their "
        "weights are not counted."
    )
    return model


FAMILIES = {
    "PhiForCausalLM": _phi,
    "Phi3ForCausalLM": _phi3,
    "Phi4MMForCausalLM": _phi4_multimodal,
    "Phi4MultimodalForCausalLM": _phi4_multimodal,
    "PhimoeForCausalLM": _phimoe,
    "PhiMoEForCausalLM": _phimoe,
}

MODEL_TYPES = {
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "phi4mm": "Phi4MMForCausalLM",
    "phi4_multimodal": "Phi4MultimodalForCausalLM",
    "phimoe": "PhimoeForCausalLM",
}
