"""DeepSeek V4: attention to a window and to compressed tokens, experts in each layer, a residual of several streams."""

from __future__ import annotations

import dataclasses

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, layer_kinds, stack
from jaxperf.io.families.experts import mixed_streams, predicted_layers, with_shared_experts
from jaxperf.models.config import CompressedAttention, Indexer, ModelConfig, Quantization

KINDS = {
    "sliding_attention": None,
    "compressed_sparse_attention": "compress_rate_csa",
    "heavily_compressed_attention": "compress_rate_hca",
}
RATIOS = {"compress_rate_csa": 4, "compress_rate_hca": 128}
NOT_EXPERTS = ("self_attn", "shared_experts")


def _deepseek_v4(fields: Fields) -> ModelConfig:
    """Tokens choose the experts of the first layers by what they are, without a correction of the choice."""
    kinds, count = _kinds(fields), fields.layer_count()
    mixers = {kind: _attention(fields, kind) for kind in set(kinds) | {"sliding_attention"}}
    corrected, hashed = (with_shared_experts(fields, correction_bias=each) for each in (True, False))
    first = _hashed(fields)
    streams, hidden = fields.count_or("hc_mult", 4), fields.count("hidden_size")
    blocks = [hashed if each else corrected for each in first]
    around = mixed_streams(streams, hidden, streams * (streams + 2), 3)
    layers = stack([mixers[kind] for kind in kinds[:count]], blocks, **around)
    last = stack([mixers[(kinds[count:] or ["sliding_attention"])[0]]], [corrected], **around)
    further = predicted_layers(fields, last)
    model = decoder(fields, layers, mtp_layers=further, other_parameters=streams * (streams * hidden + 1) + 1)
    return _with_narrow_experts(fields, model)


def _kinds(fields: Fields) -> list[str]:
    """`layer_types`, or `compress_ratios` with a number for each layer and each that predicts further tokens."""
    kinds = layer_kinds(fields, tuple(KINDS))
    if kinds is not None:
        return kinds
    ratios, count = fields.listing("compress_ratios", int), fields.layer_count()
    if ratios is None or len(ratios) < count:
        raise InputError(f"layer_types and compress_ratios are missing; one must say for {count} layers what they see.")
    names = {0: "sliding_attention"} | {
        _ratio(fields, kind): kind for kind, field in KINDS.items() if field is not None
    }
    unknown = set(ratios) - set(names)
    if unknown:
        raise InputError(f"compress_ratios contains {min(unknown)}; it may contain {', '.join(map(str, names))}.")
    return [names[ratio] for ratio in ratios]


def _ratio(fields: Fields, kind: str) -> int:
    field = KINDS[kind]
    assert field is not None
    return fields.nested("compress_rates").optional_count(kind) or fields.optional_count(field) or RATIOS[field]


def _hashed(fields: Fields) -> list[bool]:
    count = fields.layer_count()
    kinds = fields.listing("mlp_layer_types", str, count)
    if kinds is not None:
        return [kind == "hash_moe" for kind in kinds]
    first = fields.count_or("num_hash_layers", 3, smallest=0)
    return [index < first for index in range(count)]


def _attention(fields: Fields, kind: str) -> CompressedAttention:
    return CompressedAttention(
        heads=fields.count("num_attention_heads"),
        head_dim=fields.count("head_dim"),
        rope_dim=fields.optional_count("qk_rope_head_dim", smallest=0) or 64,
        q_rank=fields.count("q_lora_rank"),
        window=fields.count("sliding_window"),
        groups=fields.count("o_groups"),
        output_rank=fields.count("o_lora_rank"),
        ratio=None if kind == "sliding_attention" else _ratio(fields, kind),
        indexer=_indexer(fields) if kind == "compressed_sparse_attention" else None,
    )


def _indexer(fields: Fields) -> Indexer:
    return Indexer(fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk"))


def _with_narrow_experts(fields: Fields, model: ModelConfig) -> ModelConfig:
    """`expert_dtype` "fp4" in an FP8 checkpoint: routed experts in MXFP4, multiplied with fp8 activations."""
    rest = model.quantization
    if rest is None or fields.data.get("expert_dtype") != "fp4":
        return model
    others = (dataclasses.replace(rest, excluded=(), targets=NOT_EXPERTS),)
    experts = Quantization("fp8", "mxfp4_fp8", 4, 32, "e8m0", activations="fp8")
    whole = dataclasses.replace(experts, others=others, excluded=rest.excluded, unquantized=rest.unquantized)
    return dataclasses.replace(model, quantization=whole, weight_format=whole.weights)


FAMILIES = {"DeepseekV4ForCausalLM": _deepseek_v4}

MODEL_TYPES = {"deepseek_v4": "DeepseekV4ForCausalLM"}
