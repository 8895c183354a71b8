"""Gemma 4: wider heads in the full layers, and by size per-layer inputs, reused keys and values, or experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, decoder, every, layer_kinds, top_k
from jaxperf.models.checks import check_count
from jaxperf.models.config import Attention, FeedForward, Layer, Mlp, ModelConfig, Moe, Table


def _mixers(fields: Fields, reused: list[bool]) -> list[Attention]:
    """The windowed and the full layers, which have heads and key and value heads of their own."""
    attention = biased_attention(fields, multi_head=False, head_dim=256, qk_norm=True)
    windowed = dataclasses.replace(attention, window=fields.count_or("sliding_window", 512))
    same = fields.flag("attention_k_eq_v", False)
    head_dim, kv_heads = _full_sizes(fields, same)
    full = dataclasses.replace(
        attention, head_dim=head_dim, kv_heads=kv_heads or attention.kv_heads, keys_as_values=same
    )
    kinds = layer_kinds(fields, ("full_attention", "sliding_attention"))
    sees_all = [kind == "full_attention" for kind in kinds] if kinds else every(6, len(reused))
    sees_all[-1] = True  # the class makes the last layer full whatever the config says
    return [
        dataclasses.replace(full if one else windowed, shared_kv=shared)
        for one, shared in zip(sees_all, reused, strict=True)
    ]


def _full_sizes(fields: Fields, same: bool) -> tuple[int, int | None]:
    """Width and, where the full layers have their own, number of their key and value heads.

    Published configs have `global_head_dim` and `num_global_key_value_heads`; saved again, they have
    `per_layer_config` with the sizes of each full layer, which must be the same.
    """
    listed = fields.nested("per_layer_config").data
    if not listed:
        kv_heads = fields.optional_count("num_global_key_value_heads") if same else None
        return fields.count_or("global_head_dim", 512), kv_heads
    sizes = list(listed.values())
    if not isinstance(sizes[0], Mapping) or any(size != sizes[0] for size in sizes):
        raise InputError("per_layer_config has layers that differ; only one size of full layer is supported.")
    one = dataclasses.replace(fields, data=sizes[0])
    return one.count("head_dim"), one.optional_count("num_key_value_heads")


def _block(fields: Fields, reused: bool) -> FeedForward:
    """A dense block, twice as wide where keys and values are reused and the config asks for it; experts beside it."""
    width = fields.count("intermediate_size") * (2 if reused and fields.flag("use_double_wide_mlp", False) else 1)
    if not fields.flag("enable_moe_block", False):
        return Mlp(width)
    experts = fields.count("num_experts")
    chosen = {**fields.data, "num_experts_per_tok": fields.data.get("top_k_experts")}
    picked = top_k(dataclasses.replace(fields, data=chosen), experts)
    return Moe(experts, picked, fields.count("moe_intermediate_size"), shared_intermediate=width)


def _gemma4(fields: Fields) -> ModelConfig:
    count, hidden = fields.layer_count(), fields.count("hidden_size")
    shared = fields.count_or("num_kv_shared_layers", 0, smallest=0)
    check_count("num_kv_shared_layers", shared, 0, count - 1)
    reused = [index >= count - shared for index in range(count)]
    width = fields.count_or("hidden_size_per_layer_input", 256, smallest=0)
    inputs = ((hidden, width), (width, hidden)) if width else ()  # gate and projection of the per-layer input
    norm = hidden if width else 0  # of what they make
    layers = []
    for mixer, again in zip(_mixers(fields, reused), reused, strict=True):
        block = _block(fields, again)
        # the router scales its input and its experts, and the experts have three norms of their own
        scales, norms = (hidden + block.experts, 7) if isinstance(block, Moe) else (0, 4)
        layers.append(Layer(mixer, block, norms=norms, other_parameters=norm + scales, projections=inputs))
    parts: dict[str, Any] = {}
    if width:
        rows = fields.count_or("vocab_size_per_layer_input", 262144)
        parts["tables"] = (Table("per-layer inputs", rows, count * width),)
        parts["other_parameters"] = hidden * count * width + width
        fields.notes.append("Of the per-layer inputs only the projections in the layers are timed.")
    return decoder(fields, tuple(layers), tied=True, **parts)


def _gemma4_unified(fields: Fields) -> ModelConfig:
    """Gemma 4 12B, which reads images and sound as they are: no per-layer inputs, windows of 1024."""
    usual = {"hidden_size_per_layer_input": 0, "sliding_window": fields.count_or("sliding_window", 1024)}
    return _gemma4(dataclasses.replace(fields, data={**fields.data, **usual}))


FAMILIES = {"Gemma4ForCausalLM": _gemma4, "Gemma4UnifiedForCausalLM": _gemma4_unified}

MODEL_TYPES = {"gemma4_text": "Gemma4ForCausalLM", "gemma4_unified_text": "Gemma4UnifiedForCausalLM"}
