"""Ling and Ring: BailingMoe (arXiv:2503.05139) and its second version (arXiv:2510.22115), with shared experts; hybrids
with linear attention in most layers (arXiv:2510.19338), from version 2.5 on beside latent attention."""

from __future__ import annotations

from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, grouped_attention, routed, stack
from jaxperf.io.families.experts import first_dense, predicted_layers
from jaxperf.io.families.latent import latent_attention
from jaxperf.io.families.qwen import full_layers
from jaxperf.models.config import Attention, FeedForward, KimiDelta, LightningAttention, Mixer, ModelConfig


def _attention(fields: Fields, qk_norm: bool) -> Attention:
    bias = fields.flag("use_bias", False)
    return grouped_attention(
        fields,
        multi_head=True,
        qkv_bias=bias or fields.flag("use_qkv_bias", False),
        output_bias=bias,
        qk_norm=fields.flag("use_qk_norm", qk_norm),
    )


def _blocks(fields: Fields, **router: Any) -> tuple[FeedForward, ...]:
    """First dense layers, then experts; the shared ones are as wide as the others unless the config says otherwise."""
    shared = fields.optional_count("num_shared_experts", smallest=0) or 0
    width = fields.optional_count("shared_expert_intermediate_size") or fields.count("moe_intermediate_size")
    return first_dense(fields, routed(fields, shared_intermediate=shared * width, **router), default=0)


def _corrected_blocks(fields: Fields) -> tuple[FeedForward, ...]:
    """With a correction of the choice of experts."""
    return _blocks(fields, correction_bias=fields.flag("moe_router_enable_expert_bias", True))


def _bailing_v1(fields: Fields) -> ModelConfig:
    blocks = _blocks(fields)
    layers = stack((_attention(fields, qk_norm=False),) * len(blocks), blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _bailing_v2(fields: Fields) -> ModelConfig:
    """Norms of queries and keys."""
    blocks = _corrected_blocks(fields)
    layers = stack((_attention(fields, qk_norm=True),) * len(blocks), blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _bailing_linear(fields: Fields) -> ModelConfig:
    """Ring-linear 2.0: grouped-query attention in the last layer of each group."""
    return _hybrid(fields, _attention(fields, qk_norm=True))


def _bailing_v25(fields: Fields) -> ModelConfig:
    """Ling and Ring 2.5: latent attention in the last layer of each group."""
    return _hybrid(fields, latent_attention(fields))


def _bailing_v3(fields: Fields) -> ModelConfig:
    """Ling 3.0: Kimi delta attention with whole gate matrices, and gated latent attention in the last layer of each
    group."""
    heads, step = fields.count("num_attention_heads"), fields.count("layer_group_size")
    width, taps = fields.optional_count("linear_head_dim") or fields.count("head_dim"), fields.count("conv_kernel")
    delta, latent = KimiDelta(heads, width, taps, full=True), latent_attention(fields, head_gate=True)
    blocks = _corrected_blocks(fields)
    mixers = [latent if full else delta for full in full_layers(fields, step)]
    further = predicted_layers(fields, stack([latent], blocks[-1:]))
    return decoder(fields, stack(mixers, blocks), mtp_layers=further)


def _hybrid(fields: Fields, full: Mixer) -> ModelConfig:
    """Linear attention with as many keys as queries in all but the last of each `layer_group_size` layers; what is left
    over at the end attends fully. Layers that predict further tokens attend fully too."""
    if fields.flag("use_qkv_bias", False) or fields.flag("use_bias", False):
        raise InputError("use_qkv_bias or use_bias is true; linear attention is described without biases only.")
    heads, width = fields.count("num_attention_heads"), fields.optional_count("head_dim")
    width = fields.count("hidden_size") // heads if width is None else width
    linear = LightningAttention(heads, width, rotary=True, qk_norm=fields.flag("use_qk_norm", True))
    blocks, step = _corrected_blocks(fields), fields.count("layer_group_size")
    whole = len(blocks) - len(blocks) % step
    mixers = [full if (index + 1) % step == 0 or index >= whole else linear for index in range(len(blocks))]
    return decoder(fields, stack(mixers, blocks), mtp_layers=predicted_layers(fields, stack([full], blocks[-1:])))


FAMILIES = {
    "BailingMoeForCausalLM": _bailing_v1,
    "BailingMoeV2ForCausalLM": _bailing_v2,
    "BailingMoeLinearForCausalLM": _bailing_linear,
    "BailingMoeLinearV2ForCausalLM": _bailing_linear,
    "BailingMoeV2_5ForCausalLM": _bailing_v25,
    "BailingMoeV3ForCausalLM": _bailing_v3,
    "BailingHybridForCausalLM": _bailing_v3,
}

MODEL_TYPES = {  # both first versions say bailing_moe, which tells none
    "bailing_moe_v2": "BailingMoeV2ForCausalLM",
    "bailing_moe_linear": "BailingMoeLinearV2ForCausalLM",
    "bailing_moe_v2_5": "BailingMoeV2_5ForCausalLM",
}
