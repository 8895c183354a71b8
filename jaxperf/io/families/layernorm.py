"""Rotary models with LayerNorm or without a gate: StableLM, Nemotron, StarCoder 2, Persimmon, Apertus, Jais 2,
nanochat."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import full_heads, gated_mlp, grouped_attention, one_window, rotary_model
from jaxperf.models.config import Attention, Mlp, ModelConfig, Table


def _plain_mlp(fields: Fields, bias: bool) -> Mlp:
    return Mlp(fields.count("intermediate_size"), gated=False, bias=bias)


def _attention(fields: Fields, bias: bool, **kind: Any) -> Attention:
    return grouped_attention(fields, multi_head=True, qkv_bias=bias, output_bias=bias, **kind)


def _stablelm(fields: Fields) -> ModelConfig:
    """The 12B has parallel blocks behind one norm and a norm for each head of the queries and keys."""
    parallel = fields.flag("use_parallel_residual", False)
    attention = grouped_attention(
        fields,
        multi_head=True,
        qkv_bias=fields.flag("use_qkv_bias", False),
        qk_norm_wide=fields.flag("qk_layernorm", False),
    )
    norms = 1 if parallel else 2
    return rotary_model(fields, attention, gated_mlp(fields), norms=norms, norm_bias=True, parallel=parallel)


def _nemotron(fields: Fields) -> ModelConfig:
    block = _plain_mlp(fields, fields.flag("mlp_bias", False))
    return rotary_model(fields, _attention(fields, fields.flag("attention_bias", False)), block, norm_bias=True)


def _starcoder2(fields: Fields) -> ModelConfig:
    bias = fields.flag_or("use_bias", True)
    attention, block = _attention(fields, bias), _plain_mlp(fields, bias)
    return rotary_model(fields, attention, block, one_window(fields), tied=True, norm_bias=True)


def _persimmon(fields: Fields) -> ModelConfig:
    norm = fields.flag_or("qk_layernorm", True)
    attention = full_heads(fields, qkv_bias=True, output_bias=True, qk_norm=norm, qk_norm_bias=norm)
    return rotary_model(fields, attention, _plain_mlp(fields, True), norm_bias=True)


def _apertus(fields: Fields) -> ModelConfig:
    """Two learned numbers a layer shape the activation (xIELU). Apertus 1.5 has more tokens to read than to write."""
    attention = _attention(fields, fields.flag("attention_bias", False), qk_norm=True)
    model = rotary_model(fields, attention, _plain_mlp(fields, fields.flag("mlp_bias", False)), other_parameters=2)
    written = fields.optional_count("output_vocab_size", largest=model.vocabulary)
    if written is None or written == model.vocabulary:
        return model
    only_read = Table("tokens that are only read", model.vocabulary - written, model.hidden)
    return dataclasses.replace(model, vocabulary=written, tables=(only_read,))


def _nanochat(fields: Fields) -> ModelConfig:
    """Norms without weights, of queries and keys and after the token table too."""
    attention = _attention(fields, fields.flag("attention_bias", False))
    return rotary_model(fields, attention, _plain_mlp(fields, False), norm_weight=False)


def _arcee(fields: Fields) -> ModelConfig:
    block = _plain_mlp(fields, fields.flag("mlp_bias", False))
    return rotary_model(fields, _attention(fields, fields.flag("attention_bias", False)), block)


def _jais2(fields: Fields) -> ModelConfig:
    attention = _attention(fields, fields.flag_or("attention_bias", True))
    return rotary_model(fields, attention, _plain_mlp(fields, fields.flag_or("mlp_bias", True)), norm_bias=True)


FAMILIES = {
    "StableLmForCausalLM": _stablelm,
    "NemotronForCausalLM": _nemotron,
    "Starcoder2ForCausalLM": _starcoder2,
    "PersimmonForCausalLM": _persimmon,
    "ApertusForCausalLM": _apertus,
    "Apertus1p5TextForCausalLM": _apertus,
    "NanoChatForCausalLM": _nanochat,
    "ArceeForCausalLM": _arcee,
    "Jais2ForCausalLM": _jais2,
}

MODEL_TYPES = {
    "stablelm": "StableLmForCausalLM",
    "nemotron": "NemotronForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
    "persimmon": "PersimmonForCausalLM",
    "apertus": "ApertusForCausalLM",
    "apertus1p5_text": "Apertus1p5TextForCausalLM",
    "nanochat": "NanoChatForCausalLM",
    "arcee": "ArceeForCausalLM",
    "jais2": "Jais2ForCausalLM",
}
