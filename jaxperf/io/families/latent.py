"""Multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, Mistral 4, MiniCPM 3, GLM with sparse attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, gated_mlp, stack
from jaxperf.io.families.experts import first_dense, predicted_layers, with_shared_experts
from jaxperf.models.config import Indexer, Mla, ModelConfig


def latent_attention(fields: Fields, **kind: Any) -> Mla:
    """Latent attention from the fields that DeepSeek V2 introduced; a null `q_lora_rank` means uncompressed queries."""
    return Mla(
        heads=fields.count("num_attention_heads"),
        q_rank=fields.optional_count("q_lora_rank"),
        kv_rank=fields.count("kv_lora_rank"),
        nope_dim=fields.count("qk_nope_head_dim", smallest=0),
        rope_dim=fields.count("qk_rope_head_dim", smallest=0),
        value_dim=fields.count("v_head_dim"),
        bias=fields.flag("attention_bias", False),
        **kind,
    )


def _latent_moe(fields: Fields, mixers: Sequence[Mla], correction: bool = True) -> ModelConfig:
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=correction))
    layers = stack(mixers, blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _deepseek_v2(fields: Fields) -> ModelConfig:
    return _latent_moe(fields, (latent_attention(fields),) * fields.layer_count(), correction=False)


def _deepseek_v3(fields: Fields) -> ModelConfig:
    return _latent_moe(fields, (latent_attention(fields),) * fields.layer_count())


def _mistral4(fields: Fields) -> ModelConfig:
    """Mistral Small 4: as DeepSeek V2, without dense layers unless `first_k_dense_replace` says so."""
    blocks = first_dense(fields, with_shared_experts(fields), default=0)
    return decoder(fields, stack((latent_attention(fields),) * len(blocks), blocks))


def _sparse(fields: Fields) -> ModelConfig:
    """DeepSeek V3.2 and GLM 5: an indexer chooses the tokens a query sees (arXiv:2512.02556), in GLM 5 for some of the
    following layers too."""
    count = fields.layer_count()
    kinds = fields.listing("indexer_types", str, count) or ["full"] * count
    if set(kinds) - {"full", "shared"} or kinds[0] == "shared":
        raise InputError("indexer_types must have full or shared for each layer, and full for the first.")
    sizes = fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk")
    mixers = {kind: latent_attention(fields, indexer=Indexer(*sizes, shared=kind == "shared")) for kind in set(kinds)}
    return _latent_moe(fields, [mixers[kind] for kind in kinds])


def _dense(fields: Fields) -> ModelConfig:
    block = gated_mlp(fields, bias=fields.flag("mlp_bias", False))
    layers = stack((latent_attention(fields),) * fields.layer_count(), (block,) * fields.layer_count())
    return decoder(fields, layers, tied=True)


FAMILIES = {
    "DeepseekV2ForCausalLM": _deepseek_v2,
    "DeepseekV3ForCausalLM": _deepseek_v3,
    "DeepseekV32ForCausalLM": _sparse,
    "GlmMoeDsaForCausalLM": _sparse,
    "Glm4MoeLiteForCausalLM": _deepseek_v3,
    "Mistral4ForCausalLM": _mistral4,
    "MiniCPM3ForCausalLM": _dense,
    "YoutuForCausalLM": _dense,
}

MODEL_TYPES = {
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "mistral4": "Mistral4ForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM",
    "youtu": "YoutuForCausalLM",
}
