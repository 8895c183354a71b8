"""Decoders of 2026 with windows in most layers: Mellum 2, Laguna, Beam, Kolibri 1, Granite Swash, Command A+, and
HyperCLOVA X without."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    Windows,
    biased_attention,
    decoder,
    every,
    gated_mlp,
    grouped_attention,
    rotary_model,
    routed,
    stack,
    varied,
    windows,
)
from jaxperf.io.families.experts import first_dense, predicted_layers
from jaxperf.io.families.muse import turned_layers
from jaxperf.models.config import Attention, FeedForward, Layer, Mixer, Mlp, ModelConfig, Moe


def _everywhere(fields: Fields) -> Windows:
    """`layer_types`, or no windows."""
    return windows(fields, (None,) * fields.layer_count())


def _experts(fields: Fields, correction: bool = False) -> Moe:
    shared = fields.optional_count("shared_expert_intermediate_size", smallest=0) or 0
    return routed(fields, shared_intermediate=shared, correction_bias=correction)


def _with_further(fields: Fields, layers: tuple[Layer, ...]) -> ModelConfig:
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _mellum(fields: Fields) -> ModelConfig:
    """Qwen3's attention, experts in all layers unless `mlp_layer_types` says otherwise."""
    attention = biased_attention(fields, multi_head=False, head_dim=128, qk_norm=True)
    mixers = varied(attention, window=_everywhere(fields))
    return _with_further(fields, stack(mixers, first_dense(fields, _experts(fields), default=0)))


def _laguna(fields: Fields) -> ModelConfig:
    """A gate for each head or for each of its elements; layers may differ in the number of heads."""
    gating = fields.data.get("gating", True)
    if gating not in (True, "per-head", "per-element"):
        raise InputError('gating must be true, "per-head" or "per-element".')
    whole = gating == "per-element"
    attention = biased_attention(
        fields, multi_head=False, head_dim=128, qk_norm=True, output_gate=whole, head_gate=not whole
    )
    count = fields.layer_count()
    heads = fields.listing("num_attention_heads_per_layer", int, count) or [attention.heads] * count
    mixers = varied(attention, window=_everywhere(fields), heads=heads)
    return _with_further(fields, stack(mixers, first_dense(fields, _experts(fields, correction=True), default=1)))


def _beam(fields: Fields) -> ModelConfig:
    """Norms around each block, gated attention, no positions in the full layers: each sixth and the last."""
    attention = biased_attention(fields, multi_head=False, head_dim=128, qk_norm=True, output_gate=True)
    usual = [None if full else fields.count_or("sliding_window", 512) for full in every(6, fields.layer_count())]
    usual[-1] = None
    mixers = _rotary_in_windows(fields, attention, tuple(usual))
    blocks = first_dense(fields, routed(fields, correction_bias=True), default=3)
    return decoder(fields, stack(mixers, blocks, norms=4, other_parameters=attention.heads))  # a gate's bias a head


def _rotary_in_windows(fields: Fields, attention: Attention, usual: Windows) -> list[Mixer]:
    widths = windows(fields, usual)
    return varied(attention, window=widths, rotary=[width is not None for width in widths])


def _kolibri(fields: Fields) -> ModelConfig:
    """Norms around each block, no positions in each fifth layer, which sees everything."""
    attention = grouped_attention(fields, head_dim=128, qk_norm=True)
    window = fields.count_or("sliding_window", 513)
    usual = tuple(None if full else window for full in every(5, fields.layer_count()))
    mixers = _rotary_in_windows(fields, attention, usual)
    return decoder(fields, stack(mixers, (_experts(fields, correction=True),) * len(mixers), norms=4))


def _granite_moe_swa(fields: Fields) -> ModelConfig:
    """A learned logit in each head's softmax; the first of each four layers sees everything, and positions are turned
    in layers whose `layer_rope_theta` is not 0."""
    attention = biased_attention(fields, sinks=True)
    count, window = fields.layer_count(), fields.count_or("sliding_window", 128)
    widths = windows(fields, tuple(None if full else window for full in every(4, count, 0)))
    shared = fields.optional_count("shared_expert_intermediate_size", smallest=0) or 0
    moe = routed(fields, "intermediate_size", shared_intermediate=shared)
    mixers = varied(attention, window=widths, rotary=turned_layers(fields))
    return decoder(fields, stack(mixers, (moe,) * count))


def _command_a_plus(fields: Fields) -> ModelConfig:
    """Both blocks read one norm; windowed layers have rotary positions, and first dense ones if they all see all."""
    attention = biased_attention(fields, head_dim=128)
    count, first = fields.layer_count(), fields.optional_count("first_k_dense_replace", smallest=0) or 0
    period = fields.optional_count("sliding_window_pattern") or 4
    prefix = fields.optional_count("prefix_dense_sliding_window_pattern") or 1
    full = every(prefix, min(first, count)) + every(period, max(count - first, 0))
    width = fields.count_or("sliding_window", 4096)
    widths = windows(fields, tuple(None if one else width for one in full))
    blocks = _command_blocks(fields, first)
    rotary = [
        one is not None or (isinstance(block, Mlp) and prefix == 1) for one, block in zip(widths, blocks, strict=True)
    ]
    mixers = varied(attention, window=widths, rotary=rotary)
    return decoder(fields, stack(mixers, blocks, norms=1, parallel=True), tied=True)


def _command_blocks(fields: Fields, first: int) -> tuple[FeedForward, ...]:
    shared = (fields.optional_count("num_shared_experts", smallest=0) or 0) * fields.count("intermediate_size")
    moe = routed(fields, "intermediate_size", shared_intermediate=shared)
    kinds = fields.listing("mlp_layer_types", str, fields.layer_count())
    dense = [index < first for index in range(fields.layer_count())] if kinds is None else [k == "dense" for k in kinds]
    if not any(dense):
        return (moe,) * len(dense)
    width = fields.optional_count("prefix_dense_intermediate_size") or fields.count("intermediate_size")
    return tuple(Mlp(width) if one else moe for one in dense)


def _hyperclova(fields: Fields) -> ModelConfig:
    """A Granite with norms around each block, unless `use_post_norm` is false."""
    attention = biased_attention(fields)
    block = gated_mlp(fields, bias=fields.flag("mlp_bias", False))
    return rotary_model(fields, attention, block, norms=4 if fields.flag_or("use_post_norm", True) else 2)


FAMILIES = {
    "MellumForCausalLM": _mellum,
    "LagunaForCausalLM": _laguna,
    "BeamForCausalLM": _beam,
    "Kolibri1ForCausalLM": _kolibri,
    "GraniteMoeSWAForCausalLM": _granite_moe_swa,
    "Cohere2MoeForCausalLM": _command_a_plus,
    "HyperCLOVAXForCausalLM": _hyperclova,
}

MODEL_TYPES = {
    "mellum": "MellumForCausalLM",
    "laguna": "LagunaForCausalLM",
    "beam": "BeamForCausalLM",
    "kolibri1": "Kolibri1ForCausalLM",
    "granitemoe_swa": "GraniteMoeSWAForCausalLM",
    "cohere2_moe": "Cohere2MoeForCausalLM",
    "hyperclovax": "HyperCLOVAXForCausalLM",
}
