"""The language model of dots 3: latent attention to chosen tokens in each fourth layer, in a window in the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, layer_kinds, routed
from jaxperf.io.families.experts import first_dense
from jaxperf.io.families.latent import latent_attention
from jaxperf.models.config import Indexer, Layer, Mla, ModelConfig

CHOSEN, SEEN, WINDOWED = "indexed_attention", "full_attention", "sliding_attention"
# What windowed layers have of their own where nothing is said, as `swa_...` or in `per_layer_config`.
OWN: Mapping[str, int] = {
    "num_attention_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
    "qk_rope_head_dim": 64,
}


def _dots3(fields: Fields) -> ModelConfig:
    """A gate for each head, a norm of the rotary part of the keys."""
    count = fields.layer_count()
    kinds = layer_kinds(fields, (CHOSEN, SEEN, WINDOWED))
    if kinds is None:
        kinds = [CHOSEN if index < 2 or index % 4 == 1 else WINDOWED for index in range(count)]
    if fields.flag("use_dsa", False):
        kinds = [CHOSEN if kind == SEEN else kind for kind in kinds]
    sizes = fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk")
    whole = latent_attention(fields, head_gate=True)
    mixers = {
        CHOSEN: dataclasses.replace(whole, indexer=Indexer(*sizes)),
        SEEN: whole,
        WINDOWED: _windowed(fields),
    }
    width = fields.optional_count("shared_experts_intermediate_size")
    width = width or fields.count_or("moe_shared_expert_intermediate_size", fields.count("moe_intermediate_size"))
    shared = width * fields.count_or("num_shared_experts", 1, smallest=0)
    blocks = first_dense(fields, routed(fields, shared_intermediate=shared, correction_bias=True), default=1)
    pairs = zip((mixers[kind] for kind in kinds), blocks, strict=True)
    return decoder(fields, tuple(Layer(mixer, block, other_parameters=mixer.rope_dim) for mixer, block in pairs))


def _windowed(fields: Fields) -> Mla:
    listed = fields.data.get("per_layer_config")
    own: Any = next(iter(listed.values()), {}) if isinstance(listed, Mapping) else {}
    given = own if isinstance(own, Mapping) else {}
    data = {name: given.get(name, fields.data.get(f"swa_{name}", usual)) for name, usual in OWN.items()}
    sizes = dataclasses.replace(fields, data={**fields.data, **data})
    window = fields.optional_count("sliding_window") or fields.count_or("sliding_window_size", 512)
    return latent_attention(sizes, head_gate=True, window=window)


FAMILIES = {"Dots3NoteForCausalLM": _dots3}

MODEL_TYPES = {"dots3_note_text": "Dots3NoteForCausalLM"}
