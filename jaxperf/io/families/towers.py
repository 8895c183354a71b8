"""Vision towers: one function per `vision_config`, from its fields to an `Encoder` without a projector.

A tower is a ViT (arXiv:2010.11929): patches, positions, layers in which every patch sees every patch. The weights of
the patch embedding are `input_parameters`; class tokens, pooling heads and gates are `other_parameters`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import SYNONYMS, Fields
from jaxperf.io.families.encoder_parts import dense, plain_layers, two_way_attention
from jaxperf.models.checks import check_count, show
from jaxperf.models.config import Encoder
from jaxperf.models.feedforward import Mlp


def section(fields: Fields, key: str, defaults: Mapping[str, Any]) -> Fields:
    """The fields of the object in `key`; what it leaves out is taken from the `defaults` of its class, and noted."""
    found = fields.data.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise InputError(f"{key} is {show(found)}; it must be an object.")
    given: dict[str, Any] = dict(found or {})
    absent = [name for name in defaults if all(given.get(each) is None for each in SYNONYMS.get(name, (name,)))]
    if absent:
        what = "is absent" if found is None else f"leaves out {', '.join(absent)}"
        fields.notes.append(f"{key} {what}; the defaults of its Hugging Face class were used.")
    data = given | {name: defaults[name] for name in absent}
    return dataclasses.replace(fields, data=data, architecture=f"{key} of {fields.architecture}")


def side(fields: Fields, field: str) -> int:
    """An image or patch size in pixels, which some classes write as [height, width]; only squares are supported."""
    found = fields.find(field)
    if found is None or not isinstance(found[1], list):
        return fields.count(field)
    if len(found[1]) != 2 or found[1][0] != found[1][1]:
        raise InputError(f"{field} is {show(found[1])}; it must be an integer or a list of two equal integers.")
    return check_count(f"An item of {field}", found[1][0])


def patches(fields: Fields) -> int:
    """Patches of one image: (image side / patch side)^2, both in pixels."""
    image, patch = side(fields, "image_size"), side(fields, "patch_size")
    if patch > image:
        raise InputError(f"patch_size is {patch} and image_size is {image}; a patch cannot be larger than the image.")
    return (image // patch) ** 2


def patch_embedding(fields: Fields, hidden: int, bias: bool, frames: int = 1) -> int:
    """Weights of the convolution that turns one patch (of `frames` images) into a token."""
    channels = fields.optional_count("num_channels") or fields.optional_count("in_channels") or 3
    return dense(frames * channels * side(fields, "patch_size") ** 2, hidden, bias)


VIT_SIZES = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
}
CLIP_VISION = VIT_SIZES | {"patch_size": 32}
SIGLIP_VISION = VIT_SIZES | {"patch_size": 16}


def vit_tower(fields: Fields, extra_tokens: int = 1) -> Encoder:
    """ViT and DeiT (arXiv:2012.12877): `extra_tokens` in front of the patches, each with a learned position."""
    hidden, length = fields.count("hidden_size"), patches(fields) + extra_tokens
    layers = plain_layers(fields)
    if not fields.flag("qkv_bias", True):
        mixer = two_way_attention(fields.count("num_attention_heads"), hidden, qkv_bias=False)
        layers = tuple(dataclasses.replace(layer, mixer=mixer) for layer in layers)
    return Encoder(
        "vision",
        "image",
        hidden,
        layers,
        length,
        positions=length,
        input_parameters=patch_embedding(fields, hidden, bias=True),
        norm_bias=True,
        other_parameters=extra_tokens * hidden,
    )


def dinov2_tower(fields: Fields) -> Encoder:
    """DINOv2 (arXiv:2304.07193): ViT with two scales of the residual in each layer; the giant has a gated block."""
    hidden = fields.count("hidden_size")
    inner = hidden * fields.count_or("mlp_ratio", 4)
    block = Mlp(inner, gated=False, bias=True)
    if fields.flag("use_swiglu_ffn", False):
        block = Mlp((2 * inner // 3 + 7) // 8 * 8, gated=True, bias=True)
    tower = vit_tower(dataclasses.replace(fields, data={**fields.data, "intermediate_size": inner}))
    layers = tuple(dataclasses.replace(layer, ffn=block, other_parameters=2 * hidden) for layer in tower.layers)
    mask = hidden if fields.flag("use_mask_token", True) else 0
    return dataclasses.replace(tower, layers=layers, other_parameters=tower.other_parameters + mask)


def clip_tower(fields: Fields) -> Encoder:
    """The image side of CLIP (arXiv:2103.00020): a norm before and after the layers, no bias on the patches."""
    hidden, length = fields.count("hidden_size"), patches(fields) + 1
    return Encoder(
        "vision",
        "image",
        hidden,
        plain_layers(fields),
        length,
        positions=length,
        input_parameters=patch_embedding(fields, hidden, bias=False),
        norms=2,
        norm_bias=True,
        other_parameters=hidden,
    )


def siglip_tower(fields: Fields, pooled: bool = True) -> Encoder:
    """The image side of SigLIP (arXiv:2303.15343): no class token; `pooled` adds its attention-pooling head."""
    hidden, length, inner = fields.count("hidden_size"), patches(fields), fields.count("intermediate_size")
    head = hidden + dense(hidden, 3 * hidden) + dense(hidden, hidden) + 2 * hidden
    head += dense(hidden, inner) + dense(inner, hidden)
    return Encoder(
        "vision",
        "image",
        hidden,
        plain_layers(fields),
        length,
        positions=length,
        input_parameters=patch_embedding(fields, hidden, bias=True),
        norm_bias=True,
        other_parameters=head if fields.flag("vision_use_head", pooled) else 0,
    )
