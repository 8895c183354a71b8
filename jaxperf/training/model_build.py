"""`TrainingModel` of a model description, or of the sizes a table of training runs gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hwspecs.errors import InputError
from jaxperf.models.blocks.moe import group_limit
from jaxperf.models.checks import MOST_LAYERS, check_count
from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.feedforward import Mlp, Moe
from jaxperf.models.mixers import Attention, Mla
from jaxperf.models.parameters import further_norms, parameter_count
from jaxperf.network.limited_routing import hits_table
from jaxperf.training.even_shares import share_fields
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_fields import (
    Attends,
    attention_fields,
    dense_fields,
    expert_fields,
    layer_matrices,
    mean,
    mixer_fields,
)


def training_model(config: ModelConfig, dropout: bool = False, mtp: int = 0) -> TrainingModel:
    """The numbers of a described model; `parameters` is exactly its `parameter_count`.

    With `mtp` further tokens predicted, one layer each is one more of the model's: those of the description, then
    copies of its last one; `parameters` then count them (`mtp_parameter_count`).

    Sizes that differ among layers are averaged over the layers of one kind, so that weights are exact; groups of
    experts are those of the first layer that has some. A tower beside the language model (images, sound) is stored but
    not computed; a text encoder predicts tokens over its own table.

    **Raises:** `InputError` for an encoder-decoder, whose two token streams one step does not describe. What else is
    left out is in `training_notes`.
    """
    further = further_layers(config, mtp)
    config = dataclasses.replace(config, layers=(*config.layers, *further))
    layers, vocabulary = _layers(config)
    mixers = [mixer for layer in layers for mixer in (layer.mixer, layer.beside) if mixer is not None]
    fields = {
        **attention_fields([mixer for mixer in mixers if isinstance(mixer, Attends)], config.hidden),
        **mixer_fields([mixer for mixer in mixers if not isinstance(mixer, Attends)], config.hidden),
        **dense_fields([layer.ffn for layer in layers if isinstance(layer.ffn, Mlp)], config.hidden),
        **expert_fields([layer.ffn for layer in layers if isinstance(layer.ffn, Moe)], config.hidden),
        **share_fields(layers),
    }
    blocks = [layer.ffn for layer in layers if layer.ffn is not None]
    beside = [size for layer in layers if (size := layer.projection_elements)]
    numbers = {
        "layers": len(layers),
        "hidden": config.hidden,
        "vocab": vocabulary,
        "tied": float(config.tied_embeddings),
        "beside_layers": len(beside),
        "beside_weights": mean(beside, float),
        "streams": max(layer.streams for layer in layers),
        "dropout": float(dropout),
        "mtp": len(further),
        "gated": mean(blocks, lambda block: float(block.gated), 1.0),
        **fields,
    }
    tables = (2 - config.tied_embeddings) * vocabulary * config.hidden
    counted = tables + sum(layer_matrices(layer, config.hidden) for layer in layers)
    sparse = [block for block in blocks if isinstance(block, Moe)]
    limit = group_limit(sparse[0]) if sparse else None
    hits = None if limit is None else hits_table(limit)
    others = parameter_count(config) - counted + len(further) * further_norms(config)
    return TrainingModel(**numbers, other_parameters=others, hits=hits)


def further_layers(config: ModelConfig, mtp: int) -> tuple[Layer, ...]:
    """The layers that predict `mtp` further tokens: those of the description, then its last one again.

    **Raises:** `InputError` for a number that is none of layers, or a model without a stream of tokens to go on with.
    """
    check_count("mtp", mtp, 0, MOST_LAYERS)
    if mtp and not config.layers:
        raise InputError(f"Model '{config.name}' has no decoder layers, and so predicts no further tokens (mtp).")
    described = config.mtp_layers or config.layers[-1:]
    return (*described, *described[-1:] * mtp)[:mtp]


def training_notes(config: ModelConfig, mtp: int = 0) -> tuple[str, ...]:
    """What a training step of a described model that predicts `mtp` further tokens is not told of it, a sentence
    each."""
    notes = []
    if any(layer.streams > 1 for layer in config.layers):
        notes.append("the projections that streams of the residual are mixed by are left out, as they are small")
    if config.mtp_layers and not mtp:
        notes.append("layers that predict further tokens (mtp) are left out")
    return tuple(notes)


def training_model_from_shape(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ffn: int,
    gated: bool,
    vocab: int,
    experts: int = 0,
    topk: int = 0,
    moe_ffn: int = 0,
    shared_experts: int = 0,
    *,
    dense_layers: int = 0,
    tied: bool = False,
    causal: bool = True,
    dropout: bool = False,
    positions: int = 0,
    mtp: int = 0,
    q_lora_rank: int = 0,
    kv_lora_rank: int = 0,
    qk_nope_head_dim: int = 0,
    qk_rope_head_dim: int = 0,
    v_head_dim: int = 0,
) -> TrainingModel:
    """A uniform transformer from its sizes; with `experts`, all but the first `dense_layers` have them.

    `shared_experts` are as wide as a routed one; `positions` rows of a learned table. All sizes are counts [1].

    **Raises:** `InputError` for sizes that make no model, with the field and what is allowed.
    """
    check_count("layers", layers, largest=MOST_LAYERS)
    latent = (q_lora_rank or None, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim)
    attention = Mla(heads, *latent) if kv_lora_rank else Attention(heads, kv_heads, head_dim, causal=causal)
    dense = Mlp(ffn, gated)
    sparse = Moe(experts, topk, moe_ffn, gated, shared_experts * moe_ffn) if experts else dense
    first = min(dense_layers, layers) if experts else 0
    config = ModelConfig(
        name="shape",
        architecture="shape",
        hidden=hidden,
        vocabulary=vocab,
        layers=(Layer(attention, dense, norm_bias=not gated),) * first
        + (Layer(attention, sparse, norm_bias=not gated),) * (layers - first),
        tied_embeddings=tied,
        positions=positions,
        embedding_width=hidden,
        final_norm=True,
        norm_bias=not gated,
        max_context=None,
        weight_format="bf16",
    )
    return training_model(config, dropout, mtp)


def _layers(config: ModelConfig) -> tuple[Sequence[Layer], int]:
    """The layers that read the tokens and the rows of their token table; those of BERT are in its one tower."""
    towers = config.encoders
    if not config.layers and len(towers) == 1 and towers[0].kind == "text":
        tokens = sum(table.rows for table in towers[0].tables if table.name == "tokens")
        return towers[0].layers, towers[0].vocabulary or tokens
    if not config.layers or any(layer.cross is not None for layer in config.layers):
        raise InputError(
            f"Model '{config.name}' has no single stream of tokens; a training step is modelled for decoders and for "
            "text encoders, not for encoder-decoders or vision towers."
        )
    return config.layers, config.vocabulary
