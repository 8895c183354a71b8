"""Step-3 (arXiv:2507.19427) with factorized queries, and Step-3.5 with windows, gates of heads and experts."""

from __future__ import annotations

import dataclasses

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, gated_mlp, grouped_attention, routed, sparse_where, stack
from jaxperf.io.families.experts import predicted_layers
from jaxperf.models.checks import check_count, show
from jaxperf.models.config import Attention, FeedForward, ModelConfig


def _step3(fields: Fields) -> ModelConfig:
    """One key and value head; queries are compressed to `share_q_dim`, normed and expanded to all heads."""
    mixer = Attention(
        fields.count("num_attention_heads"),
        fields.count_or("num_key_value_heads", 1),
        fields.count("head_dim"),
        q_rank=fields.optional_count("share_q_dim") or fields.count("head_dim"),
    )
    blocks = _blocks(fields, correction=False)
    return decoder(fields, stack((mixer,) * len(blocks), blocks))


def _step35(fields: Fields) -> ModelConfig:
    """Windowed layers may have heads of their own number; the layers that predict further tokens are dense."""
    count = fields.layer_count()
    kinds = fields.listing("layer_types", str)
    if kinds is None or len(kinds) < count or set(kinds) - {"full_attention", "sliding_attention"}:
        raise InputError(f"layer_types must have full_attention or sliding_attention for each of the {count} layers.")
    further = (kinds[count:] or fields.listing("mtp_layer_types", str) or kinds)[:1]
    mixers = _mixers(fields, {*kinds[:count], *further})
    layers = stack([mixers[kind] for kind in kinds[:count]], _blocks(fields, correction=True, first=3))
    if not fields.data.get("num_nextn_predict_layers"):
        return decoder(fields, layers)
    dense = stack([mixers[further[0]]], [gated_mlp(fields)])
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, dense))


def _mixers(fields: Fields, kinds: set[str]) -> dict[str, Attention]:
    """The attention of each kind of layer; `attention_other_setting` is that of the windowed ones."""
    gated, bias = fields.flag("use_head_wise_attn_gate", True), fields.flag("attention_bias", False)
    full = grouped_attention(fields, qkv_bias=bias, qk_norm=True, head_gate=gated)
    if "sliding_attention" not in kinds:
        return {"full_attention": full}
    own = fields.nested("attention_other_setting")
    sliding = fields.optional_count("num_sliding_attention_heads") or own.optional_count("num_attention_heads")
    windowed = dataclasses.replace(
        full,
        heads=sliding or full.heads,
        kv_heads=own.optional_count("num_key_value_heads") or full.kv_heads,
        head_dim=own.optional_count("head_dim") or full.head_dim,
        window=fields.count("sliding_window"),
    )
    return {"full_attention": full, "sliding_attention": windowed}


def _blocks(fields: Fields, correction: bool, first: int = 1) -> tuple[FeedForward, ...]:
    """Experts and a shared one by `mlp_layer_types`, else in the layers of `moe_layers_enum`, "4,5,6", else from the
    layer `first` on."""
    shared = fields.count("shared_expert_intermediate_size", smallest=0)
    moe = routed(fields, shared_intermediate=shared, correction_bias=correction)
    kinds = fields.listing("mlp_layer_types", str, fields.layer_count())
    sparse = _sparse_layers(fields, first) if kinds is None else [kind == "sparse" for kind in kinds]
    return sparse_where(fields, moe, sparse)


def _sparse_layers(fields: Fields, first: int) -> list[bool]:
    count, listed = fields.layer_count(), fields.data.get("moe_layers_enum")
    if listed is None:
        fields.notes.append(f"moe_layers_enum is absent; the layers from {first} on have experts.")
        return [index >= first for index in range(count)]
    texts = listed.split(",") if isinstance(listed, str) else listed
    if not isinstance(texts, list) or not all(str(each).strip().isdecimal() for each in texts):
        raise InputError(f'moe_layers_enum is {show(listed)}; it must list layers, such as "4,5,6".')
    sparse = {check_count("An item of moe_layers_enum", int(each), 0, count - 1) for each in texts}
    return [index in sparse for index in range(count)]


FAMILIES = {"Step3TextForCausalLM": _step3, "Step3p5ForCausalLM": _step35}

MODEL_TYPES = {
    "step3_text": "Step3TextForCausalLM",
    "step3p5": "Step3p5ForCausalLM",
    "step3p5_text": "Step3p5ForCausalLM",
}
