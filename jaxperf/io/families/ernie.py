"""ERNIE 4.5 with experts, for text alone and with images, whose tokens have experts of their own."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import grouped_attention, rotary_model, sparse_where
from jaxperf.io.families.encoder_parts import dense, renamed, two_way_attention
from jaxperf.io.families.experts import with_shared_experts
from jaxperf.io.families.multimodal import joined, language
from jaxperf.io.families.towers import patch_embedding, section
from jaxperf.models.config import Encoder, Layer, Mlp, ModelConfig

VISION = {"depth": 32, "hidden_size": 1280, "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2}
NAMES = {"depth": "num_hidden_layers", "num_heads": "num_attention_heads"}


def _ernie_moe(fields: Fields) -> ModelConfig:
    """Experts from `moe_layer_start_index` to `moe_layer_end_index`, every `moe_layer_interval` layers, or by
    `mlp_layer_types`; ERNIE 4.5 VL has further ones for images, whose sizes come second in lists."""
    fields, unvisited = _of_text(fields)
    bias = fields.flag("use_bias", False)
    moe = with_shared_experts(fields, correction_bias=True, unvisited=unvisited)
    blocks = sparse_where(fields, moe, _ernie_sparse(fields), bias=bias)
    attention = grouped_attention(fields, multi_head=True, qkv_bias=bias, output_bias=bias)
    return rotary_model(fields, attention, blocks, tied=True)


def _ernie_sparse(fields: Fields) -> list[bool]:
    count = fields.layer_count()
    kinds = fields.listing("mlp_layer_types", str, count)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    start = fields.count_or("moe_layer_start_index", 1, smallest=0)
    end = fields.data.get("moe_layer_end_index")
    last = count - 1 if end in (None, -1) else fields.count("moe_layer_end_index", smallest=0)
    step = fields.count_or("moe_layer_interval", 1)
    return [start <= index <= last and (index + 1) % step == 0 for index in range(count)]


LISTED = ("moe_num_experts", "moe_intermediate_size", "moe_layer_start_index", "moe_layer_end_index", "moe_capacity")


def _of_text(fields: Fields) -> tuple[Fields, int]:
    """The fields of the experts for text, and the weights of one layer's experts for images with their router."""
    widths, counts = fields.data.get("moe_intermediate_size"), fields.data.get("moe_num_experts")
    if not isinstance(widths, list) and not isinstance(counts, list):
        return fields, 0
    firsts = {key: fields.data[key][0] for key in LISTED if isinstance(fields.data.get(key), list) and fields.data[key]}
    second = {key: fields.data[key][-1] for key in firsts}
    images = dataclasses.replace(fields, data={**fields.data, **second})
    experts, hidden = images.count("moe_num_experts"), fields.count("hidden_size")
    unvisited = experts * (3 * hidden * images.count("moe_intermediate_size") + hidden + 1)
    fields.notes.append("The experts for images are stored, but tokens are taken to be of text: none visits them.")
    return dataclasses.replace(fields, data={**fields.data, **firsts}), unvisited


def _ernie_vl(fields: Fields) -> ModelConfig:
    """Patches of any image shape; four, and those of two frames, become one token by two blocks of two matrices."""
    text, vision = language(fields, "Ernie4_5_MoeForCausalLM"), section(fields, "vision_config", VISION)
    tower = _tower(renamed(vision, NAMES))
    merged = tower.hidden * vision.count("spatial_merge_size") ** 2
    frames = vision.optional_count("temporal_merge_size") or fields.optional_count("temporal_conv_size") or 2
    projector = dense(merged, merged) + dense(frames * merged, merged) + 2 * (dense(merged, merged) + 2 * merged)
    projector += dense(merged, text.hidden) + text.hidden
    merge = vision.count("spatial_merge_size") ** 2
    return joined(fields, text, dataclasses.replace(tower, merge=merge), projector, None)


def _tower(fields: Fields) -> Encoder:
    hidden = fields.count("hidden_size")
    inner = fields.optional_count("intermediate_size") or hidden * (fields.optional_count("mlp_ratio") or 4)
    mixer = two_way_attention(fields.count("num_attention_heads"), hidden, rotary=True)
    layer = Layer(mixer, Mlp(inner, gated=False, bias=True), norm_bias=True)
    embedding = patch_embedding(fields, hidden, bias=False)
    layers = (layer,) * fields.layer_count()
    return Encoder("vision", "image", hidden, layers, input_parameters=embedding, norm_bias=True)


FAMILIES = {
    "Ernie4_5_MoeForCausalLM": _ernie_moe,
    "Ernie4_5_VLMoeForConditionalGeneration": _ernie_vl,
    "Ernie4_5_VL_MoeForConditionalGeneration": _ernie_vl,
}

MODEL_TYPES = {
    "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "ernie4_5_vl_moe_text": "Ernie4_5_MoeForCausalLM",
    "ernie4_5_moe_vl": "Ernie4_5_VLMoeForConditionalGeneration",
    "ernie4_5_vl_moe": "Ernie4_5_VLMoeForConditionalGeneration",
}
