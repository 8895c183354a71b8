"""Inkling: windowed layers between full ones, a bias of scores by distance made of each token, short convolutions."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, every, grouped_attention, kv_head_count, layer_kinds, routed
from jaxperf.io.families.experts import first_dense, with_shared_experts
from jaxperf.models.config import Attention, FeedForward, Layer, ModelConfig, Moe


def _inkling(fields: Fields) -> ModelConfig:
    """Every sixth layer sees everything; the windowed ones have heads of their own. No positions but the bias."""
    fields = _widths(fields)
    full = grouped_attention(fields, head_dim=128, rotary=False, qk_norm=True, alibi=True)
    near = _windowed(fields, full)
    dense = fields.optional_count("dense_mlp_idx", smallest=0) or 0
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True), default=dense)
    layers = tuple(
        _layer(fields, near if one else full, block) for one, block in zip(_sliding(fields), blocks, strict=True)
    )
    fields.notes.append("Of the bias by distance its projection is timed; short convolutions are in memory, untimed.")
    return decoder(fields, layers, embedding_norm=True)


def _widths(fields: Fields) -> Fields:
    """With `dense_intermediate_size`, `intermediate_size` is the width of an expert."""
    dense = fields.optional_count("dense_intermediate_size")
    if dense is None:
        return fields
    widths = {"moe_intermediate_size": fields.count("intermediate_size"), "intermediate_size": dense}
    return dataclasses.replace(fields, data={**fields.data, **widths})


def _windowed(fields: Fields, full: Attention) -> Attention:
    own = {"num_attention_heads": "swa_num_attention_heads", "num_key_value_heads": "swa_num_key_value_heads"}
    given = {name: fields.optional_count(other) for name, other in own.items()}
    sizes = dataclasses.replace(fields, data={**fields.data, **{k: v for k, v in given.items() if v is not None}})
    heads = sizes.count("num_attention_heads")
    return dataclasses.replace(
        full,
        heads=heads,
        kv_heads=kv_head_count(sizes, heads, multi_head=False),
        head_dim=fields.optional_count("swa_head_dim") or full.head_dim,
        window=fields.optional_count("sliding_window_size") or fields.count_or("sliding_window", 512),
    )


def _sliding(fields: Fields) -> list[bool]:
    """The windowed layers: by `layer_types`, else by `local_layer_ids`, else all but each sixth."""
    kinds, count = layer_kinds(fields, ("hybrid", "hybrid_sliding")), fields.layer_count()
    if kinds is not None:
        return [kind == "hybrid_sliding" for kind in kinds]
    listed = fields.listing("local_layer_ids", int)
    return [not one for one in every(6, count)] if listed is None else [index in listed for index in range(count)]


def _layer(fields: Fields, attention: Attention, block: FeedForward) -> Layer:
    """Beside the blocks: the projection to what makes the bias, with its table of distances; convolutions of keys,
    values and what both blocks make; rows of the router for the shared experts; a scale of the block."""
    hidden, rank = fields.count("hidden_size"), fields.count_or("d_rel", 16)
    reach = attention.window or fields.count_or("rel_extent", 1024)
    convolved = 2 * attention.kv_heads * attention.head_dim + 2 * hidden
    sinks = fields.count_or("num_shared_experts", 2, smallest=0) if fields.flag("shared_expert_sink", True) else 0
    routing = sinks * hidden if isinstance(block, Moe) else 0
    other = rank * reach + fields.count_or("conv_kernel_size", 4) * convolved + routing + 1
    return Layer(attention, block, other_parameters=other, projections=((hidden, attention.heads * rank),))


def _inkling2(fields: Fields) -> ModelConfig:
    """Inkling 2: gated attention with a sink made of each token, experts in all layers, no shared one; the residual
    passes through attention over its blocks, and full layers make their convolutions of each token."""
    full = grouped_attention(fields, head_dim=128, rotary=False, alibi=True, output_gate=True)
    near = _windowed(fields, full)
    moe, hidden = routed(fields, correction_bias=True), fields.count("hidden_size")
    sliding = _sliding(fields)
    layers = tuple(_layer2(fields, near if one else full, moe, index) for index, one in enumerate(sliding))
    fields.notes.append("Of sinks, biases and convolutions made of tokens the projections are timed, and nothing else.")
    padded, shown = fields.count("vocab_size"), fields.optional_count("unpadded_vocab_size")
    if shown not in (None, padded):
        fields.notes.append(f"The output head has {shown:,} rows; it was counted with the {padded:,} of the table.")
    return decoder(fields, layers, embedding_norm=True, other_parameters=hidden)


def _layer2(fields: Fields, attention: Attention, moe: Moe, index: int) -> Layer:
    """Queries of the attention over blocks of the residual: one before either block, none before the first layer, and
    three before attention in full layers, whose queries, keys and values have norms of their own."""
    hidden, rank = fields.count("hidden_size"), fields.count_or("d_rel", 16)
    taps, keys = fields.count_or("conv_kernel_size", 4), attention.kv_heads * attention.head_dim
    reach, full = fields.count_or("rel_extent", 1024), attention.window is None
    asked = 1 + (3 if full else int(index > 0))
    scales = attention.heads * (attention.head_dim + rank)
    other = asked * hidden + scales + rank * reach + taps * (2 * keys + 2 * hidden)
    beside = [(hidden, attention.heads), (hidden, attention.heads * rank)]
    beside += [(hidden, taps * attention.kv_heads)] * 2 if full else []
    return Layer(attention, moe, norms=4 if full else 2, other_parameters=other, projections=tuple(beside))


FAMILIES = {"InklingForCausalLM": _inkling, "Inkling2ForCausalLM": _inkling2}

MODEL_TYPES = {"inkling_text": "InklingForCausalLM", "inkling2_text": "Inkling2ForCausalLM"}
