"""Hybrids of attention and linear attention or short convolutions: MiniMax-01, Kimi Linear, LFM2."""

from __future__ import annotations

import dataclasses

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    biased_attention,
    decoder,
    gated_mlp,
    grouped_attention,
    layer_kinds,
    routed,
    sparse_where,
    stack,
)
from jaxperf.io.families.experts import first_dense, with_shared_experts
from jaxperf.io.families.latent import latent_attention
from jaxperf.models.checks import check_count
from jaxperf.models.config import KimiDelta, LightningAttention, Mixer, Mlp, ModelConfig, ShortConv


def _minimax(fields: Fields) -> ModelConfig:
    """MiniMax-01 and M1 (arXiv:2501.08313): `attn_type_list` has 1 for softmax and 0 for lightning attention."""
    count = fields.layer_count()
    kinds = layer_kinds(fields, ("full_attention", "linear_attention"))
    if kinds is None:
        listed = fields.listing("attn_type_list", int, count)
        if listed is None:
            raise InputError("layer_types and attn_type_list are missing; one must say which layers attend fully.")
        kinds = ["full_attention" if kind == 1 else "linear_attention" for kind in listed]
    attention = grouped_attention(fields, multi_head=True)
    lightning = LightningAttention(attention.heads, attention.head_dim, fields.count_or("block_size", 256))
    shared = fields.optional_count("shared_expert_intermediate_size", smallest=0) or 0
    moe = routed(fields, "intermediate_size", shared_intermediate=shared)
    return decoder(fields, stack([attention if k == "full_attention" else lightning for k in kinds], (moe,) * count))


def _kimi_linear(fields: Fields) -> ModelConfig:
    """Three layers of Kimi delta attention, then one of latent attention without rotary positions."""
    count, nested = fields.layer_count(), fields.nested("linear_attn_config")
    kinds = layer_kinds(fields, ("full_attention", "linear_attention"))
    if kinds is None:
        full = [check_count("An item of full_attn_layers", one, 1, count) for one in _full_layers(nested)]
        kinds = ["full_attention" if index + 1 in full else "linear_attention" for index in range(count)]
    delta, latent = kimi_delta(fields, heads=32), latent_attention(fields, rotary=False)
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True))
    return decoder(fields, stack([latent if kind == "full_attention" else delta for kind in kinds], blocks))


def kimi_delta(fields: Fields, heads: int) -> KimiDelta:
    """Kimi delta attention by `linear_attn_config` or by fields beside it; `heads` are those of the class."""
    nested = fields.nested("linear_attn_config")
    return KimiDelta(
        nested.optional_count("num_heads") or fields.count_or("linear_num_heads", heads),
        nested.optional_count("head_dim") or fields.count_or("linear_head_dim", 128),
        nested.optional_count("conv_kernel") or fields.count_or("conv_kernel", 4),
    )


def _full_layers(nested: Fields) -> list[int]:
    """Numbers of the layers with latent attention, counted from 1."""
    listed = nested.listing("full_attn_layers", int)
    if listed is None:
        raise InputError("linear_attn_config.full_attn_layers is missing; it must list the layers, counted from 1.")
    return listed


def _lfm2_kinds(fields: Fields) -> list[bool]:
    """True for the attention layers."""
    kinds = layer_kinds(fields, ("full_attention", "conv"))
    if kinds is not None:
        return [kind == "full_attention" for kind in kinds]
    listed = fields.listing("full_attn_idxs", int)
    if listed is None:
        raise InputError("layer_types and full_attn_idxs are missing; one must say which layers attend.")
    return [index in listed for index in range(fields.layer_count())]


def _lfm2_width(fields: Fields) -> int:
    """The inner width: with `block_auto_adjust_ff_dim` two thirds of it, scaled, rounded up to a multiple."""
    width = fields.count("intermediate_size")
    if not fields.flag_or("block_auto_adjust_ff_dim", True):
        return width
    scale = fields.data.get("block_ffn_dim_multiplier")
    narrowed = 2 * width // 3
    if scale is not None:
        if type(scale) not in (int, float) or not 0 < scale < 1000:
            raise InputError("block_ffn_dim_multiplier must be a number above 0.")
        narrowed = int(scale * narrowed)
    step = fields.count_or("block_multiple_of", 256)
    return step * -(-narrowed // step)


def _lfm2_mixers(fields: Fields) -> list[Mixer]:
    conv = ShortConv(fields.count("hidden_size"), fields.count_or("conv_L_cache", 3), fields.flag("conv_bias", False))
    attention = grouped_attention(fields, qk_norm=True)
    return [attention if one else conv for one in _lfm2_kinds(fields)]


def _lfm2(fields: Fields) -> ModelConfig:
    """Gated short convolutions between layers of attention (arXiv:2511.23404)."""
    mixers = _lfm2_mixers(fields)
    return decoder(fields, stack(mixers, (Mlp(_lfm2_width(fields)),) * len(mixers)), tied=True)


def _lfm3(fields: Fields) -> ModelConfig:
    """Windowed attention as well, a gate for each head, and norms around each block."""
    gate = fields.flag("use_attention_gate", True)
    attention = biased_attention(fields, multi_head=False, head_dim=128, qk_norm=True, head_gate=gate)
    window = dataclasses.replace(attention, window=fields.count_or("sliding_window", 256))
    conv = ShortConv(fields.count("hidden_size"), fields.count_or("conv_L_cache", 7), fields.flag("conv_bias", False))
    mixers: dict[str, Mixer] = {"full_attention": attention, "sliding_attention": window, "conv": conv}
    kinds = layer_kinds(fields, tuple(mixers))
    if kinds is None:
        raise InputError("layer_types is missing; it must say which layers attend.")
    block = gated_mlp(fields)
    norms = 4 if fields.flag_or("use_sandwich_norm", True) else 2
    return decoder(fields, stack([mixers[kind] for kind in kinds], (block,) * len(kinds), norms=norms), tied=True)


def _lfm2_moe(fields: Fields) -> ModelConfig:
    mixers = _lfm2_mixers(fields)
    first = fields.count_or("num_dense_layers", 2, smallest=0)
    moe = routed(fields, correction_bias=fields.flag("use_expert_bias", True))
    blocks = sparse_where(fields, moe, [index >= first for index in range(len(mixers))])
    return decoder(fields, stack(mixers, blocks), tied=True)


FAMILIES = {
    "MiniMaxForCausalLM": _minimax,
    "MiniMaxText01ForCausalLM": _minimax,
    "MiniMaxM1ForCausalLM": _minimax,
    "KimiLinearForCausalLM": _kimi_linear,
    "Lfm2ForCausalLM": _lfm2,
    "Lfm2MoeForCausalLM": _lfm2_moe,
    "Lfm3ForCausalLM": _lfm3,
}

MODEL_TYPES = {
    "minimax": "MiniMaxForCausalLM",
    "minimax_text_01": "MiniMaxText01ForCausalLM",
    "MiniMaxText01": "MiniMaxText01ForCausalLM",
    "MiniMaxM1": "MiniMaxM1ForCausalLM",
    "minimax_m1": "MiniMaxM1ForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "lfm3": "Lfm3ForCausalLM",
}
