"""Decoders of late 2026, A.X K2, Flint and Lara 4 Mini; the differential DiffLlama, and ModernBERT as a decoder."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    Windows,
    biased_attention,
    decoder,
    every,
    full_heads,
    gated_mlp,
    layer_kinds,
    rotary_model,
    routed,
    sparse_where,
    stack,
    varied,
    windows,
)
from jaxperf.io.families.experts import first_dense, with_shared_experts
from jaxperf.io.families.latent import latent_attention
from jaxperf.io.families.qwen import gated_delta
from jaxperf.models.config import Indexer, Layer, Mixer, ModelConfig, Moe

LARA = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")


def _flint(fields: Fields) -> ModelConfig:
    """Positions in windowed layers only, learned logits in each head's softmax, a shared expert without a gate."""
    count = fields.layer_count()
    attention = biased_attention(fields, multi_head=False, head_dim=128, qk_norm=True, sinks=True)
    window = fields.count_or("sliding_window", 513)
    seeing = [index < 2 or index % 4 == 1 or index == count - 1 for index in range(count)]
    widths = windows(fields, tuple(None if one else window for one in seeing))
    mixers = varied(attention, window=widths, rotary=[width is not None for width in widths])
    listed = fields.listing("mlp_only_layers", int)
    dense = [0, 1] if listed is None else listed
    step = fields.optional_count("decoder_sparse_step") or 1
    sparse = [index not in dense and (index + 1) % step == 0 for index in range(count)]
    return decoder(fields, stack(mixers, sparse_where(fields, _shared_expert(fields, 1024), sparse)))


def _shared_expert(fields: Fields, usual: int) -> Moe:
    shared = fields.count_or("shared_expert_intermediate_size", usual, smallest=0)
    return routed(fields, shared_intermediate=shared)


def _lara_mini(fields: Fields) -> ModelConfig:
    """The delta rule of Qwen 3.5 among attention in windows and, without positions, to everything; experts in all."""
    count = fields.layer_count()
    attention = biased_attention(fields, multi_head=False, head_dim=128, qk_norm=True)
    window = fields.count_or("sliding_window", 512)
    mixers: dict[str, Mixer] = {
        "linear_attention": gated_delta(fields),
        "sliding_attention": dataclasses.replace(attention, window=window),
        "full_attention": dataclasses.replace(attention, rotary=False),
    }
    kinds = layer_kinds(fields, tuple(mixers)) or [LARA[index % len(LARA)] for index in range(count)]
    block = _shared_expert(fields, 512)
    return decoder(fields, stack([mixers[kind] for kind in kinds], (block,) * count), tied=True)


def _ax_k2(fields: Fields) -> ModelConfig:
    """A.X K2: DeepSeek V3.2 whose norms pass through a gate of low rank, and whose queries and output gates are made of
    the compressed ones, normed and not; what these have more than DeepSeek's queries is beside the block."""
    hidden, rank = fields.count("hidden_size"), fields.count_or("gated_norm_rank", 16)
    sizes = fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk")
    mixer = latent_attention(fields, indexer=Indexer(*sizes))
    compressed, queries = mixer.q_rank or hidden, mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    beside = ((compressed, queries), (2 * compressed, mixer.heads * mixer.value_dim))
    gate = ((hidden, rank), (rank, hidden))  # of one norm
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True), default=1)
    gated = {True: (*beside, *gate, *gate), False: (*beside, *gate)}
    layers = tuple(Layer(mixer, block, projections=gated[isinstance(block, Moe)]) for block in blocks)
    return decoder(fields, layers)


def _diffllama(fields: Fields) -> ModelConfig:
    """Differential attention (arXiv:2410.05258): the difference of two maps, weighed by four vectors of a layer."""
    attention = biased_attention(fields)
    fields.notes.append("Values are twice as wide in differential attention; this part of its FLOP is counted once.")
    return rotary_model(fields, attention, gated_mlp(fields), other_parameters=4 * attention.head_dim)


def _modernbert_decoder(fields: Fields) -> ModelConfig:
    """ModernBERT that looks back (Ettin, arXiv:2507.11412): every third layer from the first on sees everything, the
    others half of `local_attention`; the first has no norm before its attention, as the table has one."""
    count, hidden = fields.layer_count(), fields.count("hidden_size")
    bias, norm_bias = fields.flag("attention_bias", False), fields.flag("norm_bias", False)
    attention = full_heads(fields, qkv_bias=bias, output_bias=bias)
    reach = fields.count_or("local_attention", 128) >> 1
    step = fields.optional_count("global_attn_every_n_layers") or 3
    usual: Windows = tuple(None if full else reach for full in every(step, count, 0))
    kinds = layer_kinds(fields, ("full_attention", "sliding_attention"))
    widths = usual if kinds is None else tuple(None if kind == "full_attention" else reach for kind in kinds)
    block = gated_mlp(fields, bias=fields.flag("mlp_bias", False))
    layers = stack(varied(attention, window=widths), (block,) * count, norm_bias=norm_bias)
    layers = (dataclasses.replace(layers[0], norms=1), *layers[1:])
    head = hidden * hidden + fields.flag("classifier_bias", False) * hidden + (1 + norm_bias) * hidden
    return decoder(
        fields,
        layers,
        tied=True,
        embedding_norm=True,
        head_bias=fields.flag("decoder_bias", True),
        other_parameters=head,
    )


FAMILIES = {
    "AXK2ForCausalLM": _ax_k2,
    "FlintForCausalLM": _flint,
    "LaraMiniForCausalLM": _lara_mini,
    "DiffLlamaForCausalLM": _diffllama,
    "ModernBertDecoderForCausalLM": _modernbert_decoder,
}

MODEL_TYPES = {
    "axk2": "AXK2ForCausalLM",
    "flint": "FlintForCausalLM",
    "lara_mini": "LaraMiniForCausalLM",
    "diffllama": "DiffLlamaForCausalLM",
    "modernbert-decoder": "ModernBertDecoderForCausalLM",
}
