"""Memory of the fullest pipeline stage: states by ZeRO stage, activations of the live micro-batches, buffers.

States follow Rajbhandari et al. 2020 (arXiv:1910.02054, section 3). Activations follow the count of Korthikanti et al.
2022 (arXiv:2205.05198, section 4), tensor by tensor, so that gated, grouped-query and expert layers have their own.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar
from jaxperf.training.compute import routed_rows
from jaxperf.training.flops import key_width
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.recompute import computed_again, layer_again
from jaxperf.training.schedules import live_microbatches
from jaxperf.training.stages import Stage, rank_stages

SCORE_COPIES = 2.0  # unfused attention keeps its softmax and what dropout made of it
LOGIT_FP32 = 4.0  # bytes a logit of the fp32 copy that the loss reads
FURTHER_ROWS = 4.0  # of the residual that a further token keeps: both inputs, and both again for the projection
LOG_SUM = 4.0  # bytes a head and row that flash attention keeps of its softmax


class StageMemory(eqx.Module):
    """Bytes on one rank of the fullest stage, by kind; `reserved` of runtime, communicators and fragmentation; `host`:
    what is offloaded, in the memory of its host [byte]."""

    weights: Float[Array, "*batch"]
    gradients: Float[Array, "*batch"]
    optimizer: Float[Array, "*batch"]
    activations: Float[Array, "*batch"]
    temporary: Float[Array, "*batch"]
    reserved: Float[Array, "*batch"]
    host: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """All that is on the device [byte]."""
        states = self.weights + self.gradients + self.optimizer
        return states + self.activations + self.temporary + self.reserved


class StageParameters(eqx.Module):
    """Parameters on one rank before ZeRO splits them: `dense` over the data-parallel or shard group, `experts` over
    the copies of an expert there; `dense_adapters` and `expert_adapters` of LoRA, split as what they adapt; `layer` one
    layer's of `dense` and `expert_layer` one layer's of `experts` [1]."""

    dense: Float[Array, "*batch"]
    experts: Float[Array, "*batch"]
    dense_adapters: Float[Array, "*batch"]
    expert_adapters: Float[Array, "*batch"]
    layer: Float[Array, "*batch"]
    expert_layer: Float[Array, "*batch"]

    def learned(self, layout: Layout) -> tuple[Scalar, Scalar]:
        """(dense, experts) that have gradients: the adapters alone where the weights are frozen [1]."""
        weights = 1.0 - layout.frozen
        return weights * self.dense + self.dense_adapters, weights * self.experts + self.expert_adapters

    def split_layer(self, layout: Layout) -> Scalar:
        """Of one layer's, what other ranks have copies of, so that ZeRO can split it [1]."""
        dense = jnp.where(layout.shard > 1.0, self.layer, 0.0)
        return dense + jnp.where(layout.expert_shard > 1.0, self.expert_layer, 0.0)


def kept_parameters(layout: Layout, dense: Scalar, experts: Scalar, sharded: Bool[Array, ""]) -> Scalar:
    """Of the `dense` and `experts` of a stage, what one rank keeps: where `sharded`, its share of the group that has
    copies of them [1]."""
    return dense / jnp.where(sharded, layout.shard, 1.0) + experts / jnp.where(sharded, layout.expert_shard, 1.0)


def stage_parameters(model: TrainingModel, layout: Layout, layers: Scalar, tables: Scalar) -> StageParameters:
    """Of a stage with `layers` layers and `tables` token tables (embedding or head)."""
    vectors = model.other_parameters / model.layers  # replicated over tensor ranks, spread over the layers
    layer = model.dense_layer_parameters / layout.tensor + vectors
    expert_split = layout.expert * layout.expert_tensor
    expert_layer = model.expert_layer_parameters / expert_split
    adapters = layers * layout.lora_rank  # for each of their inputs and outputs
    return StageParameters(
        dense=layers * layer + tables * model.embedding / layout.tensor,
        experts=layers * expert_layer,
        dense_adapters=adapters * model.dense_layer_adapters / layout.tensor,
        expert_adapters=adapters * model.expert_layer_adapters / expert_split,
        layer=layer,
        expert_layer=expert_layer,
    )


def stage_memory(model: TrainingModel, layout: Layout, imbalance: Scalar, reserved: Scalar) -> StageMemory:
    """Bytes of the fullest of the first, the second and the last rank, with what is `reserved`.

    The first has the embedding and most live micro-batches, the last the head and the logits (in ZB-V the first, too),
    the second may have more layers than either.

    **Arguments:** scalar leaves; `imbalance` [1]; `reserved` [byte]. **Returns:** `StageMemory` [byte].
    """
    ranks = zip(rank_stages(model, layout), live_microbatches(layout), strict=True)
    fullest, *others = (_one_stage(model, layout, stage, live, imbalance) for stage, live in ranks)
    for other in others:
        fullest = _fuller(fullest, other)
    return dataclasses.replace(fullest, reserved=reserved)


def _fuller(one: StageMemory, other: StageMemory) -> StageMemory:
    fuller = other.total > one.total
    return jax.tree.map(lambda mine, others: jnp.where(fuller, others, mine), one, other)


def _one_stage(model: TrainingModel, layout: Layout, stage: Stage, live: Scalar, imbalance: Scalar) -> StageMemory:
    tables = stage.tables(model)
    own = stage_parameters(model, layout, stage.layers, tables)
    learned = own.learned(layout)
    weights = kept_parameters(layout, own.dense, own.experts, layout.split_weights > 0.0)
    weights = weights + own.dense_adapters + own.expert_adapters
    held = layout.copies  # stages of a rank
    layer = own.split_layer(layout)
    table = jnp.where((tables > 0.0) & (layout.shard > 1.0), model.embedding / layout.tensor, 0.0)
    live_weights = layer + jnp.maximum(layer, table)  # the present one and the next: at the ends of the model a table
    gathered = layout.split_weights * live_weights * layout.weight_bytes
    logits = layout.tokens * model.vocab / layout.tensor * (layout.activation_bytes + LOGIT_FP32)
    row = layer_input(model, layout) / model.streams
    heads = (model.head + model.further) * logits + model.further * FURTHER_ROWS * row
    kept = kept_activations(model, layout, imbalance)
    again = jnp.where(layout.recompute > 1.5, layer_activations(model, layout, imbalance), 0.0)  # a layer at a time
    again = again + dropped_activations(model, layout, imbalance)
    activations = stage.layers * live * kept
    updated = held * kept_parameters(layout, *learned, layout.zero > 0.5)
    states, moved = updated * layout.optimizer_bytes, layout.offload_optimizer
    copied = jnp.where(layout.optimizer_bytes > 0.0, moved * updated * layout.gradient_bytes, 0.0)
    return StageMemory(
        weights=held * weights * layout.weight_bytes,
        gradients=held * kept_parameters(layout, *learned, layout.split_gradients > 0.0) * layout.gradient_bytes,
        optimizer=states * (1.0 - moved),
        activations=activations * (1.0 - layout.offload),
        temporary=gathered + again + jnp.where(stage.head > 0.0, 1.0, 0.0) * heads,
        reserved=jnp.zeros_like(gathered),
        host=activations * layout.offload + states * moved + copied,
    )


def kept_activations(model: TrainingModel, layout: Layout, imbalance: Scalar) -> Scalar:
    """What the average layer keeps of one micro-batch: everything its backward pass reads, or with full recomputation
    its input [byte]."""
    layer = layer_activations(model, layout, imbalance)
    recomputed = layer + layout.recomputed_share * (layer_input(model, layout) - layer)
    return jnp.where(layout.recompute > 1.5, recomputed, layer - dropped_activations(model, layout, imbalance))


def dropped_activations(model: TrainingModel, layout: Layout, imbalance: Scalar) -> Scalar:
    """What modules that selective recomputation computes again leave out of it, but for scores (`layer_activations`):
    all inside of feed-forward blocks, outputs of norms, of MLA's projections up and of the experts' activations, which
    the products behind them read [byte]."""
    attention, dense, moe = model.attention_layers, model.dense_layers, model.moe_layers
    blocks, operand = attention + model.mixer_layers + dense + moe, layout.operand_bytes
    mean = layer_again(
        computed_again(layout),
        norms=blocks * model.hidden * operand / layout.residual_split,
        up=attention * model.up_rows / layout.tensor * layout.activation_bytes,
        dense=dense * _dense_inner(model, layout),
        experts=moe * _routed_inner(model, layout, imbalance),
        shared=moe * _shared_inner(model, layout),
        activation=moe * _routed(model, layout, imbalance) * model.expert_width / layout.expert_tensor * operand,
    )
    return layout.tokens * mean / model.layers


def layer_input(model: TrainingModel, layout: Layout) -> Scalar:
    """The residual rows that enter a layer: all that full recomputation keeps of it, 2 s b h / t [byte]."""
    return layout.tokens * model.hidden * model.streams * layout.activation_bytes / layout.residual_split


def layer_activations(model: TrainingModel, layout: Layout, imbalance: Scalar) -> Scalar:
    """What the average layer keeps of one micro-batch for its backward pass, on one rank, without full recomputation.

    With attention, GELU and dropout it is Korthikanti's s b h (34 + 5 a s / h), split or not by tensor and sequence
    parallelism; without dropout 32, with flash attention without the 5 a s / h.
    """
    mean = (
        model.attention_layers * _attention_activations(model, layout)
        + model.mixer_layers * _mixer_activations(model, layout)
        + model.dense_layers * _dense_activations(model, layout)
        + model.moe_layers * _expert_activations(model, layout, imbalance)
    ) / model.layers
    return layout.tokens * mean


def _residual(model: TrainingModel, layout: Layout) -> Scalar:
    """Inputs of the norm and of the first product, the mask of dropout, and several streams, for a token [byte]."""
    inputs = jnp.where(model.streams > 1.0, model.streams + 1.0, 1.0)
    per_element = inputs * layout.activation_bytes + layout.operand_bytes + model.dropout
    return model.hidden * per_element / layout.residual_split


def _attention_activations(model: TrainingModel, layout: Layout) -> Scalar:
    """Queries, keys, values, scores where they are kept, and the input of the output projection: a token [byte]."""
    itemsize, split = layout.activation_bytes, layout.tensor
    scores = model.heads / split * layout.sequence * (SCORE_COPIES * itemsize + model.dropout)
    again = jnp.where(layout.recompute > 1.5, 1.0, computed_again(layout).core)
    softmax = jnp.where(layout.flash > 0.0, LOG_SUM * model.heads / split, (1.0 - again) * scores)
    rows = (model.score_width / split + key_width(model, layout) + model.latent_width) * itemsize
    return _residual(model, layout) + rows + model.value_width / split * layout.operand_bytes + softmax


def _mixer_activations(model: TrainingModel, layout: Layout) -> Scalar:
    """Both halves of the input projection, what the convolution and the scan made of them: a token [byte]."""
    width = model.mixer_width / layout.tensor
    return _residual(model, layout) + width * (4.0 * layout.activation_bytes + layout.operand_bytes)


def _dense_activations(model: TrainingModel, layout: Layout) -> Scalar:
    """Inputs of the activation function, two where gated, and of the second product: a token [byte]."""
    return _residual(model, layout) + _dense_inner(model, layout)


def _expert_activations(model: TrainingModel, layout: Layout, imbalance: Scalar) -> Scalar:
    """Routed rows and what the busiest rank's experts make of them, beside the shared expert: a token [byte]."""
    inside = _routed_inner(model, layout, imbalance) + _shared_inner(model, layout)
    return _residual(model, layout) + inside


def _dense_inner(model: TrainingModel, layout: Layout) -> Scalar:
    return model.ffn_width / layout.tensor * _activation_bytes(model, layout)


def _routed_inner(model: TrainingModel, layout: Layout, imbalance: Scalar) -> Scalar:
    inner = model.expert_width / layout.expert_tensor * _activation_bytes(model, layout)
    rows = model.expert_hidden * (layout.operand_bytes + layout.activation_bytes)  # into the experts and out of them
    return _routed(model, layout, imbalance) * (inner + rows)


def _shared_inner(model: TrainingModel, layout: Layout) -> Scalar:
    return model.shared_width / layout.tensor * _activation_bytes(model, layout)


def _routed(model: TrainingModel, layout: Layout, imbalance: Scalar) -> Scalar:
    """Rows a token that the busiest rank's experts receive [1]."""
    return routed_rows(model, layout) / layout.tokens * imbalance


def _activation_bytes(model: TrainingModel, layout: Layout) -> Scalar:
    return (1.0 + model.gated) * layout.activation_bytes + layout.operand_bytes
