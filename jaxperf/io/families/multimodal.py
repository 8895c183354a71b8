"""Vision-language models: the language model of `text_config` (or of the config itself) with a tower beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import SYNONYMS, Fields
from jaxperf.io.families import language_towers, towers
from jaxperf.io.families.common import Family
from jaxperf.io.families.encoder_parts import dense
from jaxperf.io.families.towers import section
from jaxperf.models.checks import check_count, show
from jaxperf.models.config import Encoder, ModelConfig

# What configs of wrappers leave out of `text_config`: the defaults of its Hugging Face class, by `model_type`.
LLAMA_TEXT = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 2048,
}
TEXT_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": LLAMA_TEXT,
    "qwen2": LLAMA_TEXT | {"vocab_size": 151936, "intermediate_size": 22016, "max_position_embeddings": 32768},
    "mistral": LLAMA_TEXT | {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072},
    "gemma": LLAMA_TEXT
    | {
        "vocab_size": 256000,
        "hidden_size": 3072,
        "intermediate_size": 24576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "max_position_embeddings": 8192,
    },
    "gemma3_text": LLAMA_TEXT
    | {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
    "mllama_text_model": LLAMA_TEXT
    | {
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
}

# Classes of language parts whose `model_type` names the wrapper's own class and not a family.
TEXT_CLASSES: Mapping[str, str] = {
    "granite4_vision_text": "GraniteForCausalLM",
    "hunyuan_vl_text": "HunYuanDenseV1ForCausalLM",
    "mllama_text_model": "LlamaForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
}

# Fields that a wrapper may hold for its language part.
OUTER = ("tie_word_embeddings", "quantization_config", "compression_config", *SYNONYMS["torch_dtype"])


def language(fields: Fields, default: str) -> ModelConfig:
    """The language part; `default` is its class where the config names none. Towers are not in it yet."""
    from jaxperf.io.families import FAMILIES  # all families are known only after this file is read

    nested = isinstance(fields.data.get("text_config"), Mapping)
    inner = fields.data["text_config"] if nested else fields.data
    architecture = _text_class(inner) or default if nested else default
    data = {key: fields.data[key] for key in OUTER if fields.data.get(key) is not None and inner.get(key) is None}
    if nested:
        _note_tie(fields, inner)
    text = dataclasses.replace(fields, data={**fields.data, "text_config": {**inner, **data}})
    text = section(text, "text_config", TEXT_DEFAULTS.get(str(inner.get("model_type")), {}) if nested else {})
    plain = None if architecture in MULTIMODAL else FAMILIES[architecture]
    config = plain and plain(dataclasses.replace(text, architecture=architecture))
    if config is None or config.encoders:
        raise InputError(f"text_config is of the class {architecture}, which is no language model by itself.")
    return config


def _text_class(inner: Mapping[str, Any]) -> str | None:
    """The class of a language part, `None` when it names none."""
    from jaxperf.io.families import FAMILIES, MODEL_TYPES

    kind, names = inner.get("model_type"), inner.get("architectures")
    named = names[0] if isinstance(names, list) and names else None
    for each in (named, TEXT_CLASSES.get(str(kind)), MODEL_TYPES.get(str(kind))):
        if isinstance(each, str) and each in FAMILIES:
            return each
    if named or kind:
        raise InputError(f"text_config is of the class {show(named or kind)}, which is not supported.")
    return None


def _note_tie(fields: Fields, inner: Mapping[str, Any]) -> None:
    outside, inside = fields.data.get("tie_word_embeddings"), inner.get("tie_word_embeddings")
    if None not in (outside, inside) and outside != inside:
        fields.notes.append(
            f"tie_word_embeddings is {show(inside)} in text_config and {show(outside)} outside; the former was used."
        )


def joined(fields: Fields, text: ModelConfig, tower: Encoder, projector: int, tokens: int | None) -> ModelConfig:
    """The wrapper: `projector` counts what is added to the tower's own, `tokens` are handed on for one image."""
    joined = dataclasses.replace(
        tower, projector_parameters=tower.projector_parameters + projector, tokens=tower.tokens or tokens
    )
    return dataclasses.replace(text, architecture=fields.architecture, encoders=(joined,))


def _feature_layers(fields: Fields) -> int:
    """How many layers of the tower are handed on side by side: an integer names one, a list several."""
    found = fields.find("vision_feature_layer")
    return len(found[1]) if found and isinstance(found[1], list) and found[1] else 1


VISION: Mapping[str, tuple[Callable[[Fields], Encoder], Mapping[str, Any]]] = {
    "clip_vision_model": (towers.clip_tower, towers.CLIP_VISION),
    "siglip_vision_model": (towers.siglip_tower, towers.SIGLIP_VISION),
    "pixtral": (language_towers.pixtral_tower, language_towers.PIXTRAL_VISION),
}


def _any_tower(fields: Fields, usual: str) -> Encoder:
    """The tower that `vision_config.model_type` names, `usual` if it names none."""
    inner = fields.data.get("vision_config")
    kind = (inner.get("model_type") if isinstance(inner, Mapping) else None) or usual
    if not isinstance(kind, str) or kind not in VISION:
        allowed = ", ".join(VISION)
        raise InputError(f"vision_config.model_type is {show(kind)}; towers of this class are {allowed}.")
    read, defaults = VISION[kind]
    return read(section(fields, "vision_config", defaults))


# --- one function per family ------------------------------------------------------------------------------------------


def _llava(fields: Fields, newline: bool = False) -> ModelConfig:
    """LLaVA (arXiv:2310.03744): two matrices between tower and language; the class token is not handed on.

    LLaVA-NeXT cuts an image into tiles; the tokens are those of one tile.
    """
    text, tower = language(fields, "LlamaForCausalLM"), _any_tower(fields, "clip_vision_model")
    bias = fields.flag("multimodal_projector_bias", True)
    projector = dense(tower.hidden * _feature_layers(fields), text.hidden, bias) + dense(text.hidden, text.hidden, bias)
    dropped = 1 if tower.norms == 2 and tower.length else 0  # the class token, which only CLIP has
    tokens = tower.length - dropped if tower.length else None
    return joined(fields, text, tower, projector + (text.hidden if newline else 0), tokens)


def _mistral3(fields: Fields) -> ModelConfig:
    """Mistral Small 3.1: a Pixtral tower whose patches are merged two by two before the two matrices."""
    text, tower = language(fields, "MistralForCausalLM"), _any_tower(fields, "pixtral")
    bias, merged = fields.flag("multimodal_projector_bias", False), fields.count_or("spatial_merge_size", 2) ** 2
    projector = tower.hidden + dense(merged * tower.hidden, tower.hidden, False)
    projector += dense(tower.hidden * _feature_layers(fields), text.hidden, bias) + dense(
        text.hidden, text.hidden, bias
    )
    return joined(fields, text, dataclasses.replace(tower, merge=merged), projector, None)


def _qwen_vl(
    fields: Fields, default: str, read: Callable[[Fields], Encoder], defaults: Mapping[str, Any]
) -> ModelConfig:
    tower = read(section(fields, "vision_config", defaults))
    return joined(fields, language(fields, default), tower, 0, None)


def _gemma3(fields: Fields) -> ModelConfig:
    """Gemma 3 (arXiv:2503.19786): SigLIP patches pooled to 256 tokens, a norm and one matrix."""
    text, vision = language(fields, "Gemma3ForCausalLM"), section(fields, "vision_config", towers.SIGLIP_VISION)
    tower = towers.siglip_tower(vision, pooled=False)
    tokens = fields.count_or("mm_tokens_per_image", 256)
    return joined(fields, text, tower, dense(tower.hidden, text.hidden, False) + tower.hidden, tokens)


def _paligemma(fields: Fields) -> ModelConfig:
    """PaliGemma (arXiv:2407.07726): one matrix from every SigLIP patch to the language width."""
    text, vision = language(fields, "GemmaForCausalLM"), section(fields, "vision_config", towers.SIGLIP_VISION)
    tower = towers.siglip_tower(vision, pooled=False)
    return joined(fields, text, tower, dense(tower.hidden, text.hidden), tower.length)


def _mllama(fields: Fields) -> ModelConfig:
    """Llama 3.2 Vision: some layers attend to the tower instead of to the text, with two gates each; 8 more rows."""
    text = language(fields, "LlamaForCausalLM")
    vision = section(fields, "vision_config", language_towers.MLLAMA_VISION)
    tower = language_towers.mllama_tower(vision)
    inner = section(fields, "text_config", {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]})
    layers = list(text.layers)
    for index in inner.listing("cross_attention_layers", int) or []:
        check_count("An item of cross_attention_layers", index, smallest=0, largest=len(layers) - 1)
        cross = dataclasses.replace(layers[index].mixer, causal=False, rotary=False, qk_norm=True)  # type: ignore[type-var]
        layers[index] = dataclasses.replace(layers[index], mixer=None, cross=cross, other_parameters=2)
    text = dataclasses.replace(text, layers=tuple(layers), other_parameters=8 * text.hidden)
    return joined(fields, text, tower, dense(vision.count("vision_output_dim"), text.hidden), None)


def _llama4(fields: Fields) -> ModelConfig:
    vision = section(fields, "vision_config", language_towers.LLAMA4_VISION)
    text, tower = language(fields, "Llama4ForCausalLM"), language_towers.llama4_tower(vision)
    return joined(fields, text, tower, dense(vision.count("vision_output_dim"), text.hidden, False), None)


def _idefics3(fields: Fields) -> ModelConfig:
    """Idefics3 (arXiv:2408.12637) and SmolVLM: `scale_factor` x `scale_factor` patches become one token."""
    text, vision = language(fields, "LlamaForCausalLM"), section(fields, "vision_config", towers.CLIP_VISION)
    tower, merged = towers.siglip_tower(vision, pooled=False), fields.count_or("scale_factor", 2) ** 2
    assert tower.length is not None
    return joined(fields, text, tower, dense(merged * tower.hidden, text.hidden, False), tower.length // merged)


def _internvl(fields: Fields) -> ModelConfig:
    """InternVL (arXiv:2504.10479): four patches become one token, a norm and two matrices."""
    text = language(fields, "Qwen2ForCausalLM")
    tower = language_towers.internvl_tower(section(fields, "vision_config", language_towers.INTERNVL_VISION))
    merged = 4 * tower.hidden
    projector = 2 * merged + dense(merged, text.hidden) + dense(text.hidden, text.hidden)
    return joined(fields, text, tower, projector, fields.count_or("image_seq_length", 256))


def _internvl_chat(fields: Fields) -> ModelConfig:
    """The same model under the names of its first release."""
    names = {"qkv_bias": "attention_bias", "qk_normalization": "use_qk_norm"}
    data = {**fields.data, "text_config": fields.data.get("llm_config")}
    vision = fields.data.get("vision_config")
    if isinstance(vision, Mapping):
        data["vision_config"] = {names.get(key, key): value for key, value in vision.items()}
    return _internvl(dataclasses.replace(fields, data=data))


MULTIMODAL: dict[str, Family] = {
    "LlavaForConditionalGeneration": _llava,
    "LlavaNextForConditionalGeneration": partial(_llava, newline=True),
    "Mistral3ForConditionalGeneration": _mistral3,
    "Qwen2VLForConditionalGeneration": partial(
        _qwen_vl, default="Qwen2ForCausalLM", read=language_towers.qwen2_tower, defaults=language_towers.QWEN2_VISION
    ),
    "Qwen2_5_VLForConditionalGeneration": partial(
        _qwen_vl, default="Qwen2ForCausalLM", read=language_towers.qwen25_tower, defaults=language_towers.QWEN25_VISION
    ),
    "Qwen3VLForConditionalGeneration": partial(
        _qwen_vl, default="Qwen3ForCausalLM", read=language_towers.qwen3_tower, defaults=language_towers.QWEN3_VISION
    ),
    "Qwen3VLMoeForConditionalGeneration": partial(
        _qwen_vl, default="Qwen3MoeForCausalLM", read=language_towers.qwen3_tower, defaults=language_towers.QWEN3_VISION
    ),
    "Gemma3ForConditionalGeneration": _gemma3,
    "PaliGemmaForConditionalGeneration": _paligemma,
    "MllamaForConditionalGeneration": _mllama,
    "Llama4ForConditionalGeneration": _llama4,
    "Idefics3ForConditionalGeneration": _idefics3,
    "SmolVLMForConditionalGeneration": _idefics3,
    "InternVLForConditionalGeneration": _internvl,
    "InternVLChatModel": _internvl_chat,
}

MODEL_TYPES: dict[str, str] = {
    "llava": "LlavaForConditionalGeneration",
    "llava_next": "LlavaNextForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "gemma3": "Gemma3ForConditionalGeneration",
    "paligemma": "PaliGemmaForConditionalGeneration",
    "mllama": "MllamaForConditionalGeneration",
    "llama4": "Llama4ForConditionalGeneration",
    "idefics3": "Idefics3ForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",
    "internvl": "InternVLForConditionalGeneration",
    "internvl_chat": "InternVLChatModel",
}

FAMILIES = MULTIMODAL
