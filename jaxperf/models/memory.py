"""Device memory of one rank on the fullest pipeline stage: weights, KV cache, activations."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.blocks.launch import in_format
from jaxperf.models.blocks.moe import MoeFfn
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.layers import LayerGroup, Tower, Transformer
from jaxperf.models.transformer import in_own_format

# Share of the memory an engine lets itself use; the rest is left to the runtime and to fragmentation.
# vLLM's gpu_memory_utilization has the same default.
USABLE_SHARE = 0.9
LOGIT_ITEMSIZE = 4.0  # sampling works on fp32 logits [byte]


class MemoryUse(eqx.Module):
    """Bytes on the fullest rank; `usable` is what an engine may take of the device's capacity [byte]."""

    weights: Float[Array, "*batch"]
    kv_cache: Float[Array, "*batch"]
    activations: Float[Array, "*batch"]
    usable: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """Weights, KV cache and activations together [byte]."""
        return self.weights + self.kv_cache + self.activations


def memory_use(
    deployment: Deployment,
    model: Transformer,
    sequences: Scalar,
    length: Scalar,
    tokens: Scalar,
    source: Scalar | None = None,
    positions: Scalar | None = None,
    outputs: Scalar | None = None,
) -> MemoryUse:
    """Memory for `sequences` sequences of one attention replica that grow to `length` tokens each.

    **Arguments:** `tokens`: the most tokens one step works on at once (the prompt, in prefill) [1]; `source`: tokens
    of encoders that each sequence reads by cross-attention, None for none [1]; `positions`: the most positions that
    encoders work on at once, None for none [1]; `outputs`: positions that have logits at once, None for one of each
    sequence that has a token [1].
    """
    logits = jnp.minimum(sequences, tokens) if outputs is None else outputs
    return MemoryUse(
        weights=weight_bytes(deployment, model),
        kv_cache=kv_cache_bytes(deployment, model, sequences, length, source),
        activations=activation_bytes(deployment, model, tokens, logits, positions),
        usable=deployment.device.memory_capacity * USABLE_SHARE,
    )


def stage_share(model: Transformer, layout: Parallelism) -> Scalar:
    """Share of the layers on the fullest stage: ceil(layers / stages) / layers; 1 without layers [1]."""
    if not model.groups:
        return as_float(1.0)
    return ceil_div(model.num_layers, layout.pipeline_parallel) / model.num_layers


def weight_bytes(deployment: Deployment, model: Transformer) -> Scalar:
    """Matrices in the weight format, all else unquantized; biases are left out (below 0.1 %) [byte].

    Encoders are on the first stage, split over the tensor-parallel ranks like the layers.
    """
    layout, itemsize = deployment.layout, deployment.activations.itemsize
    layers = group_weight_bytes(deployment, model.hidden, model.groups)
    # With several stages the first holds the embedding and the last the head: the fullest holds one of them.
    tables = jnp.where(layout.pipeline_parallel > 1.0, 1.0, 1.0 + model.output_tables)
    rows = ceil_div(model.vocabulary, layout.tensor_parallel) * tables
    ends = rows * model.embedding_width + model.positions * model.hidden + model.extra
    ends = ends + model.tables / layout.tensor_parallel
    if model.projected:
        ends = ends + 2.0 * model.embedding_width * model.hidden
    towers = [_tower_weight_bytes(deployment, tower) for tower in model.towers]
    return sum(towers, start=layers * stage_share(model, layout) + ends * itemsize)


def group_weight_bytes(deployment: Deployment, hidden: Scalar, groups: Sequence[LayerGroup]) -> Scalar:
    """Weights of all layers of the groups on one rank [byte]."""
    total = as_float(0.0)
    for group in (group for group in groups if group.stored):
        beside = sum((inputs * outputs for inputs, outputs in group.projections), start=group.extra)
        stored = (group.norms * hidden + beside) * deployment.activations.itemsize
        for block, kind in group.blocks:
            formats = in_own_format(deployment, group, kind)
            stored = stored + block.matrix_elements(hidden, formats.layout) * formats.weights.itemsize
            stored = stored + block.other_elements(hidden, formats.layout) * formats.activations.itemsize
        if isinstance(group.ffn, MoeFfn) and group.ffn.shared_format is not None:
            itemsize = in_format(deployment, group.ffn.shared_format).weights.itemsize
            stored = stored + group.ffn.shared_elements(hidden, deployment.layout) * itemsize
        total = total + group.repeats * stored
    return total


def _tower_weight_bytes(deployment: Deployment, tower: Tower) -> Scalar:
    """Layers, tables, patch embedding and projector of one encoder [byte]."""
    rows = ceil_div(tower.vocabulary, deployment.layout.tensor_parallel) + tower.positions + tower.input_depth
    rest = rows * tower.hidden + tower.projector + tower.extra
    return group_weight_bytes(deployment, tower.hidden, tower.groups) + rest * deployment.activations.itemsize


def kv_cache_bytes(
    deployment: Deployment, model: Transformer, sequences: Scalar, length: Scalar, source: Scalar | None = None
) -> Scalar:
    """What all layers of the stage keep of their sequences: keys and values, latents, recurrent states [byte].

    Windowed layers keep their window only, recurrent ones the same state at any length; the encoder's keys and values
    are kept once for each sequence.
    """
    layout = deployment.layout
    elements, states = as_float(0.0), as_float(0.0)
    for group in model.groups:
        for mixer in group.mixers:
            elements = elements + group.repeats * mixer.cached_elements(layout, length)
            states = states + group.repeats * mixer.state_bytes(layout, deployment.activations.itemsize)
        if group.cross is not None and source is not None:
            elements = elements + group.repeats * group.cross.cached_elements(layout, source)
    return (elements * deployment.cache.itemsize + states) * stage_share(model, layout) * sequences


def activation_bytes(
    deployment: Deployment, model: Transformer, tokens: Scalar, outputs: Scalar, positions: Scalar | None = None
) -> Scalar:
    """Largest set of tensors alive at once in one layer, or the logits [byte].

    Alive while the feed-forward runs: residual, normed input, up (and gate) output, its activation; while a mixer
    runs: what its projections put out and take in. Inference keeps no activation of an earlier layer.
    """
    itemsize = deployment.activations.itemsize
    alive = tokens * widest_layer(deployment.layout, model.hidden, model.groups) * itemsize
    if positions is not None:
        for tower in model.towers:
            encoding = positions * widest_layer(deployment.layout, tower.hidden, tower.groups) * itemsize
            alive = jnp.maximum(alive, encoding)
    return jnp.maximum(alive, outputs * model.vocabulary * LOGIT_ITEMSIZE)


def widest_layer(layout: Parallelism, hidden: Scalar, groups: Sequence[LayerGroup]) -> Scalar:
    """Elements per token alive at once in the widest layer: the residual, its norm, what the widest block holds [1]."""
    widest, streams = as_float(0.0), max((group.streams for group in groups), default=1)
    for group in groups:
        for mixer in group.mixers:
            widest = jnp.maximum(widest, mixer.matrix_elements(hidden, layout) / hidden)  # columns in and out
        if group.ffn is not None:
            widest = jnp.maximum(widest, group.ffn.alive(hidden, layout))
    return (1.0 + streams) * hidden + widest
