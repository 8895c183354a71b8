"""Ling and Ring: BailingMoe (arXiv:2503.05139) and its second version (arXiv:2510.22115), with shared experts."""

from __future__ import annotations

from typing import Any

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, grouped_attention, routed, stack
from jaxperf.io.families.experts import first_dense, predicted_layers
from jaxperf.models.config import ModelConfig


def _bailing(fields: Fields, qk_norm: bool, **router: Any) -> ModelConfig:
    """First dense layers, then experts; the shared ones are as wide as the others unless the config says otherwise."""
    bias = fields.flag("use_bias", False)
    attention = grouped_attention(
        fields,
        multi_head=True,
        qkv_bias=bias or fields.flag("use_qkv_bias", False),
        output_bias=bias,
        qk_norm=fields.flag("use_qk_norm", qk_norm),
    )
    shared = fields.optional_count("num_shared_experts", smallest=0) or 0
    width = fields.optional_count("shared_expert_intermediate_size") or fields.count("moe_intermediate_size")
    blocks = first_dense(fields, routed(fields, shared_intermediate=shared * width, **router), default=0)
    layers = stack((attention,) * len(blocks), blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _bailing_v1(fields: Fields) -> ModelConfig:
    return _bailing(fields, qk_norm=False)


def _bailing_v2(fields: Fields) -> ModelConfig:
    """Norms of queries and keys, and a correction of the choice of experts."""
    corrected = fields.flag("moe_router_enable_expert_bias", True)
    return _bailing(fields, qk_norm=True, correction_bias=corrected)


FAMILIES = {
    "BailingMoeForCausalLM": _bailing_v1,
    "BailingMoeV2ForCausalLM": _bailing_v2,
}

MODEL_TYPES = {"bailing_moe_v2": "BailingMoeV2ForCausalLM"}  # both versions say bailing_moe, which tells none
