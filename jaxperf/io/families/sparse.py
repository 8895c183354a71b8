"""Grouped-query attention with experts: Llama 4, gpt-oss, DBRX, Arctic, Grok-1, DeepSeek V1, MiniMax M2 and others."""

from __future__ import annotations

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    biased_attention,
    decoder,
    every,
    full_every,
    full_heads,
    gated_mlp,
    grouped_attention,
    indices,
    kv_head_count,
    layer_kinds,
    rotary_layers,
    rotary_model,
    routed,
    sparse_where,
    stack,
    top_k,
    varied,
)
from jaxperf.io.families.experts import first_dense, predicted_layers, with_shared_experts
from jaxperf.models.config import Attention, Layer, Mlp, ModelConfig, Moe


def _llama4(fields: Fields) -> ModelConfig:
    """Layers with rotary positions attend within chunks, the others to everything; one expert and a shared one."""
    count = fields.layer_count()
    kinds = layer_kinds(fields, ("chunked_attention", "full_attention"))
    rotary = rotary_layers(fields)
    chunked = [kind == "chunked_attention" for kind in kinds] if kinds else rotary
    width = fields.count_or("attention_chunk_size", 8192)
    mixers = varied(biased_attention(fields), rotary=rotary, chunk=[width if one else None for one in chunked])
    moe = routed(fields, "intermediate_size", shared_intermediate=fields.count("intermediate_size"))
    step = fields.count_or("interleave_moe_layer_step", 1)
    sparse = indices(fields, "moe_layers") or [index for index, one in enumerate(every(step, count)) if one]
    dense = Mlp(fields.count("intermediate_size_mlp")) if len(sparse) < count else moe
    return decoder(fields, stack(mixers, [moe if index in sparse else dense for index in range(count)]))


def _gpt_oss(fields: Fields) -> ModelConfig:
    """Every other layer is windowed; biases everywhere, a learned logit in each head's softmax."""
    bias = fields.flag_or("attention_bias", True)
    attention = grouped_attention(fields, head_dim=64, qkv_bias=bias, output_bias=bias, sinks=True)
    moe = routed(fields, "intermediate_size", bias=True, router_bias=True)
    return rotary_model(fields, attention, moe, full_every(fields, 2, fields.count_or("sliding_window", 128)))


def _dbrx(fields: Fields) -> ModelConfig:
    """Sizes of attention and experts are in `attn_config` and `ffn_config`; LayerNorm without biases."""
    inner, blocks = fields.nested("attn_config"), fields.nested("ffn_config")
    experts = blocks.count("num_experts")
    moe = Moe(experts, top_k(blocks, experts), blocks.count("intermediate_size"))
    kv_heads = kv_head_count(inner, fields.count("num_attention_heads"), multi_head=False)
    return rotary_model(fields, full_heads(fields, kv_heads), moe)


def _arctic(fields: Fields) -> ModelConfig:
    """A dense block as wide as the hidden size beside the experts, with a norm of its own."""
    beside = fields.flag("parallel_attn_mlp_res", False)
    moe = routed(fields, "intermediate_size", shared_intermediate=fields.count("hidden_size") if beside else 0)
    count, step = fields.layer_count(), fields.count_or("moe_layer_frequency", 2)
    attention = biased_attention(fields)
    sparse, dense = Layer(attention, moe, norms=3 if beside else 2), Layer(attention, gated_mlp(fields))
    return decoder(fields, tuple(sparse if one else dense for one in every(step, count)))


def _grok1(fields: Fields) -> ModelConfig:
    """Norms before and after each block (github.com/xai-org/grok-1)."""
    return rotary_model(fields, biased_attention(fields), routed(fields, "intermediate_size"), tied=True, norms=4)


def _deepseek_v1(fields: Fields) -> ModelConfig:
    return rotary_model(fields, biased_attention(fields), first_dense(fields, with_shared_experts(fields), default=0))


def _granite_moe(fields: Fields) -> ModelConfig:
    shared = fields.optional_count("shared_expert_intermediate_size", smallest=0) or 0
    moe = routed(fields, "intermediate_size", shared_intermediate=shared)
    return rotary_model(fields, biased_attention(fields), moe)


def _aria(fields: Fields) -> ModelConfig:
    """The language part of Aria (arXiv:2410.05993): experts in all layers, shared ones of the same width beside."""
    shared = fields.count_or("num_shared_experts", 2, smallest=0) * fields.count("intermediate_size")
    return rotary_model(
        fields, biased_attention(fields), routed(fields, "intermediate_size", shared_intermediate=shared)
    )


def _hunyuan_moe(fields: Fields) -> ModelConfig:
    """HunYuan Large and A13B: shared experts; in the Large every other layer reuses the keys and values before it."""
    for listed in ("num_experts_per_tok", "moe_intermediate_size", "num_shared_experts"):
        fields = fields.uniform(listed)
    name = "intermediate_size" if fields.find("moe_intermediate_size") is None else "moe_intermediate_size"
    shared = 1 if fields.flag("use_mixed_mlp_moe", True) else 0
    shared *= fields.count_or("num_shared_experts", 1, smallest=0)
    moe = routed(fields, name, shared_intermediate=shared * fields.count(name))
    count = fields.layer_count()
    share = fields.optional_count("cla_share_factor") if fields.flag("use_cla", False) else None
    reused = [index % (share or 1) != 0 for index in range(count)]
    mixers = varied(biased_attention(fields, qk_norm=fields.flag("use_qk_norm", True)), shared_kv=reused)
    return decoder(fields, stack(mixers, (moe,) * count))


def _minimax_m2(fields: Fields) -> ModelConfig:
    """Norms over all queries and all keys."""
    attention = grouped_attention(fields, qk_norm_wide=fields.flag("use_qk_norm", True))
    return rotary_model(fields, attention, routed(fields, "intermediate_size", correction_bias=True))


def _corrected(fields: Fields, attention: Attention, first: int) -> ModelConfig:
    """First dense layers, then experts with a correction of the choice and shared ones."""
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True), first)
    layers = stack((attention,) * len(blocks), blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _solar_open(fields: Fields) -> ModelConfig:
    attention = grouped_attention(fields, head_dim=128, qkv_bias=fields.flag("attention_bias", False))
    return _corrected(fields, attention, first=0)


def _dots1(fields: Fields) -> ModelConfig:
    return _corrected(fields, biased_attention(fields, qk_norm=True), first=0)


def _hy_v3(fields: Fields) -> ModelConfig:
    attention = biased_attention(fields, multi_head=False, head_dim=128, qk_norm=True)
    return _corrected(fields, attention, first=1)


def _afmoe(fields: Fields) -> ModelConfig:
    """Trinity: gated attention, norms around each block; windowed layers have rotary positions, full ones have none."""
    step, window = fields.count_or("global_attn_every_n_layers", 4), fields.count_or("sliding_window", 1024)
    widths = full_every(fields, step, window)
    attention = biased_attention(fields, qk_norm=True, output_gate=True)
    mixers = varied(attention, window=widths, rotary=[width is not None for width in widths])
    first = fields.count_or("num_dense_layers", 1, smallest=0)
    moe = with_shared_experts(fields, correction_bias=True)
    return decoder(fields, stack(mixers, sparse_where(fields, moe, [i >= first for i in range(len(mixers))]), norms=4))


FAMILIES = {
    "Llama4ForCausalLM": _llama4,
    "GptOssForCausalLM": _gpt_oss,
    "DbrxForCausalLM": _dbrx,
    "ArcticForCausalLM": _arctic,
    "Grok1ModelForCausalLM": _grok1,
    "Grok1ForCausalLM": _grok1,
    "DeepseekForCausalLM": _deepseek_v1,
    "GraniteMoeForCausalLM": _granite_moe,
    "GraniteMoeSharedForCausalLM": _granite_moe,
    "AriaTextForCausalLM": _aria,
    "HunYuanForCausalLM": _hunyuan_moe,
    "HunYuanMoEV1ForCausalLM": _hunyuan_moe,
    "MiniMaxM2ForCausalLM": _minimax_m2,
    "SolarOpenForCausalLM": _solar_open,
    "Dots1ForCausalLM": _dots1,
    "HYV3ForCausalLM": _hy_v3,
    "AfmoeForCausalLM": _afmoe,
}

MODEL_TYPES = {
    "llama4_text": "Llama4ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "dbrx": "DbrxForCausalLM",
    "arctic": "ArcticForCausalLM",
    "grok-1": "Grok1ModelForCausalLM",
    "deepseek": "DeepseekForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM",
    "aria_text": "AriaTextForCausalLM",
    "hunyuan": "HunYuanForCausalLM",
    "hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "solar_open": "SolarOpenForCausalLM",
    "dots1": "Dots1ForCausalLM",
    "hy_v3": "HYV3ForCausalLM",
    "afmoe": "AfmoeForCausalLM",
}
