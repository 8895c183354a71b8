"""Image models: a vision tower alone (ViT, DeiT, DINOv2), or beside a text tower (CLIP, SigLIP)."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import Family
from jaxperf.io.families.encoder_parts import dense, encoder_model, label_count, plain_layers
from jaxperf.io.families.towers import (
    CLIP_VISION,
    SIGLIP_VISION,
    clip_tower,
    dinov2_tower,
    section,
    siglip_tower,
    vit_tower,
)
from jaxperf.models.config import Encoder, ModelConfig


def _vit(fields: Fields) -> ModelConfig:
    """The pooler reads the class token; a classifier takes its place."""
    hidden = fields.count("hidden_size")
    out = fields.optional_count("pooler_output_size") or hidden
    return encoder_model(fields, [vit_tower(fields)], None, dense(hidden, out))


def _vit_classifier(fields: Fields) -> ModelConfig:
    return encoder_model(fields, [vit_tower(fields)], None, dense(fields.count("hidden_size"), label_count(fields)))


def _deit(fields: Fields) -> ModelConfig:
    hidden = fields.count("hidden_size")
    out = fields.optional_count("pooler_output_size") or hidden
    return encoder_model(fields, [vit_tower(fields, 2)], None, dense(hidden, out))


def _deit_classifier(fields: Fields) -> ModelConfig:
    """With a teacher there is a second classifier, on the distillation token."""
    heads = 2 if fields.architecture.endswith("WithTeacher") else 1
    other = heads * dense(fields.count("hidden_size"), label_count(fields))
    return encoder_model(fields, [vit_tower(fields, 2)], None, other)


def _dinov2(fields: Fields) -> ModelConfig:
    return encoder_model(fields, [dinov2_tower(fields)], None)


def _dinov2_classifier(fields: Fields) -> ModelConfig:
    """Reads the class token beside the mean of the patches."""
    other = dense(2 * fields.count("hidden_size"), label_count(fields))
    return encoder_model(fields, [dinov2_tower(fields)], None, other)


CLIP_TEXT = {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
}
SIGLIP_TEXT = CLIP_TEXT | {
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "max_position_embeddings": 64,
}


def _text_tower(fields: Fields, causal: bool) -> Encoder:
    """A text tower of `max_position_embeddings` tokens, padded to that length as both models were trained."""
    context = fields.count("max_position_embeddings")
    return Encoder(
        "text",
        "text",
        fields.count("hidden_size"),
        plain_layers(fields, causal=causal),
        context,
        vocabulary=fields.count("vocab_size"),
        positions=context,
        norm_bias=True,
    )


def _clip(fields: Fields) -> ModelConfig:
    """Both towers are projected to `projection_dim`; the text tower is causal (arXiv:2103.00020, section 2.4)."""
    text_fields, vision_fields = (
        section(fields, "text_config", CLIP_TEXT),
        section(fields, "vision_config", CLIP_VISION),
    )
    shared = fields.count_or("projection_dim", 512)
    text, vision = _text_tower(text_fields, causal=True), clip_tower(vision_fields)
    text = dataclasses.replace(text, projector_parameters=dense(text.hidden, shared, False))
    vision = dataclasses.replace(vision, projector_parameters=dense(vision.hidden, shared, False))
    return encoder_model(fields, [vision, text], text.length, other=1)  # the temperature of the similarities


def _clip_vision(fields: Fields) -> ModelConfig:
    tower = clip_tower(fields)
    if fields.architecture.endswith("WithProjection"):
        shared = dense(tower.hidden, fields.count_or("projection_dim", 512), False)
        tower = dataclasses.replace(tower, projector_parameters=shared)
    return encoder_model(fields, [tower], None)


def _siglip(fields: Fields) -> ModelConfig:
    text_fields = section(fields, "text_config", SIGLIP_TEXT)
    text = _text_tower(text_fields, causal=False)
    out = text_fields.optional_count("projection_size") or text.hidden
    text = dataclasses.replace(text, projector_parameters=dense(text.hidden, out))
    vision = siglip_tower(section(fields, "vision_config", SIGLIP_VISION))
    return encoder_model(fields, [vision, text], text.length, other=2)  # the scale and bias of the similarities


def _siglip_vision(fields: Fields) -> ModelConfig:
    return encoder_model(fields, [siglip_tower(fields)], None)


FAMILIES: dict[str, Family] = {
    "ViTModel": _vit,
    "ViTForImageClassification": _vit_classifier,
    "DeiTModel": _deit,
    "DeiTForImageClassification": _deit_classifier,
    "DeiTForImageClassificationWithTeacher": _deit_classifier,
    "Dinov2Model": _dinov2,
    "Dinov2ForImageClassification": _dinov2_classifier,
    "CLIPModel": _clip,
    "CLIPVisionModel": _clip_vision,
    "CLIPVisionModelWithProjection": _clip_vision,
    "SiglipModel": _siglip,
    "SiglipVisionModel": _siglip_vision,
}

MODEL_TYPES: dict[str, str] = {
    "vit": "ViTModel",
    "deit": "DeiTModel",
    "dinov2": "Dinov2Model",
    "clip": "CLIPModel",
    "clip_vision_model": "CLIPVisionModel",
    "siglip": "SiglipModel",
    "siglip_vision_model": "SiglipVisionModel",
}
