"""GPT-2, GPT-Neo, StarCoder, OPT, XGLM and Jais: LayerNorm and positions added to the tokens or to the scores."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, full_heads, stack, varied
from jaxperf.models.config import Layer, Mlp, ModelConfig


def _learned_positions(fields: Fields, block: Mlp, extra_positions: int = 0, **parts: Any) -> ModelConfig:
    """LayerNorm, full attention and a learned position table with `extra_positions` rows nobody addresses."""
    context = fields.count("max_position_embeddings")
    attention = full_heads(fields, rotary=False, qkv_bias=block.bias, output_bias=block.bias)
    layers = (Layer(attention, block, norm_bias=True),) * fields.layer_count()
    return decoder(fields, layers, tied=True, positions=context + extra_positions, **parts)


def _gpt2(fields: Fields) -> ModelConfig:
    if fields.flag("add_cross_attention", False):
        raise InputError("add_cross_attention is true; only decoder-only GPT-2 models are supported.")
    return _learned_positions(fields, Mlp(_four_times(fields), gated=False, bias=True))


def _opt(fields: Fields) -> ModelConfig:
    """OPT keeps two extra position rows; the post-norm 350m has no final norm and a narrower token table."""
    if not fields.flag("layer_norm_elementwise_affine", True):
        fields.notes.append("layer_norm_elementwise_affine is false; the norms are counted as if they had weights.")
    pre_norm = fields.flag("do_layer_norm_before", True)
    final_norm = pre_norm and not fields.flag("_remove_final_layer_norm", False)
    block = Mlp(fields.count("intermediate_size"), gated=False, bias=fields.flag("enable_bias", True))
    width = fields.optional_count("word_embed_proj_dim") or fields.count("hidden_size")
    return _learned_positions(fields, block, 2, final_norm=final_norm, embedding_width=width)


def _four_times(fields: Fields) -> int:
    """The inner width: four times the hidden one where the config has none, as in GPT-2."""
    return fields.optional_count("intermediate_size") or 4 * fields.count("hidden_size")


def _gpt1(fields: Fields) -> ModelConfig:
    """GPT-1: norms after the blocks and none at the end."""
    return _learned_positions(fields, Mlp(4 * fields.count("hidden_size"), gated=False, bias=True), final_norm=False)


def _gpt_neo(fields: Fields) -> ModelConfig:
    """Every other layer is windowed; only the output projection has a bias."""
    count = fields.layer_count()
    window = fields.count_or("window_size", 256)
    widths = [window if kind == "local" else None for kind in _neo_kinds(fields, count)]
    mixers = varied(full_heads(fields, rotary=False, output_bias=True), window=widths)
    block = Mlp(_four_times(fields), gated=False, bias=True)
    context = fields.count("max_position_embeddings")
    return decoder(fields, stack(mixers, (block,) * count, norm_bias=True), tied=True, positions=context)


def _neo_kinds(fields: Fields, count: int) -> list[str]:
    """`attention_layers`, or `attention_types` with patterns and how often each is repeated."""
    listed = fields.listing("attention_layers", str, count)
    if listed is None:
        patterns = fields.data.get("attention_types") or [[["global", "local"], -(-count // 2)]]
        try:
            repeated = (kind for pattern, times in patterns for _ in range(times) for kind in pattern)
            listed = list(islice(repeated, count + 1))
        except (TypeError, ValueError):
            listed = []
    if len(listed) != count or any(kind not in ("global", "local") for kind in listed):
        raise InputError("attention_types does not give global or local for each layer; make it agree with num_layers.")
    return listed


def _gpt_bigcode(fields: Fields) -> ModelConfig:
    """SantaCoder and StarCoder: one key and value head for all heads."""
    attention = full_heads(fields, rotary=False, qkv_bias=True, output_bias=True)
    if fields.flag_or("multi_query", True):
        attention = dataclasses.replace(attention, kv_heads=1)
    layer = Layer(attention, Mlp(_four_times(fields), gated=False, bias=True), norm_bias=True)
    context = fields.count("max_position_embeddings")
    return decoder(fields, (layer,) * fields.layer_count(), tied=True, positions=context)


def _xglm(fields: Fields) -> ModelConfig:
    """Sinusoidal positions, which need no weights."""
    attention = full_heads(fields, rotary=False, qkv_bias=True, output_bias=True)
    block = Mlp(fields.count("intermediate_size"), gated=False, bias=True)
    return decoder(fields, (Layer(attention, block, norm_bias=True),) * fields.layer_count(), tied=True)


def _biogpt(fields: Fields) -> ModelConfig:
    return _learned_positions(fields, Mlp(fields.count("intermediate_size"), gated=False, bias=True), 2)


def _jais(fields: Fields) -> ModelConfig:
    """GPT-2 with ALiBi and a gated feed-forward block (arXiv:2308.16149)."""
    alibi = fields.data.get("position_embedding_type") == "alibi"
    attention = full_heads(fields, rotary=False, qkv_bias=True, output_bias=True, alibi=alibi)
    block = Mlp(_four_times(fields), gated=fields.data.get("activation_function") == "swiglu", bias=True)
    positions = 0 if alibi else fields.count("max_position_embeddings")
    layer = Layer(attention, block, norm_bias=True)
    return decoder(fields, (layer,) * fields.layer_count(), tied=True, positions=positions)


FAMILIES = {
    "OpenAIGPTLMHeadModel": _gpt1,
    "GPT2LMHeadModel": _gpt2,
    "GPTNeoForCausalLM": _gpt_neo,
    "GPTBigCodeForCausalLM": _gpt_bigcode,
    "OPTForCausalLM": _opt,
    "XGLMForCausalLM": _xglm,
    "BioGptForCausalLM": _biogpt,
    "JAISLMHeadModel": _jais,
}

MODEL_TYPES = {
    "openai-gpt": "OpenAIGPTLMHeadModel",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neo": "GPTNeoForCausalLM",
    "gpt_bigcode": "GPTBigCodeForCausalLM",
    "opt": "OPTForCausalLM",
    "xglm": "XGLMForCausalLM",
    "biogpt": "BioGptForCausalLM",
    "jais": "JAISLMHeadModel",
}
