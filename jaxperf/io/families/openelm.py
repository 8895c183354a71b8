"""OpenELM (arXiv:2404.14619): Llama layers that grow towards the last, each with heads and widths of its own."""

from __future__ import annotations

import dataclasses

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, stack
from jaxperf.models.checks import LARGEST_COUNT, show
from jaxperf.models.config import Attention, Mlp, ModelConfig

NAMES = {
    "hidden_size": "model_dim",
    "num_hidden_layers": "num_transformer_layers",
    "max_position_embeddings": "max_context_length",
    "tie_word_embeddings": "share_input_output_layers",
}


def _openelm(fields: Fields) -> ModelConfig:
    """`num_query_heads`, `num_kv_heads` and `ffn_multipliers` have an item for each layer."""
    own = {name: fields.data[theirs] for name, theirs in NAMES.items() if theirs in fields.data}
    fields = dataclasses.replace(fields, data={**fields.data, **own})
    count, width = fields.layer_count(), fields.count("head_dim")
    heads, kv_heads = (fields.listing(name, int, count) for name in ("num_query_heads", "num_kv_heads"))
    if heads is None or kv_heads is None:
        raise InputError("num_query_heads and num_kv_heads must list the heads of each layer.")
    norm, gated = fields.flag("normalize_qk_projections", True), fields.flag("ffn_with_glu", True)
    mixers = [Attention(own, shared, width, qk_norm=norm) for own, shared in zip(heads, kv_heads, strict=True)]
    return decoder(fields, stack(mixers, [Mlp(units, gated=gated) for units in _units(fields)]), tied=True)


def _units(fields: Fields) -> list[int]:
    """The multipliers times the width, rounded to the nearest multiple of `ffn_dim_divisor` unless that takes a tenth
    away."""
    count, hidden, step = fields.layer_count(), fields.count("hidden_size"), fields.count_or("ffn_dim_divisor", 256)
    listed = fields.data.get("ffn_multipliers")
    if not isinstance(listed, list) or len(listed) != count:
        raise InputError(f"ffn_multipliers must list {count} numbers, one for each layer.")
    for factor in listed:
        if type(factor) not in (int, float) or not 0.0 < factor * hidden <= LARGEST_COUNT:
            raise InputError(f"ffn_multipliers contains {show(factor)}; a multiplier must be a number above 0.")
    units = []
    for wide in (factor * hidden for factor in listed):
        nearest = max(step, int(wide + step / 2) // step * step)
        units.append(nearest + step if nearest < 0.9 * wide else nearest)
    return units


FAMILIES = {"OpenELMForCausalLM": _openelm}

MODEL_TYPES = {"openelm": "OpenELMForCausalLM"}
