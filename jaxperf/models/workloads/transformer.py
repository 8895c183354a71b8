"""A decoder, with or without a text encoder before it, from its `ModelConfig`: tables, masks, layers, output head."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hwspecs.errors import InputError
from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.mixers import Attention, LightningAttention, Mla
from jaxperf.models.workloads.attention import BIAS, CAUSAL, PADDING, Given
from jaxperf.models.workloads.kernels import stream
from jaxperf.models.workloads.layers import check_layer, norm, run_layers
from jaxperf.models.workloads.masks import added_mask, cross_mask, position_bias, rotary_tables
from jaxperf.models.workloads.operations import add, dropout, embedding, linear, scaled
from jaxperf.models.workloads.styles import Style, style_of
from jaxperf.models.workloads.tape import Tape, Tensor


def decoder(tape: Tape, config: ModelConfig, batch: int, seq: int) -> Tensor:
    """Scores [batch, seq, vocabulary] of `batch` sequences of `seq` tokens.

    Raises `InputError` naming what of the model has no workload graph.
    """
    check_decoder(config, seq)
    style = style_of(config.architecture)
    ids = tape.input("input_ids", batch, seq)
    memory = _encoder(tape, config, style, ids) if config.encoders else None
    if memory is not None:
        ids = tape.input("decoder_input_ids", batch, seq)
    with tape.scope("decoder"):
        x = _embedded(tape, config, style, ids, shared=memory is not None)
        x = _stack(tape, x, config.layers, style, memory)
        if config.final_norm:
            x = norm(tape, x, config, "final_norm")
        if memory is not None:
            x = dropout(tape, x)
            x = scaled(tape, x) if config.tied_embeddings else x
    return _head(tape, x, config)


def check_decoder(config: ModelConfig, seq: int) -> None:
    """Raises `InputError` naming the first part of the model that has no workload graph."""
    where = f"{config.name} ({config.architecture})"
    if not config.layers:
        raise InputError(f"{where} has no decoder; of encoders, BERT and ViT have workload graphs.")
    if config.encoders and not _has_t5_encoder(config):
        raise InputError(f"{where}: of models with an encoder before the decoder, T5 and Switch have workload graphs.")
    if config.other_parameters or config.tables:
        raise InputError(f"{where}: tables or parameters beside those of layers have no workload graph yet.")
    for stack in (config.layers, *(tower.layers for tower in config.encoders)):
        for layer in stack:
            check_layer(layer, where)
    if config.max_context is not None and config.positions and seq > config.positions:
        raise InputError(f"{where} has {config.positions} learned positions; a sequence of {seq} is too long.")


def _has_t5_encoder(config: ModelConfig) -> bool:
    """Whether there is one text encoder, and positions are a learned bias of the scores."""
    text = len(config.encoders) == 1 and config.encoders[0].kind == "text" and config.layers[0].cross is not None
    first = config.layers[0].mixer
    return text and isinstance(first, Attention) and bool(first.relative_buckets)


def _embedded(tape: Tape, config: ModelConfig, style: Style, ids: Tensor, shared: bool = False) -> Tensor:
    """Token rows plus position rows, projected to the hidden width and normed where the model does so."""
    x = embedding(tape, ids, config.vocabulary, config.embedding_width, "embed_tokens", shared)
    if config.embedding_width != config.hidden:
        x = linear(tape, x, config.hidden, "project_in", bias=False)
    if config.positions:
        x = add(tape, x, embedding(tape, _positions(tape, style, ids), config.positions, config.hidden, "positions"))
    if config.embedding_norm:
        x = norm(tape, x, config, "embedding_norm")
    return dropout(tape, x) if style.dropout and not style.copies else x


def _positions(tape: Tape, style: Style, ids: Tensor) -> Tensor:
    """Position numbers: one row for all sequences, or the running sum of each sequence's mask (OPT)."""
    batch, seq = ids.shape
    if not style.copies:
        return tape.record("position_ids", "fill", (), (1, seq), [stream("arange", 0, seq)], gradient=False)
    n = batch * seq
    steps = [stream("cumsum", n, n, batch), stream("mul", 2 * n, n, batch), stream("sub", n, n, batch)]
    return tape.record("position_ids", "fill", (ids,), ids.shape, [*steps, stream("addu", n, n, batch)], gradient=False)


def _stack(tape: Tape, x: Tensor, layers: Sequence[Layer], style: Style, memory: Tensor | None) -> Tensor:
    """All layers, with the mask and the rotary tables that they share."""
    return run_layers(tape, x, layers, _shared(tape, x, layers, style, memory), memory)


def _shared(tape: Tape, x: Tensor, layers: Sequence[Layer], style: Style, memory: Tensor | None) -> Given:
    batch, seq, _ = x.shape
    mixer = next((layer.mixer for layer in layers if isinstance(layer.mixer, Attention | Mla)), layers[0].mixer)
    causal = not isinstance(mixer, Attention) or mixer.causal
    attends = isinstance(mixer, Attention | Mla)
    mask = added_mask(tape, style, batch, seq, causal) if attends else None
    mask_is = CAUSAL if causal else PADDING
    outer = None
    if isinstance(mixer, Attention) and mixer.relative_buckets and mask is not None:
        mask, mask_is = position_bias(tape, mask, mixer, batch, seq), BIAS
        outer = None if memory is None else cross_mask(tape, batch, mixer.heads, seq)
    width = next((width for width in map(_rotary_width, layers) if width), 0)
    rotary = rotary_tables(tape, seq, width) if width else None
    return Given(style, mask, mask_is, rotary, layers[0].norm_bias, outer)


def _rotary_width(layer: Layer) -> int:
    """Elements of a head that are rotated; 0 for none."""
    match layer.mixer:
        case Attention(rotary=True, head_dim=width) | Mla(rotary=True, rope_dim=width):
            return width
        case LightningAttention(rotary=True, head_dim=width):
            return width
    return 0


def _encoder(tape: Tape, config: ModelConfig, style: Style, ids: Tensor) -> Tensor:
    """The text encoder of T5 and Switch, on the decoder's token table."""
    tower = config.encoders[0]
    with tape.scope("encoder"):
        plain = dataclasses.replace(config, positions=tower.positions, embedding_width=config.embedding_width)
        x = _stack(tape, _embedded(tape, plain, style, ids), tower.layers, style, None)
        return dropout(tape, norm(tape, x, tower.layers[-1], "final_norm"))


def _head(tape: Tape, x: Tensor, config: ModelConfig) -> Tensor:
    if config.embedding_width != config.hidden:
        x = linear(tape, x, config.embedding_width, "project_out", bias=False)
    return linear(tape, x, config.vocabulary, "lm_head", config.head_bias, shared=config.tied_embeddings)
