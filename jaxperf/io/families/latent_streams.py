"""Latent attention to chosen tokens and a residual of several streams: GLM 5.3 and Hy4."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, every, layer_kinds, stack
from jaxperf.io.families.experts import first_dense, mixed_streams, with_shared_experts
from jaxperf.io.families.latent import indexers, latent_attention
from jaxperf.io.families.linear import kimi_delta
from jaxperf.models.config import Mixer, ModelConfig

LATENT = ("full_attention", "indexed_attention")  # how configs name the layers with latent attention


def _glm5_next(fields: Fields) -> ModelConfig:
    """GLM 5.3: three layers of Kimi delta attention, then one of latent attention without positions, whose indexer has
    a key for each `index_kpool` tokens."""
    kinds = layer_kinds(fields, (*LATENT, "linear_attention"))
    latent = every(4, fields.layer_count()) if kinds is None else [kind in LATENT for kind in kinds]
    delta, choosing = kimi_delta(fields, heads=64), indexers(fields, fields.count_or("index_kpool", 16))
    mixers: list[Mixer] = [
        latent_attention(fields, rotary=False, indexer=each) if one else delta
        for one, each in zip(latent, choosing, strict=True)
    ]
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True), default=3)
    streams = fields.count_or("hc_mult", 4)
    around = mixed_streams(streams, fields.count("hidden_size"), streams * (streams + 2), 3)
    return decoder(fields, stack(mixers, blocks, **around))


def _hy_v4(fields: Fields) -> ModelConfig:
    """Hy4: a gate for each element of the output, a learned logit in each head's softmax; streams are not mixed."""
    fourth = dataclasses.replace(fields, data={"index_topk_freq": 4, **fields.data})  # where no field says which
    mixers = [latent_attention(fields, output_gate=True, indexer=each) for each in indexers(fourth)]
    blocks = first_dense(fields, with_shared_experts(fields, correction_bias=True), default=1)
    streams, hidden = fields.count_or("hc_mult", 4), fields.count("hidden_size")
    around = mixed_streams(streams, hidden, 2 * streams, 2)
    around["other_parameters"] += fields.count("num_attention_heads")  # the logits
    layers = stack(mixers, blocks, **around)
    return decoder(fields, layers, other_parameters=streams * (streams * hidden + 1) + 1)


FAMILIES = {"Glm5NextForCausalLM": _glm5_next, "HYV4ForCausalLM": _hy_v4}

MODEL_TYPES = {"glm5_next_text": "Glm5NextForCausalLM", "hy_v4": "HYV4ForCausalLM", "hy_v4_vl_text": "HYV4ForCausalLM"}
