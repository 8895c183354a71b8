"""Molmo 2: Qwen 3 or OLMo 3 with a table of marks of images, a SigLIP 2 tower, and patches pooled by attention."""

from __future__ import annotations

import dataclasses
import math

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import gated_mlp, grouped_attention, rotary_model
from jaxperf.io.families.encoder_parts import dense, renamed, two_way_attention
from jaxperf.io.families.multimodal import joined, language
from jaxperf.io.families.towers import patch_embedding, patches, section
from jaxperf.models.checks import show
from jaxperf.models.config import Encoder, Layer, ModelConfig
from jaxperf.models.feedforward import Mlp

VISION = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 25, "num_attention_heads": 16}
ADAPTER = {"hidden_size": 1152, "intermediate_size": 18944, "num_attention_heads": 16, "head_dim": 72}
NAMES = {"image_default_input_size": "image_size", "image_patch_size": "patch_size", "image_num_pos": "num_positions"}
POOLED = 2  # patches a side that one token of an image pools; of a video 3
LAYERS = [24, 18]  # of the tower, handed on side by side


def _text(fields: Fields) -> ModelConfig:
    """Norms of queries and keys for each head (`qk_norm_type` qwen3) or of all of them (olmo); the token table has more
    rows, for marks of images, which the head lacks."""
    kind = fields.find("qk_norm_type")
    if kind is not None and kind[1] not in ("qwen3", "olmo"):
        raise InputError(f"qk_norm_type is {show(kind[1])}; it must be qwen3 or olmo.")
    wide = kind is not None and kind[1] == "olmo"
    bias = fields.flag("qkv_bias", fields.flag("attention_bias", False))
    attention = grouped_attention(fields, head_dim=128, qkv_bias=bias, qk_norm=not wide, qk_norm_wide=wide)
    model = rotary_model(fields, attention, gated_mlp(fields))
    marks = fields.optional_count("additional_vocab_size", smallest=0)
    return dataclasses.replace(model, other_parameters=model.hidden * (128 if marks is None else marks))


def _molmo2(fields: Fields) -> ModelConfig:
    """The tower ends with the last layer that is handed on, as its published weights do."""
    key = "vit_config" if "vision_config" not in fields.data and "vit_config" in fields.data else "vision_config"
    vision, adapter = section(fields, key, VISION), section(fields, "adapter_config", ADAPTER)
    vision = renamed(vision, NAMES)
    own = {name: usual for name, usual in (("image_size", 378), ("patch_size", 14)) if vision.find(name) is None}
    vision = dataclasses.replace(vision, data={**vision.data, **own})
    count = vision.layer_count()
    named = adapter.listing("vit_layers", int) or adapter.listing("vision_feature_layer", int) or LAYERS
    if not all(-count <= each < count for each in named):
        raise InputError(f"The layers of {key} that are handed on are {named}; it has {count}.")
    handed_on = [each % count for each in named]
    text = language(fields, "Molmo2TextModel")
    return joined(fields, text, _tower(vision, max(handed_on) + 1), _projector(adapter, len(named), text.hidden), None)


def _tower(fields: Fields, layers: int) -> Encoder:
    hidden, length = fields.count("hidden_size"), patches(fields)
    mixer = two_way_attention(fields.count("num_attention_heads"), hidden)
    layer = Layer(mixer, Mlp(fields.count("intermediate_size"), gated=False, bias=True), norm_bias=True)
    side = math.isqrt(length)
    return Encoder(
        "vision",
        "image",
        hidden,
        (layer,) * layers,
        length=length,
        tokens=(-(-side // POOLED)) ** 2,
        positions=fields.optional_count("num_positions") or length,
        input_parameters=patch_embedding(fields, hidden, True),
        norms=0,
    )


def _projector(fields: Fields, layers: int, out: int) -> int:
    """Attention of the mean of some patches to them, and a gated block."""
    hidden, inner = fields.count("hidden_size"), fields.count("num_attention_heads") * fields.count("head_dim")
    wide, bias = fields.count("intermediate_size"), fields.flag("mlp_bias", False)
    pooling = 3 * dense(layers * hidden, inner) + dense(inner, hidden)
    return pooling + 2 * dense(hidden, wide, bias) + dense(wide, out, False)


FAMILIES = {"Molmo2ForConditionalGeneration": _molmo2, "Molmo2TextModel": _text}

MODEL_TYPES = {"molmo2": "Molmo2ForConditionalGeneration", "molmo2_text": "Molmo2TextModel"}
