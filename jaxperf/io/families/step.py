"""Step-3 (arXiv:2507.19427) with factorized queries, and Step-3.5 with windows, gates of heads and experts."""

from __future__ import annotations

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
    """Windowed layers may have heads of their own number (`attention_other_setting`); further layers are dense."""
    count = fields.layer_count()
    kinds = fields.listing("layer_types", str)
    if kinds is None or len(kinds) < count or set(kinds) - {"full_attention", "sliding_attention"}:
        raise InputError(f"layer_types must have full_attention or sliding_attention for each of the {count} layers.")
    gated, bias = fields.flag("use_head_wise_attn_gate", False), fields.flag("attention_bias", False)
    full = grouped_attention(fields, qkv_bias=bias, qk_norm=True, head_gate=gated)
    mixers = {"full_attention": full, "sliding_attention": _windowed(fields, full)}
    layers = stack([mixers[kind] for kind in kinds[:count]], _blocks(fields, correction=True))
    dense = (gated_mlp(fields),) if fields.data.get("num_nextn_predict_layers") else ()
    further = predicted_layers(fields, stack([mixers[(kinds[count:] or kinds)[0]]] * len(dense), dense) or layers)
    return decoder(fields, layers, mtp_layers=further)


def _windowed(fields: Fields, full: Attention) -> Attention:
    own = fields.nested("attention_other_setting")

    def size(name: str, otherwise: int) -> int:
        return own.optional_count(name) or otherwise

    return Attention(
        size("num_attention_heads", full.heads),
        size("num_key_value_heads", full.kv_heads),
        size("head_dim", full.head_dim),
        window=fields.count("sliding_window"),
        qkv_bias=full.qkv_bias,
        qk_norm=True,
        head_gate=full.head_gate,
    )


def _blocks(fields: Fields, correction: bool) -> tuple[FeedForward, ...]:
    """Experts and a shared one in the layers of `moe_layers_enum`, "4,5,6"; in all but the first where it is absent."""
    count, listed = fields.layer_count(), fields.data.get("moe_layers_enum")
    if listed is None:
        fields.notes.append("moe_layers_enum is absent; all layers but the first have experts.")
        sparse = set(range(1, count))
    else:
        texts = listed.split(",") if isinstance(listed, str) else listed
        if not isinstance(texts, list) or not all(str(each).strip().isdecimal() for each in texts):
            raise InputError(f'moe_layers_enum is {show(listed)}; it must list layers, such as "4,5,6".')
        sparse = {check_count("An item of moe_layers_enum", int(each), 0, count - 1) for each in texts}
    shared = fields.count("shared_expert_intermediate_size", smallest=0)
    moe = routed(fields, shared_intermediate=shared, correction_bias=correction)
    return sparse_where(fields, moe, [index in sparse for index in range(count)])


FAMILIES = {"Step3TextForCausalLM": _step3, "Step3p5ForCausalLM": _step35}

MODEL_TYPES = {
    "step3_text": "Step3TextForCausalLM",
    "step3p5": "Step3p5ForCausalLM",
    "step3p5_text": "Step3p5ForCausalLM",
}
