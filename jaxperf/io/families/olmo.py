"""OLMo 1 to 3, OLMoE and EXAONE 4: norms without weights, or after the blocks, and norms of queries and keys."""

from __future__ import annotations

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    Windows,
    biased_attention,
    decoder,
    full_every,
    gated_mlp,
    grouped_attention,
    rotary_model,
    routed,
    stack,
    varied,
)
from jaxperf.io.families.experts import first_dense, predicted_layers, with_shared_experts
from jaxperf.io.families.qwen import full_layers, gated_delta
from jaxperf.models.config import Mixer, ModelConfig


def _olmo(fields: Fields) -> ModelConfig:
    """LayerNorm without weights or biases (arXiv:2402.00838)."""
    return rotary_model(fields, biased_attention(fields), gated_mlp(fields), norm_weight=False)


def _olmo2(fields: Fields) -> ModelConfig:
    """RMSNorm after the blocks, and over all queries and all keys (arXiv:2501.00656)."""
    return rotary_model(fields, biased_attention(fields, qk_norm_wide=True), gated_mlp(fields))


def _olmo3(fields: Fields) -> ModelConfig:
    widths = full_every(fields, 4, fields.count_or("sliding_window", 4096))
    return rotary_model(fields, biased_attention(fields, qk_norm_wide=True), gated_mlp(fields), widths)


def _olmoe(fields: Fields) -> ModelConfig:
    return rotary_model(fields, biased_attention(fields, qk_norm_wide=True), routed(fields, "intermediate_size"))


def _exaone_windows(fields: Fields) -> Windows:
    """`sliding_window_pattern` is a period or a text such as "LLLG"; without a window every layer sees everything."""
    pattern = fields.data.get("sliding_window_pattern")
    step = len(pattern) if isinstance(pattern, str) and pattern else fields.optional_count("sliding_window_pattern")
    return full_every(fields, step or 4, fields.optional_count("sliding_window"))


def _exaone4(fields: Fields) -> ModelConfig:
    """Windowed layers have rotary positions; the full ones between them have none (arXiv:2507.11407)."""
    widths = _exaone_windows(fields)
    rotary = [width is not None or not any(widths) for width in widths]
    mixers = varied(grouped_attention(fields, multi_head=True, qk_norm=True), window=widths, rotary=rotary)
    return decoder(fields, stack(mixers, (gated_mlp(fields),) * len(mixers)))


def _exaone_moe(fields: Fields) -> ModelConfig:
    """As EXAONE 4, with norms before the blocks, first dense layers and experts."""
    widths = _exaone_windows(fields)
    rotary = [width is not None or not any(widths) for width in widths]
    mixers = varied(grouped_attention(fields, multi_head=True, qk_norm=True), window=widths, rotary=rotary)
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True), 1)
    further = predicted_layers(fields, stack([_further_mixer(fields, mixers)], [gated_mlp(fields)]))
    return decoder(fields, stack(mixers, blocks), mtp_layers=further)


def _further_mixer(fields: Fields, mixers: list[Mixer]) -> Mixer:
    """The attention of layers that predict further tokens, which are dense: `mtp_layer_types`, else as in the first."""
    kinds = fields.listing("mtp_layer_types", str) or []
    if not kinds:
        return mixers[0]
    windowed = kinds[0] == "sliding_attention"
    return next((each for each in mixers if (each.window is not None) == windowed), mixers[0])  # type: ignore[union-attr]


def _olmo_hybrid(fields: Fields) -> ModelConfig:
    """Three layers of the gated delta rule, then one of attention; no rotary positions without `rope_theta`."""
    rope = fields.nested("rope_parameters")
    rotary = rope.data.get("rope_theta") is not None or fields.data.get("rope_theta") is not None
    attention, delta = biased_attention(fields, qk_norm_wide=True, rotary=rotary), gated_delta(fields)
    full = full_layers(fields, 4)
    return decoder(fields, stack([attention if one else delta for one in full], (gated_mlp(fields),) * len(full)))


FAMILIES = {
    "OlmoForCausalLM": _olmo,
    "Olmo2ForCausalLM": _olmo2,
    "Olmo3ForCausalLM": _olmo3,
    "OlmoeForCausalLM": _olmoe,
    "FlexOlmoForCausalLM": _olmoe,
    "Exaone4ForCausalLM": _exaone4,
    "ExaoneMoeForCausalLM": _exaone_moe,
    "ExaoneMoEForCausalLM": _exaone_moe,
    "OlmoHybridForCausalLM": _olmo_hybrid,
}

MODEL_TYPES = {
    "olmo": "OlmoForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "flex_olmo": "FlexOlmoForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "exaone_moe": "ExaoneMoeForCausalLM",
    "olmo_hybrid": "OlmoHybridForCausalLM",
}
