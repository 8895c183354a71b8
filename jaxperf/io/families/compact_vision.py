"""Small models of language and images of 2026: GLM-OCR and Cohere Compass."""

from __future__ import annotations

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, decoder, gated_mlp, stack, varied, windows
from jaxperf.io.families.encoder_parts import dense, renamed, two_way_attention
from jaxperf.io.families.language_towers import QWEN3_VISION, QWEN_NAMES, QWEN_SIZES, qwen3_tower
from jaxperf.io.families.multimodal import joined, language
from jaxperf.io.families.towers import patch_embedding, section
from jaxperf.models.config import Encoder, Layer, ModelConfig
from jaxperf.models.feedforward import Mlp

GLM_OCR_VISION = QWEN_SIZES | {
    **{"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 1536, "in_channels": 3},
}


def _glm_ocr(fields: Fields) -> ModelConfig:
    """GLM-OCR: the blocks of GLM-4 after a tower with gated blocks and norms of queries and keys."""
    tower = _glm_ocr_tower(section(fields, "vision_config", GLM_OCR_VISION))
    return joined(fields, language(fields, "Glm4ForCausalLM"), tower, 0, None)


def _glm_ocr_tower(fields: Fields) -> Encoder:
    """Patches of two frames, joined by a convolution; one more matrix, a norm and a gated block as the projector."""
    fields = renamed(fields, QWEN_NAMES)
    hidden, bias = fields.count("hidden_size"), fields.flag("attention_bias", True)
    merged, out = fields.count("spatial_merge_size") ** 2, fields.count("out_hidden_size")
    mixer = two_way_attention(fields.count("num_attention_heads"), hidden, bias, rotary=True, qk_norm=True)
    layer = Layer(mixer, Mlp(fields.count("intermediate_size"), bias=bias))
    wide = out * fields.count("in_channels")
    return Encoder(
        "vision",
        "image",
        hidden,
        (layer,) * fields.layer_count(),
        input_parameters=patch_embedding(fields, hidden, True, fields.count("temporal_patch_size")),
        projector_parameters=dense(merged * hidden, out) + dense(out, out, False) + 2 * out + 3 * out * wide,
        merge=merged,
    )


def _compass_text(fields: Fields) -> ModelConfig:
    """Both blocks read one LayerNorm without bias; `layer_types` says which layers are windowed, none without it, and
    `rope_parameters`, by kind of layer, which have no positions."""
    attention = biased_attention(fields)
    widths = windows(fields, (None,) * fields.layer_count())
    given = fields.data.get("rope_parameters")
    given = given if isinstance(given, dict) else {}
    kinds = ["sliding_attention" if width else "full_attention" for width in widths]
    by_kind = not set(given).isdisjoint(("full_attention", "sliding_attention"))
    rotary = [not by_kind or bool(given.get(kind)) for kind in kinds]
    mixers = varied(attention, window=widths, rotary=rotary)
    return decoder(fields, stack(mixers, (gated_mlp(fields),) * len(mixers), norms=1, parallel=True), tied=True)


def _compass(fields: Fields) -> ModelConfig:
    """The tower of Qwen3-VL beside it; the table is tied unless the wrapper says otherwise."""
    tower = qwen3_tower(section(fields, "vision_config", QWEN3_VISION))
    return joined(fields, language(fields, "CohereCompassForCausalLM"), tower, 0, None)


FAMILIES = {
    "CohereCompassForCausalLM": _compass_text,
    "CohereCompassForConditionalGeneration": _compass,
    "GlmOcrForConditionalGeneration": _glm_ocr,
}

MODEL_TYPES = {
    "cohere_compass": "CohereCompassForConditionalGeneration",
    "cohere_compass_text": "CohereCompassForCausalLM",
    "glm_ocr": "GlmOcrForConditionalGeneration",
    "glm_ocr_text": "Glm4ForCausalLM",
}
