"""FLOP of a training step, and the counts they share with its time and memory."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.recompute import computed_again, layer_again


def attended_tokens(model: TrainingModel, sequence: Scalar) -> Scalar:
    """Mean tokens a query sees over the attention layers: s / 2 causal, s otherwise, w - w^2 / 2s in a window, and what
    it sees of compressed ones [1]."""
    share = model.window_layers / jnp.maximum(model.attention_layers, 1.0)
    full = scored_tokens(model, sequence)
    seen = full + share * (_windowed(model, model.window, sequence) - full)
    return seen + model.entries * full + model.chosen * _windowed(model, model.chosen_window, sequence)


def scored_tokens(model: TrainingModel, sequence: Scalar) -> Scalar:
    """Mean tokens before a query, all of which an indexer scores [1]."""
    return jnp.where(model.causal > 0.0, 0.5 * sequence, sequence)


def _windowed(model: TrainingModel, width: Scalar, sequence: Scalar) -> Scalar:
    """Mean tokens in a window of a `width`, 0 for none [1]."""
    window = jnp.minimum(jnp.where(width > 0.0, width, sequence), sequence)
    return jnp.where(model.causal > 0.0, window - 0.5 * window * window / sequence, window)


def key_width(model: TrainingModel, layout: Layout) -> Scalar:
    """Elements of keys and values a token on one rank: of its share of their heads, and of one at least. Where Ulysses
    gives queries to more ranks than there are such heads, heads are copied (arXiv:2506.13996) [1]."""
    heads = jnp.maximum(model.kv_heads / layout.tensor, 1.0)
    copies = jnp.where(layout.context_method > 1.5, jnp.maximum(layout.context / heads, 1.0), 1.0)
    return model.kv_width / model.kv_heads * heads * copies


def step_flops(model: TrainingModel, layout: Layout) -> tuple[Scalar, Scalar]:
    """(useful, issued) FLOP of one step over all devices: issued ones count recomputation too.

    6 a weight and token, 4 where weights are frozen (no product for their gradients), 6 an adapter's; of experts those
    that a token visits, however they are laid out; attention over the tokens that are seen; three times the scan's. The
    MFU convention of PaLM (arXiv:2204.02311, appendix B) with causal attention halved.
    """
    tokens = layout.global_batch * layout.sequence
    seen = attended_tokens(model, layout.sequence)
    choosing = model.choosing_flops * scored_tokens(model, layout.sequence)
    attention = model.attention_layers * (2.0 * (model.score_width + model.value_width) * seen + choosing)
    layers = 2.0 * (model.layers * model.active_layer_parameters + model.beside_layers * model.beside_weights)
    adapters = 2.0 * layout.lora_rank * model.active_layer_adapters * model.layers
    passes = 3.0 - layout.frozen
    core = attention + model.mixer_layers * model.state_flops
    heads = 2.0 * (model.head + model.further) * model.embedding + 2.0 * model.further_weights
    useful = passes * (layers + heads) + 3.0 * (core + adapters)
    routed = model.moe_layers * (model.topk * model.expert_weights + model.router)
    again = layer_again(
        computed_again(layout),
        whole=layers + core,
        core=attention,
        up=2.0 * model.attention_layers * model.up_weights,
        dense=2.0 * model.dense_layers * model.dense_ffn_weights,
        experts=2.0 * routed,
        shared=2.0 * model.moe_layers * model.shared_weights,
    )
    return tokens * useful, tokens * (useful + again)
