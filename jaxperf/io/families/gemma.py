"""Gemma 1 to 3n: heads of 256, tied tables; from Gemma 2 on norms around each block and windows between full layers."""

from __future__ import annotations

from typing import Any

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, decoder, full_every, gated_mlp, stack, varied
from jaxperf.models.checks import check_count
from jaxperf.models.config import Attention, Layer, Mlp, ModelConfig, Table


def _attention(fields: Fields, **kind: Any) -> Attention:
    return biased_attention(fields, multi_head=False, head_dim=256, **kind)


def _gemma(fields: Fields) -> ModelConfig:
    count = fields.layer_count()
    return decoder(fields, (Layer(_attention(fields), gated_mlp(fields)),) * count, tied=True)


def _alternating(fields: Fields, attention: Attention, step: int, norms: int) -> ModelConfig:
    window = None if fields.find("sliding_window") is None else fields.count("sliding_window")
    if "sliding_window" not in fields.data:
        window = fields.count_or("sliding_window", 4096)
    mixers = varied(attention, window=full_every(fields, step, window))
    return decoder(fields, stack(mixers, (gated_mlp(fields),) * len(mixers), norms=norms), tied=True)


def _gemma2(fields: Fields) -> ModelConfig:
    return _alternating(fields, _attention(fields), 2, norms=4)


def _vaultgemma(fields: Fields) -> ModelConfig:
    return _alternating(fields, _attention(fields), 2, norms=2)


def _gemma3(fields: Fields) -> ModelConfig:
    step = fields.optional_count("sliding_window_pattern") or fields.optional_count("_sliding_window_pattern") or 6
    return _alternating(fields, _attention(fields, qk_norm=True), step, norms=4)


def _gemma3n(fields: Fields) -> ModelConfig:
    """Gemma 3n: per-layer inputs from a table of their own, alternating updates of four copies of the residual stream
    (AltUp, arXiv:2301.13310), a low-rank bypass (LAuReL, arXiv:2411.07501); the last layers reuse keys and values."""
    count, hidden = fields.layer_count(), fields.count("hidden_size")
    width = fields.count_or("hidden_size_per_layer_input", 256)
    copies, rank = fields.count_or("altup_num_inputs", 4), fields.count_or("laurel_rank", 64)
    shared = fields.count_or("num_kv_shared_layers", 15, smallest=0)
    check_count("num_kv_shared_layers", shared, 0, count - 1)
    reused = [index >= count - shared for index in range(count)]
    window = fields.count_or("sliding_window", 512)
    mixers = varied(_attention(fields, qk_norm=True), window=full_every(fields, 5, window), shared_kv=reused)
    # per-layer input: gate, projection, norm; bypass: two matrices, norm; copies: predict, correct, route, norm, scale
    beside = ((hidden, width), (width, hidden), (hidden, rank), (rank, hidden), (hidden, copies))
    other = 2 * hidden + copies**2 * (copies + 1) + 2 * hidden
    layers = stack(mixers, _widths(fields, count), norms=4, other_parameters=other, projections=beside)
    fields.notes.append("Of the per-layer inputs, LAuReL and AltUp only the projections in the layers are timed.")
    return decoder(
        fields,
        layers,
        tied=True,
        tables=(Table("per-layer inputs", fields.count_or("vocab_size_per_layer_input", 262144), count * width),),
        other_parameters=hidden * count * width + width + 2 * (copies - 1) * hidden**2,
    )


def _widths(fields: Fields, count: int) -> list[Mlp]:
    """`intermediate_size`, one for all layers or a list with one for each."""
    if not isinstance(fields.data.get("intermediate_size"), list):
        return [gated_mlp(fields)] * count
    listed = fields.listing("intermediate_size", int, count) or []
    return [Mlp(check_count("An item of intermediate_size", width)) for width in listed]


FAMILIES = {
    "GemmaForCausalLM": _gemma,
    "Gemma2ForCausalLM": _gemma2,
    "VaultGemmaForCausalLM": _vaultgemma,
    "Gemma3ForCausalLM": _gemma3,
    "Gemma3nForCausalLM": _gemma3n,
}

MODEL_TYPES = {
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "vaultgemma": "VaultGemmaForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma3n_text": "Gemma3nForCausalLM",
}
