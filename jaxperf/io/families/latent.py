"""Multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, Mistral 4, MiniCPM 3, GLM with sparse attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, gated_mlp, rotary_layers, stack
from jaxperf.io.families.experts import first_dense, predicted_layers, with_shared_experts
from jaxperf.models.config import Indexer, Layer, Mla, ModelConfig, Moe


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


def _ax_k1(fields: Fields) -> ModelConfig:
    """A.X K1: as DeepSeek V3, with a norm more after the experts of a layer."""
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True))
    mixer = latent_attention(fields)
    layers = tuple(Layer(mixer, block, norms=3 if isinstance(block, Moe) else 2) for block in blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _mistral4(fields: Fields) -> ModelConfig:
    """Mistral Small 4: as DeepSeek V2, without dense layers unless `first_k_dense_replace` says so."""
    blocks = first_dense(fields, with_shared_experts(fields), default=0)
    return decoder(fields, stack((latent_attention(fields),) * len(blocks), blocks))


def _sparse(fields: Fields) -> ModelConfig:
    """DeepSeek V3.2 and GLM 5: an indexer chooses the tokens a query sees (arXiv:2512.02556), in GLM 5 for some of the
    following layers too."""
    return _latent_moe(fields, [latent_attention(fields, indexer=each) for each in indexers(fields)])


def indexers(fields: Fields, pool: int = 1) -> list[Indexer]:
    """That of each layer: `indexer_types`, else `index_topk_pattern` ("FSSF"), else every `index_topk_freq`-th from
    `index_skip_topk_offset` on, and all before it, choose for themselves."""
    count = fields.layer_count()
    kinds, pattern = fields.listing("indexer_types", str, count), fields.data.get("index_topk_pattern")
    if kinds is None and isinstance(pattern, str):
        kinds = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    if kinds is None:
        step = fields.optional_count("index_topk_freq") or 1
        offset = fields.optional_count("index_skip_topk_offset", smallest=0)
        first = (2 if offset is None else offset) - 1
        kinds = ["shared" if max(index - first, 0) % step else "full" for index in range(count)]
    if len(kinds) != count or set(kinds) - {"full", "shared"} or kinds[0] == "shared":
        raise InputError("indexer_types must have full or shared for each layer, and full for the first.")
    sizes = fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk")
    return [Indexer(*sizes, shared=kind == "shared", pool=pool) for kind in kinds]


def _mistral_large4(fields: Fields) -> ModelConfig:
    """Queries and the indexer's are made of what the layer reads; layers without positions spend all on the rest."""
    count = fields.layer_count()
    sources = fields.listing("kv_source_layers", int, count)
    if sources is not None and sources != list(range(count)):
        raise InputError(
            "kv_source_layers has layers that read another's cache; only caches of their own are described."
        )
    plain = latent_attention(dataclasses.replace(fields, data={**fields.data, "q_lora_rank": None}))
    still = dataclasses.replace(plain, nope_dim=plain.nope_dim + plain.rope_dim, rope_dim=0)
    mixers = [
        dataclasses.replace(plain if turned else still, indexer=indexer)
        for turned, indexer in zip(rotary_layers(fields), indexers(fields), strict=True)
    ]
    blocks = first_dense(fields, with_shared_experts(fields), default=1)
    layers = tuple(
        Layer(mixer, block, other_parameters=_scales(mixer, fields.count("hidden_size")))
        for mixer, block in zip(mixers, blocks, strict=True)
    )
    return decoder(fields, layers)


def _scales(mixer: Mla, hidden: int) -> int:
    """A scale and a bias for the scores of each head, of the indexer's too, and the norm of what its queries are of."""
    own = mixer.own_indexer
    return 2 * mixer.heads + (2 * own.heads + 2 * hidden if own else 0)


def _dense(fields: Fields) -> ModelConfig:
    block = gated_mlp(fields, bias=fields.flag("mlp_bias", False))
    layers = stack((latent_attention(fields),) * fields.layer_count(), (block,) * fields.layer_count())
    return decoder(fields, layers, tied=True)


FAMILIES = {
    "DeepseekV2ForCausalLM": _deepseek_v2,
    "DeepseekV3ForCausalLM": _deepseek_v3,
    "DeepseekV32ForCausalLM": _sparse,
    "AXK1ForCausalLM": _ax_k1,
    "GlmMoeDsaForCausalLM": _sparse,
    "Glm4MoeLiteForCausalLM": _deepseek_v3,
    "Mistral4ForCausalLM": _mistral4,
    "MistralLarge4ForCausalLM": _mistral_large4,
    "MiniCPM3ForCausalLM": _dense,
    "YoutuForCausalLM": _dense,
}

MODEL_TYPES = {
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "axk1": "AXK1ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "mistral4": "Mistral4ForCausalLM",
    "mistral_large4_text": "MistralLarge4ForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM",
    "youtu": "YoutuForCausalLM",
}
