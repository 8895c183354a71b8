"""Which family reads a config: by its class, by the class's kind of head, or by the language part of a wrapper."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.config_fields import SYNONYMS, Fields
from jaxperf.io.families import FAMILIES, MODEL_TYPES, REFUSED
from jaxperf.io.families.common import Family
from jaxperf.io.families.encoder_parts import dense, label_count
from jaxperf.io.families.multimodal import TEXT_CLASSES
from jaxperf.models.checks import show
from jaxperf.models.config import ModelConfig

Chosen = tuple[Family, str, Mapping[str, Any], list[str]]

LANGUAGE_PARTS = ("text_config", "llm_config", "language_config")  # where wrappers keep their language model
OUTER = ("tie_word_embeddings", "quantization_config", *SYNONYMS["torch_dtype"])  # what they may say for it
OTHER_HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification")


def choose_family(data: Mapping[str, Any]) -> Chosen:
    """The function that reads a config, its class, the fields to read and what was assumed in choosing them.

    Raises `InputError` naming the class and the nearest of those that are supported.
    """
    architecture = _architecture(data)
    if architecture in FAMILIES:
        return FAMILIES[architecture], architecture, data, _class_notes(data, architecture)
    if (reason := _refusal(data, architecture)) is not None:
        raise InputError(f"the architecture {show(architecture)} is not supported: {reason}.")
    if (family := _with_another_head(data, architecture)) is not None:
        return family, architecture, data, []
    if isinstance(thinker := data.get("thinker_config"), Mapping) and "text_config" in thinker:
        return choose_family({**data, "text_config": thinker["text_config"], "thinker_config": None})
    for part in LANGUAGE_PARTS:
        if isinstance(inner := data.get(part), Mapping):
            return _language_part(data, part, inner, f"the class {architecture}" if architecture else "the config")
    if (flat := MODEL_TYPES.get(f"{data.get('model_type')}_text")) is not None and data.get("hidden_size") is not None:
        return FAMILIES[flat], flat, data, [f"the config has no text_config; its own fields were read as {flat}."]
    if not architecture:
        raise InputError(f"the field architectures is missing; it must name one of the {len(FAMILIES)} model classes.")
    raise InputError(f"the architecture {show(architecture)} is not supported.{_nearest(architecture)}")


def _architecture(data: Mapping[str, Any]) -> str:
    """The class named by `architectures`, else the one that `model_type` implies, else an empty text."""
    names = data.get("architectures")
    if names is None:
        kind = data.get("model_type")
        if not isinstance(kind, str) or not kind.isprintable():
            return ""
        return MODEL_TYPES.get(kind) or TEXT_CLASSES.get(kind, kind)
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise InputError(f"architectures is {show(names)}; it must be a list with the name of a model class.")
    return next((name for name in names if name in FAMILIES), names[0])


def _class_notes(data: Mapping[str, Any], architecture: str) -> list[str]:
    """That the class was told by `model_type`, or that `model_type` means a class that is read otherwise."""
    if not data.get("architectures"):
        return [f"architectures is absent; model_type was read as {architecture}."]
    kind = data.get("model_type")
    other = MODEL_TYPES.get(kind, "") if isinstance(kind, str) else ""
    # A bare body, such as BertModel, is read otherwise than the same with a head; that is no contradiction.
    if not other or other.endswith("Model") or FAMILIES[other] is FAMILIES[architecture]:
        return []
    return [f"model_type {show(kind)} means {other}; architectures says {architecture}, which was read."]


def _with_another_head(data: Mapping[str, Any], architecture: str) -> Family | None:
    """The family of a decoder without its language-model head, or with a classifier in its place."""
    wrapper = "text_config" in data or "vision_config" in data
    heads = ("ForConditionalGeneration",) if wrapper else ("ForCausalLM", "LMHeadModel")
    for suffix in OTHER_HEADS:
        base = architecture.removesuffix(suffix)
        for name in (base + head for head in heads):
            if base != architecture and name in FAMILIES:
                return partial(_other_head, family=name, suffix=suffix)
    return None


def _other_head(fields: Fields, family: str, suffix: str) -> ModelConfig:
    """A tied head counts no weights; a classifier has a row for each label, and a bias where it labels tokens."""
    data = {**fields.data, "tie_word_embeddings": True}
    if isinstance(inner := data.get("text_config"), Mapping):
        data["text_config"] = {**inner, "tie_word_embeddings": True}
    config = FAMILIES[family](dataclasses.replace(fields, data=data, architecture=family))
    labels = 0 if suffix == "Model" else dense(config.hidden, label_count(fields), suffix == "ForTokenClassification")
    return dataclasses.replace(
        config,
        architecture=fields.architecture,
        head_bias=False,
        other_parameters=config.other_parameters + labels,
    )


def _language_part(data: Mapping[str, Any], part: str, inner: Mapping[str, Any], wrapper: str) -> Chosen:
    """The language model in `part` of a class that is not supported itself."""
    language = _architecture(inner)
    if language in FAMILIES:
        inherited = {key: data[key] for key in OUTER if key in data and inner.get(key) is None}
        note = f"{wrapper} wraps {language}; only its {part} is described."
        return FAMILIES[language], language, {**inner, **inherited}, [note]
    inside = f"of class {language}" if language else "of an unnamed class"
    reason = _refusal(inner, language)
    said = f": {reason}." if reason else f".{_nearest(language)}"
    raise InputError(f"{wrapper} wraps a language model {inside}, which is not supported{said}")


def _refusal(data: Mapping[str, Any], architecture: str) -> str | None:
    """Why a class or a `model_type` that is known is refused."""
    kind = data.get("model_type")
    return REFUSED.get(architecture) or (REFUSED.get(kind) if isinstance(kind, str) else None)


def _nearest(architecture: str) -> str:
    """Where the supported classes are listed, and the nearest of them, first among those of the same family."""
    family = re.split("For|Model", architecture)[0]
    relatives = [name for name in FAMILIES if family and name.startswith(family)]
    hint = did_you_mean(architecture, relatives or FAMILIES)
    return f" `jaxperf models --classes` lists the {len(FAMILIES)} that are.{hint}"
