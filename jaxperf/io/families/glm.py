"""ChatGLM 2 and 3, GLM 4 and its successors with experts."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, gated_mlp, grouped_attention, rotary_model, stack
from jaxperf.io.families.experts import first_dense, predicted_layers, with_shared_experts
from jaxperf.models.config import Attention, ModelConfig


def _chatglm(fields: Fields) -> ModelConfig:
    """ChatGLM 2, 3 and the first GLM 4, under the names of their own code."""
    if not fields.flag("multi_query_attention", False) or not fields.flag("rmsnorm", True):
        raise InputError("multi_query_attention is not true; only ChatGLM 2, 3 and GLM 4 are supported.")
    bias = fields.flag("add_bias_linear", False)
    attention = grouped_attention(fields, qkv_bias=bias or fields.flag("add_qkv_bias", False), output_bias=bias)
    return rotary_model(fields, attention, gated_mlp(fields, bias=bias))


def _attention(fields: Fields) -> Attention:
    return grouped_attention(fields, head_dim=128, qkv_bias=fields.flag_or("attention_bias", True))


def _glm(fields: Fields) -> ModelConfig:
    return rotary_model(fields, _attention(fields), gated_mlp(fields))


def _glm4(fields: Fields) -> ModelConfig:
    """Norms before and after each block."""
    return rotary_model(fields, _attention(fields), gated_mlp(fields), norms=4)


def _glm4_moe(fields: Fields) -> ModelConfig:
    bias, norm = fields.flag("attention_bias", False), fields.flag("use_qk_norm", False)
    attention = grouped_attention(fields, qkv_bias=bias, qk_norm=norm)
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True))
    layers = stack((attention,) * len(blocks), blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


FAMILIES = {
    "ChatGLMModel": _chatglm,
    "ChatGLMForConditionalGeneration": _chatglm,
    "GlmForCausalLM": _glm,
    "Glm4ForCausalLM": _glm4,
    "Glm4MoeForCausalLM": _glm4_moe,
}

MODEL_TYPES = {
    "chatglm": "ChatGLMModel",
    "glm": "GlmForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm4v_text": "Glm4ForCausalLM",
    "glm4v_moe_text": "Glm4MoeForCausalLM",
}
