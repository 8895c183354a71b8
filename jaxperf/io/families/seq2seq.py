"""Encoder-decoder models: T5 and Switch, BART and its translation relatives, Whisper.

The decoder is the model, with cross-attention in each layer; what it reads is an `Encoder` of the same width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import Family, divided_head_dim, tied_embeddings
from jaxperf.io.families.encoder_parts import dense, encoder_model, label_count, renamed
from jaxperf.io.quantization.config import stored_format
from jaxperf.models.checks import MOST_LAYERS, show
from jaxperf.models.config import Encoder, Layer, ModelConfig
from jaxperf.models.feedforward import FeedForward, Mlp, Moe
from jaxperf.models.mixers import Attention


def _with_encoder(fields: Fields, encoder: Encoder, layers: tuple[Layer, ...], **parts: Any) -> ModelConfig:
    """The decoder around its layers; a class without a head counts as one whose head is the token table."""
    headless = fields.architecture.endswith("Model")
    weight_format, quantization = stored_format(fields)
    usual: dict[str, Any] = dict(
        name=fields.name,
        architecture=fields.architecture,
        hidden=encoder.hidden,
        vocabulary=fields.count("vocab_size"),
        layers=layers,
        tied_embeddings=True if headless else tied_embeddings(fields, default=True),
        positions=0,
        embedding_width=encoder.hidden,
        final_norm=True,
        norm_bias=layers[0].norm_bias,
        max_context=fields.optional_count("max_position_embeddings"),
        weight_format=weight_format,
        encoders=(encoder,),
        quantization=quantization,
    )
    return ModelConfig(**(usual | parts))


# --- T5 ---------------------------------------------------------------------------------------------------------------

Blocks = Callable[[Fields, int, str], list[FeedForward]]  # from fields, number of layers, "encoder" or "decoder"


def _t5_blocks(fields: Fields, count: int, _part: str) -> list[FeedForward]:
    """`feed_forward_proj` is an activation, with `gated-` in front of it since T5 1.1."""
    found = fields.find("feed_forward_proj")
    kind = "relu" if found is None else found[1]
    if not isinstance(kind, str) or kind.count("-") > 1 or not kind.split("-")[-1].isidentifier():
        raise InputError(f"feed_forward_proj is {show(kind)}; it must be an activation such as relu or gated-gelu.")
    return [Mlp(fields.count("intermediate_size"), gated=kind.startswith("gated-"))] * count


def _switch_blocks(fields: Fields, count: int, part: str) -> list[FeedForward]:
    """One expert a token in `num_sparse_PART_layers` of the layers (arXiv:2101.03961)."""
    inner, experts = fields.count("intermediate_size"), fields.count("num_experts")
    moe = Moe(experts, 1, inner, gated=False, router_bias=fields.flag("router_bias", False))
    sparse = fields.count(f"num_sparse_{part}_layers", smallest=0)
    step = max(count // sparse, 1) if sparse else 0
    return [moe if step and index % step == 1 % step else Mlp(inner, gated=False) for index in range(count)]


def _t5(fields: Fields, blocks: Blocks = _t5_blocks, tables: str = "first") -> ModelConfig:
    """T5 (arXiv:1910.10683): RMSNorm, no biases, `tables` of relative positions in the first layer or in all (UMT5)."""
    fields = renamed(fields, {"d_ff": "intermediate_size"})
    heads, hidden = fields.count("num_attention_heads"), fields.count("hidden_size")
    rows = fields.count_or("relative_attention_num_buckets", 32)
    attention = Attention(heads, heads, fields.count("d_kv"), rotary=False, causal=False)

    def layers(count: int, part: str) -> tuple[Layer, ...]:
        cross = attention if part == "decoder" else None
        own = dataclasses.replace(attention, causal=part == "decoder")
        with_table = dataclasses.replace(own, relative_buckets=rows)
        return tuple(
            Layer(own if index and tables == "first" else with_table, block, norms=3 if cross else 2, cross=cross)
            for index, block in enumerate(blocks(fields, count, part))
        )

    depth = fields.layer_count()
    encoder = Encoder("encoder", "text", hidden, layers(depth, "encoder"))
    if fields.architecture.endswith("EncoderModel"):
        own_table = dataclasses.replace(encoder, vocabulary=fields.count("vocab_size"))
        return encoder_model(fields, [own_table], fields.optional_count("max_position_embeddings"))
    decoder_depth = fields.optional_count("num_decoder_layers", largest=MOST_LAYERS) or depth
    return _with_encoder(fields, encoder, layers(decoder_depth, "decoder"))


# --- BART -------------------------------------------------------------------------------------------------------------


def _sides(
    fields: Fields, blocks: Callable[[Fields, int, str], list[FeedForward]] | None = None, **kind: Any
) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    """Layers of encoder and decoder, which have their own depth, heads and widths; LayerNorm and biases everywhere."""
    hidden = fields.count("hidden_size")

    def layers(part: str) -> tuple[Layer, ...]:
        heads, count = fields.count(f"{part}_attention_heads"), fields.count(f"{part}_layers", largest=MOST_LAYERS)
        width = divided_head_dim(hidden, heads)
        across = Attention(heads, heads, width, rotary=False, qkv_bias=True, output_bias=True, causal=False, **kind)
        own, cross = dataclasses.replace(across, causal=part == "decoder"), across if part == "decoder" else None
        dense_block = Mlp(fields.count(f"{part}_ffn_dim"), gated=False, bias=True)
        found = [dense_block] * count if blocks is None else blocks(fields, count, part)
        return tuple(Layer(own, block, norms=3 if cross else 2, norm_bias=True, cross=cross) for block in found)

    return layers("encoder"), layers("decoder")


def _bart(
    fields: Fields,
    embedding_norm: bool = False,
    final_norm: bool = True,
    extra_positions: int | None = 0,
    labels: int = 2,
    blocks: Callable[[Fields, int, str], list[FeedForward]] | None = None,
) -> ModelConfig:
    """BART (arXiv:1910.13461) and relatives.

    **Arguments:** `embedding_norm` and `final_norm` of both sides; `extra_positions`: rows of the position tables
    before the first token, `None` for computed positions without a table; `labels` a classifier has if it does not say.
    """
    encoder_layers, decoder_layers = _sides(fields, blocks)
    context = fields.count("max_position_embeddings")
    rows = 0 if extra_positions is None else context + extra_positions
    encoder = Encoder(
        "encoder",
        "text",
        fields.count("hidden_size"),
        encoder_layers,
        positions=rows,
        norms=int(embedding_norm) + int(final_norm),
        norm_bias=True,
    )
    labelled = fields.architecture.endswith("ForSequenceClassification")
    hidden = encoder.hidden
    return _with_encoder(
        fields,
        encoder,
        decoder_layers,
        positions=rows,
        embedding_norm=embedding_norm,
        final_norm=final_norm,
        other_parameters=dense(hidden, hidden) + dense(hidden, label_count(fields, labels)) if labelled else 0,
    )


def _nllb_blocks(fields: Fields, count: int, part: str) -> list[FeedForward]:
    """NLLB (arXiv:2207.04672): two of `num_experts` experts a token in every `PART_sparse_step`-th layer."""
    inner, step = fields.count(f"{part}_ffn_dim"), fields.count_or(f"{part}_sparse_step", 4)
    moe = Moe(
        fields.count("num_experts"), 2, inner, gated=False, bias=True, router_bias=fields.flag("router_bias", False)
    )
    dense_block = Mlp(inner, gated=False, bias=True)
    return [moe if (index + 1) % step == 0 else dense_block for index in range(count)]


def _whisper(fields: Fields) -> ModelConfig:
    """Whisper (arXiv:2212.04356): two convolutions over 30 s of sound, 1500 positions, keys without biases."""
    encoder_layers, decoder_layers = _sides(fields, key_bias=False)
    hidden, length = fields.count("hidden_size"), fields.count_or("max_source_positions", 1500)
    taps = 3  # of both convolutions, which is fixed in the published model
    encoder = Encoder(
        "encoder",
        "audio",
        hidden,
        encoder_layers,
        length,
        positions=length,
        input_parameters=dense(taps * fields.count("num_mel_bins"), hidden) + dense(taps * hidden, hidden),
        norm_bias=True,
    )
    context = fields.count("max_target_positions")
    return _with_encoder(fields, encoder, decoder_layers, positions=context, max_context=context)


def _generators(prefix: str, read: Family, *others: str) -> dict[str, Family]:
    """The same reading for the class with the head, without it and `others`."""
    return {prefix + suffix: read for suffix in ("ForConditionalGeneration", "Model", *others)}


_mbart = partial(_bart, embedding_norm=True, extra_positions=2)
_plain_bart = partial(_bart, embedding_norm=True, final_norm=False, extra_positions=2, labels=3)
_marian = partial(_bart, final_norm=False)

FAMILIES: dict[str, Family] = {
    **_generators("T5", _t5, "EncoderModel"),
    **_generators("MT5", _t5, "EncoderModel"),
    **_generators("UMT5", partial(_t5, tables="all"), "EncoderModel"),
    **_generators("SwitchTransformers", partial(_t5, blocks=_switch_blocks), "EncoderModel"),
    **_generators("Bart", _plain_bart, "ForSequenceClassification"),
    **_generators("MBart", _mbart, "ForSequenceClassification"),
    **_generators("Pegasus", _bart),
    "MarianMTModel": _marian,
    "MarianModel": _marian,
    **_generators("M2M100", partial(_bart, extra_positions=None)),
    **_generators("NllbMoe", partial(_bart, extra_positions=None, blocks=_nllb_blocks)),
    **_generators("Whisper", _whisper),
}

MODEL_TYPES: dict[str, str] = {
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
    "switch_transformers": "SwitchTransformersForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "marian": "MarianMTModel",
    "m2m_100": "M2M100ForConditionalGeneration",
    "nllb-moe": "NllbMoeForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}
