"""Vision towers that exist beside a language model only: one function per `vision_config`, as in `towers`."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.encoder_parts import dense, renamed, two_way_attention
from jaxperf.io.families.towers import VIT_SIZES, patch_embedding, patches
from jaxperf.models.checks import check_count, show
from jaxperf.models.config import Encoder, Layer, Table
from jaxperf.models.feedforward import Mlp

PIXTRAL_VISION = VIT_SIZES | {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 1024,
    "patch_size": 16,
}


def pixtral_tower(fields: Fields) -> Encoder:
    """Rotary positions, RMSNorm and gated blocks without biases, any image shape (arXiv:2410.07073)."""
    hidden = fields.count("hidden_size")
    mixer = two_way_attention(fields.count("num_attention_heads"), hidden, False, rotary=True)
    layer = Layer(mixer, Mlp(fields.count("intermediate_size")))
    embedding = patch_embedding(fields, hidden, bias=False)
    return Encoder("vision", "image", hidden, (layer,) * fields.layer_count(), input_parameters=embedding)


QWEN_SIZES = {"depth": 32, "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
QWEN2_VISION = QWEN_SIZES | {"embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584}
QWEN25_VISION = QWEN_SIZES | {
    "hidden_size": 3584,
    "intermediate_size": 3420,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "out_hidden_size": 3584,
}
QWEN3_VISION = QWEN_SIZES | {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "patch_size": 16,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
}
QWEN_NAMES = {"depth": "num_hidden_layers", "num_heads": "num_attention_heads", "in_chans": "in_channels"}


def merger(hidden: int, merged: int, out: int, norm: int) -> int:
    """Weights of the block that joins `merged` tokens into one of the width `out`; `norm` those of its norm."""
    return norm + dense(merged * hidden, merged * hidden) + dense(merged * hidden, out)


def _qwen_encoder(fields: Fields, hidden: int, layers: tuple[Layer, ...], bias: bool, **parts: Any) -> Encoder:
    """Patches of two frames, rotary positions, no norm after the layers; the image decides the length."""
    embedding = patch_embedding(fields, hidden, bias, fields.count("temporal_patch_size"))
    return Encoder("vision", "image", hidden, layers, input_parameters=embedding, norms=0, **parts)


def qwen2_tower(fields: Fields) -> Encoder:
    """Qwen2-VL (arXiv:2409.12191); its `hidden_size` is the width handed on."""
    fields = renamed(fields, QWEN_NAMES)
    hidden, merged = fields.count("embed_dim"), fields.count("spatial_merge_size") ** 2
    mixer = two_way_attention(fields.count("num_attention_heads"), hidden, rotary=True)
    layer = Layer(mixer, Mlp(hidden * fields.count("mlp_ratio"), gated=False, bias=True), norm_bias=True)
    projector = merger(hidden, merged, fields.count("hidden_size"), 2 * hidden)
    layers = (layer,) * fields.layer_count()
    return _qwen_encoder(fields, hidden, layers, False, projector_parameters=projector, merge=merged)


def qwen25_tower(fields: Fields) -> Encoder:
    """Qwen2.5-VL (arXiv:2502.13923): windows of `window_size` pixels except in a few layers, gated blocks, RMSNorm."""
    fields = renamed(fields, QWEN_NAMES)
    hidden, merged = fields.count("hidden_size"), fields.count("spatial_merge_size") ** 2
    window = (fields.count("window_size") // fields.count("patch_size")) ** 2
    full = fields.listing("fullatt_block_indexes", int) or []
    whole = two_way_attention(fields.count("num_attention_heads"), hidden, rotary=True)
    local = dataclasses.replace(whole, chunk=check_count("The patches of window_size", window))
    block = Mlp(fields.count("intermediate_size"), bias=True)
    layers = tuple(Layer(whole if index in full else local, block) for index in range(fields.layer_count()))
    projector = merger(hidden, merged, fields.count("out_hidden_size"), hidden)
    return _qwen_encoder(fields, hidden, layers, False, projector_parameters=projector, merge=merged)


def qwen3_tower(fields: Fields) -> Encoder:
    """Qwen3-VL (arXiv:2511.21631): learned positions too, and a merger for each layer that hands its output on."""
    fields = renamed(fields, QWEN_NAMES)
    hidden, merged = fields.count("hidden_size"), fields.count("spatial_merge_size") ** 2
    mixer = two_way_attention(fields.count("num_attention_heads"), hidden, rotary=True)
    layer = Layer(mixer, Mlp(fields.count("intermediate_size"), gated=False, bias=True), norm_bias=True)
    out, deep = fields.count("out_hidden_size"), len(fields.listing("deepstack_visual_indexes", int) or [])
    projector = merger(hidden, merged, out, 2 * hidden) + deep * merger(hidden, merged, out, 2 * merged * hidden)
    positions, layers = fields.count("num_position_embeddings"), (layer,) * fields.layer_count()
    return _qwen_encoder(
        fields, hidden, layers, True, positions=positions, projector_parameters=projector, merge=merged
    )


MLLAMA_VISION = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_global_layers": 8,
    "attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "max_num_tiles": 4,
    "vision_output_dim": 7680,
}


def mllama_tower(fields: Fields) -> Encoder:
    """Llama 3.2 Vision (arXiv:2407.21783, section 7): tiles, each with a class token; gated layers at the end."""
    hidden, tiles = fields.count("hidden_size"), fields.count("max_num_tiles")
    mixer = two_way_attention(fields.count("attention_heads"), hidden, False)
    local = Layer(mixer, Mlp(fields.count("intermediate_size"), gated=False, bias=True), norm_bias=True)
    shapes = fields.find("supported_aspect_ratios")
    shapes_known = 1 + (len(shapes[1]) if shapes and isinstance(shapes[1], list) else 8)
    positions = patches(fields) + 1
    tables = (
        Table("positions in tiles", shapes_known, tiles * positions * hidden),
        Table("tiles before the layers", shapes_known, tiles * hidden),
        Table("tiles after the layers", shapes_known, tiles * hidden),
    )
    gated = dataclasses.replace(local, other_parameters=2)
    layers = (local,) * fields.layer_count() + (gated,) * fields.count("num_global_layers")
    return Encoder(
        "vision",
        "image",
        hidden,
        layers,
        tiles * positions,
        positions=positions,
        input_parameters=patch_embedding(fields, hidden, bias=False),
        tables=tables,
        norms=2,
        norm_bias=True,
        other_parameters=hidden + 3,  # class token; the gates of the three tables
    )


LLAMA4_VISION = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "vision_output_dim": 7680,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
}


def llama4_tower(fields: Fields) -> Encoder:
    """Llama 4: a rotary ViT whose output is shuffled into a quarter as many tokens by two matrices without biases."""
    hidden, length, inner = fields.count("hidden_size"), patches(fields) + 1, fields.count("intermediate_size")
    out = fields.count("projector_output_dim")
    mixer = two_way_attention(fields.count("num_attention_heads"), hidden, rotary=True)
    layer = Layer(mixer, Mlp(inner, gated=False, bias=True), norm_bias=True)
    return Encoder(
        "vision",
        "image",
        hidden,
        (layer,) * fields.layer_count(),
        length,
        (length - 1) // 4,
        positions=length,
        input_parameters=patch_embedding(fields, hidden, bias=False),
        norms=2,
        norm_bias=True,
        other_parameters=hidden,
        projector_parameters=dense(inner, fields.count("projector_input_dim"), False) + dense(out, out, False),
    )


INTERNVL_VISION = VIT_SIZES | {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
}


def internvl_tower(fields: Fields) -> Encoder:
    """InternViT (arXiv:2312.14238): scales of the residual as in DINOv2, sometimes norms of queries and keys."""
    hidden, length = fields.count("hidden_size"), patches(fields) + 1
    rms = _one_of(fields, "norm_type", ("layer_norm", "rms_norm")) == "rms_norm"
    mixer = two_way_attention(
        fields.count("num_attention_heads"),
        hidden,
        qkv_bias=fields.flag("attention_bias", False),
        qk_norm=fields.flag("use_qk_norm", False),
        qk_norm_wide=fields.flag("use_qk_norm", False),
    )
    block = Mlp(fields.count("intermediate_size"), gated=False, bias=True)
    layer = Layer(mixer, block, norm_bias=not rms, other_parameters=2 * hidden)
    return Encoder(
        "vision",
        "image",
        hidden,
        (layer,) * fields.layer_count(),
        length,
        positions=length if fields.flag("use_absolute_position_embeddings", True) else 0,
        input_parameters=patch_embedding(fields, hidden, bias=True),
        norms=0 if fields.flag("use_mean_pooling", True) else 1,
        norm_bias=True,
        other_parameters=hidden,
    )


def _one_of(fields: Fields, field: str, allowed: tuple[str, ...]) -> str:
    found = fields.find(field)
    if found is None:
        return allowed[0]
    if found[1] not in allowed:
        raise InputError(f"{field} is {show(found[1])}; it must be one of {', '.join(allowed)}.")
    return found[1]
