"""Llama, Mistral and what is built like them: pre-norm, RMSNorm, rotary grouped-query attention, SwiGLU."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    Windows,
    biased_attention,
    decoder,
    every,
    full_heads,
    gated_mlp,
    grouped_attention,
    one_window,
    rotary_layers,
    rotary_model,
    routed,
    stack,
    varied,
    windows,
)
from jaxperf.models.config import ModelConfig


def _llama(fields: Fields) -> ModelConfig:
    if fields.find("sliding_window") is not None and fields.find("layer_types") is None:
        fields.notes.append("sliding_window is ignored; LlamaForCausalLM attends to the whole context.")
    attention = biased_attention(fields)
    return rotary_model(fields, attention, gated_mlp(fields, bias=fields.flag("mlp_bias", False)))


def _mistral_windows(fields: Fields) -> Windows:
    """One window for all layers; null, unlike absence, means none."""
    window = fields.optional_count("sliding_window")
    if "sliding_window" not in fields.data and fields.find("layer_types") is None:
        window = fields.count_or("sliding_window", 4096)
    return (window,) * fields.layer_count()


def _mistral(fields: Fields) -> ModelConfig:
    return rotary_model(fields, grouped_attention(fields), gated_mlp(fields), _mistral_windows(fields))


def _ministral3(fields: Fields) -> ModelConfig:
    return rotary_model(fields, grouped_attention(fields, head_dim=128), gated_mlp(fields), one_window(fields))


def _mixtral(fields: Fields) -> ModelConfig:
    return rotary_model(fields, grouped_attention(fields), routed(fields, "intermediate_size"), one_window(fields))


def _internlm(fields: Fields) -> ModelConfig:
    """InternLM 1 to 3: `bias` on all of the attention, in InternLM 3 `qkv_bias` on its inputs."""
    bias = fields.flag("bias", False)
    attention = grouped_attention(fields, multi_head=True, qkv_bias=fields.flag("qkv_bias", bias), output_bias=bias)
    return rotary_model(fields, attention, gated_mlp(fields))


def _baichuan(fields: Fields) -> ModelConfig:
    """The 7B has rotary positions and `max_position_embeddings`; the 13B has ALiBi and `model_max_length` only."""
    alibi = fields.data.get("max_position_embeddings") is None
    if alibi:
        fields.notes.append("max_position_embeddings is absent; ALiBi was assumed, as in the 13B models.")
    return rotary_model(fields, full_heads(fields, rotary=not alibi, alibi=alibi), gated_mlp(fields))


def _smollm3(fields: Fields) -> ModelConfig:
    """Every fourth layer has no positions."""
    attention = biased_attention(fields, multi_head=False)
    block = gated_mlp(fields, bias=fields.flag("mlp_bias", False))
    mixers = varied(attention, rotary=rotary_layers(fields))
    return decoder(fields, stack(mixers, (block,) * len(mixers)), tied=True)


def _granite(fields: Fields) -> ModelConfig:
    attention = biased_attention(fields)
    return rotary_model(fields, attention, gated_mlp(fields, bias=fields.flag("mlp_bias", False)))


def _granite_swa(fields: Fields) -> ModelConfig:
    """Windowed layers between full ones, and a learned logit in each head's softmax."""
    attention = biased_attention(fields, sinks=True)
    if fields.find("layer_types") is None:
        raise InputError("layer_types is missing; it must say which layers are windowed.")
    return rotary_model(fields, attention, gated_mlp(fields, bias=fields.flag("mlp_bias", False)), tied=True)


def _cwm(fields: Fields) -> ModelConfig:
    """A Llama whose first layer of each four attends to everything, the others within a window (arXiv:2510.02387)."""
    full = every(4, fields.layer_count(), 0)
    usual = tuple(None if one else fields.count_or("sliding_window", 8192) for one in full)
    attention, block = grouped_attention(fields, head_dim=128), gated_mlp(fields, bias=fields.flag("mlp_bias", False))
    return rotary_model(fields, attention, block, windows(fields, usual))


def _seed_oss(fields: Fields) -> ModelConfig:
    attention = grouped_attention(
        fields,
        head_dim=128,
        qkv_bias=fields.flag_or("attention_bias", True),
        output_bias=fields.flag("attention_out_bias", False),
    )
    return rotary_model(fields, attention, gated_mlp(fields, bias=fields.flag("mlp_bias", False)))


def _helium(fields: Fields) -> ModelConfig:
    bias = fields.flag("attention_bias", False)
    attention = grouped_attention(fields, head_dim=128, qkv_bias=bias)
    return rotary_model(fields, attention, gated_mlp(fields, bias=fields.flag("mlp_bias", False)))


def _ernie(fields: Fields) -> ModelConfig:
    bias = fields.flag("use_bias", False)
    attention = grouped_attention(fields, head_dim=128, multi_head=True, qkv_bias=bias, output_bias=bias)
    return rotary_model(fields, attention, gated_mlp(fields, bias=bias), tied=True)


def _hunyuan_dense(fields: Fields) -> ModelConfig:
    attention = biased_attention(fields, qk_norm=True)
    return rotary_model(fields, attention, gated_mlp(fields))


def _bitnet(fields: Fields) -> ModelConfig:
    """BitNet b1.58 (arXiv:2504.12285): norms inside the blocks, before the last projection of each."""
    attention, block = biased_attention(fields), gated_mlp(fields)
    inside = attention.heads * attention.head_dim + block.intermediate
    return rotary_model(fields, attention, block, other_parameters=inside)


def _minicpm(fields: Fields) -> ModelConfig:
    return rotary_model(fields, grouped_attention(fields, multi_head=True), gated_mlp(fields), tied=True)


FAMILIES = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "MinistralForCausalLM": _mistral,
    "Ministral3ForCausalLM": _ministral3,
    "MixtralForCausalLM": _mixtral,
    "CwmForCausalLM": _cwm,
    "YiForCausalLM": _granite,
    "InternLMForCausalLM": _internlm,
    "InternLM2ForCausalLM": _internlm,
    "InternLM3ForCausalLM": _internlm,
    "BaichuanForCausalLM": _baichuan,
    "BaiChuanForCausalLM": _baichuan,
    "SmolLM3ForCausalLM": _smollm3,
    "GraniteForCausalLM": _granite,
    "GraniteSWAForCausalLM": _granite_swa,
    "ExaoneForCausalLM": _granite,
    "SeedOssForCausalLM": _seed_oss,
    "HeliumForCausalLM": _helium,
    "Ernie4_5ForCausalLM": _ernie,
    "Ernie4_5_ForCausalLM": _ernie,
    "HunYuanDenseV1ForCausalLM": _hunyuan_dense,
    "MiniCPMForCausalLM": _minicpm,
    "BitNetForCausalLM": _bitnet,
    "BitnetForCausalLM": _bitnet,
}

MODEL_TYPES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral": "MinistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "cwm": "CwmForCausalLM",
    "Yi": "YiForCausalLM",
    "internlm": "InternLMForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "internlm3": "InternLM3ForCausalLM",
    "baichuan": "BaichuanForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "granite_docling_text": "GraniteForCausalLM",
    "granite_swa": "GraniteSWAForCausalLM",
    "exaone": "ExaoneForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
    "helium": "HeliumForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM",
    "paddleocr_vl_text": "Ernie4_5ForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "minicpm": "MiniCPMForCausalLM",
    "bitnet": "BitNetForCausalLM",
}
