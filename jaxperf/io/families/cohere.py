"""Command R, R+ and R7B: both blocks read one LayerNorm without bias; tied tables."""

from __future__ import annotations

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    biased_attention,
    decoder,
    full_every,
    gated_mlp,
    grouped_attention,
    rotary_model,
    stack,
    varied,
)
from jaxperf.models.config import ModelConfig


def _cohere(fields: Fields) -> ModelConfig:
    """R+ has a norm for each head of the queries and keys."""
    bias, norm = fields.flag("attention_bias", False), fields.flag("use_qk_norm", False)
    attention = grouped_attention(fields, multi_head=True, qkv_bias=bias, output_bias=bias, qk_norm_wide=norm)
    return rotary_model(fields, attention, gated_mlp(fields), tied=True, norms=1, parallel=True)


def _cohere2(fields: Fields) -> ModelConfig:
    """Windowed layers have rotary positions; the full ones between them have none."""
    attention = biased_attention(fields)
    step = fields.optional_count("sliding_window_pattern") or fields.optional_count("_sliding_window_pattern") or 4
    widths = full_every(fields, step, fields.count_or("sliding_window", 4096))
    mixers = varied(attention, window=widths, rotary=[width is not None for width in widths])
    return decoder(fields, stack(mixers, (gated_mlp(fields),) * len(mixers), norms=1, parallel=True), tied=True)


FAMILIES = {"CohereForCausalLM": _cohere, "Cohere2ForCausalLM": _cohere2}

MODEL_TYPES = {"cohere": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM"}
