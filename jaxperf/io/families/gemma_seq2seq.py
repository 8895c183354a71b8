"""T5Gemma (arXiv:2504.06225), an encoder and a decoder that are Gemma 2 each, and may differ in size; T5Gemma 2
(arXiv:2512.14856) of two Gemma 3, whose decoder attends to both with one set of weights."""

from __future__ import annotations

import dataclasses

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, decoder, full_every, gated_mlp
from jaxperf.models.config import Encoder, Layer, ModelConfig

NORMS = {"encoder": 4, "decoder": 6}  # before and after each block


def _t5gemma(fields: Fields) -> ModelConfig:
    """Every other layer of both sides is windowed, in the encoder to both directions; both have a token table."""
    sides = {part: fields.nested(part) for part in NORMS}
    tower = sides["encoder"]
    encoder = Encoder(
        "encoder", "text", tower.count("hidden_size"), _layers(tower, "encoder"), vocabulary=_vocabulary(fields, tower)
    )
    both = {key: fields.data.get(key) for key in ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")}
    given = {key: value for key, value in both.items() if value is not None}
    own = dataclasses.replace(sides["decoder"], data={**sides["decoder"].data, **given})
    own = dataclasses.replace(own, data={**own.data, "vocab_size": _vocabulary(fields, own)})
    return decoder(own, _layers(own, "decoder", encoder.hidden), tied=True, encoders=(encoder,))


def _vocabulary(fields: Fields, side: Fields) -> int:
    return side.optional_count("vocab_size") or fields.count("vocab_size")


def _layers(side: Fields, part: str, source: int | None = None) -> tuple[Layer, ...]:
    """Layers of one side; `source` is the width of what cross-attention reads, None without it."""
    attention = biased_attention(side, multi_head=False, head_dim=256)
    across = dataclasses.replace(attention, causal=False, rotary=False, kv_input=source)
    cross = None if source is None else across
    widths = full_every(side, 2, side.count_or("sliding_window", 4096))
    block = gated_mlp(side)
    return tuple(
        Layer(
            dataclasses.replace(attention, window=width, causal=part == "decoder"),
            block,
            norms=NORMS[part],
            cross=cross,
        )
        for width in widths
    )


def _t5gemma2(fields: Fields) -> ModelConfig:
    """Both sides share one token table; five of six layers are windowed."""
    outer = fields.nested("encoder")
    tower, decoding = outer.nested("text_config"), fields.nested("decoder")
    hidden = tower.count("hidden_size")
    encoder = Encoder("encoder", "text", hidden, _merged_layers(tower, "encoder"), other_parameters=hidden)
    names = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "vocab_size")
    given = {key: fields.data[key] for key in names if fields.data.get(key) is not None and key not in decoding.data}
    own = dataclasses.replace(decoding, data={**decoding.data, **given})
    if own.count("hidden_size") != hidden:
        raise InputError("the hidden_size of encoder and decoder differ; they share projections of keys and values.")
    fields.notes.append("The image encoder of T5Gemma 2 is not described here: its weights are not counted.")
    return decoder(own, _merged_layers(own, "decoder"), tied=True, encoders=(encoder,))


def _merged_layers(side: Fields, part: str) -> tuple[Layer, ...]:
    attention = biased_attention(side, multi_head=False, head_dim=256, qk_norm=True)
    cross = dataclasses.replace(attention, causal=False, rotary=False, merged=True) if part == "decoder" else None
    window, block = side.count_or("sliding_window", 4096), gated_mlp(side)
    step = side.optional_count("sliding_window_pattern") or 6
    return tuple(
        Layer(dataclasses.replace(attention, window=width, causal=part == "decoder"), block, norms=4, cross=cross)
        for width in full_every(side, step, window)
    )


FAMILIES = {"T5GemmaForConditionalGeneration": _t5gemma, "T5Gemma2ForConditionalGeneration": _t5gemma2}

MODEL_TYPES = {"t5gemma": "T5GemmaForConditionalGeneration", "t5gemma2": "T5Gemma2ForConditionalGeneration"}
