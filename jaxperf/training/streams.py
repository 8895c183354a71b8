"""Elementwise work of a layer as elements that it reads and writes: norms, sums, rotary embedding, activations,
permutations, casts and adapters. All of a token of the average layer on one rank."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.recompute import Again, layer_again

NORM = 2.0  # elements of the residual stream a norm touches: read and written
NORM_AND_ADD = 5.0  # and a block: norm in and out, sum of two, written
MIXED_STREAMS = 4.0  # the same of n streams and what the block reads: 4 (n + 1), weights, sum, norm, mixed and added to
PERMUTE = 4.0  # elements of a routed row read and written on its way to the expert and back
MIXER_STREAM = 10.0  # elements a channel of a recurrent mixer is touched: convolution, scan, gate and norm


def block_elements(model: TrainingModel, layout: Layout, routed: Scalar) -> dict[str, Scalar]:
    """Elements that the blocks touch between their products; `routed` rows a token [1]."""
    split, activation = layout.tensor, 2.0 + model.gated
    moe = model.moe_layers / model.layers
    act = routed * activation * model.expert_width / layout.expert_tensor
    return {
        "rotary": model.attention_layers / model.layers * 2.0 * (model.score_width + 0.5 * model.kv_width) / split,
        "mixer": model.mixer_layers / model.layers * MIXER_STREAM * model.mixer_width / split,
        "dense": model.dense_layers / model.layers * activation * model.ffn_width / split,
        "shared": moe * activation * model.shared_width / split,
        "activation": moe * act,
        "permutation": moe * routed * PERMUTE * model.expert_hidden,
    }


def residual_bytes(model: TrainingModel, layout: Layout) -> Scalar:
    """Norms and sums around all blocks [byte]."""
    touched = jnp.where(model.streams > 1.0, MIXED_STREAMS * (model.streams + 1.0), NORM_AND_ADD)
    per_element = touched * layout.activation_bytes + model.dropout
    return _blocks(model) * model.hidden * per_element / layout.residual_split


def forward_bytes(model: TrainingModel, layout: Layout, routed: Scalar) -> Scalar:
    """What the forward pass reads and writes between its products, without casts [byte]."""
    elements = sum(block_elements(model, layout, routed).values())
    return residual_bytes(model, layout) + elements * layout.activation_bytes + adapter_bytes(model, layout)


def cast_bytes(model: TrainingModel, layout: Layout, routed: Scalar) -> Scalar:
    """Casts of the elements that enter products to a narrow format, in two layouts [byte]."""
    return _per_cast(layout) * sum(_product_inputs(model, layout, routed).values())


def bytes_again(model: TrainingModel, layout: Layout, again: Again, routed: Scalar) -> Scalar:
    """What is read and written once more where modules are computed `again` [byte]."""
    elements, inputs = block_elements(model, layout, routed), _product_inputs(model, layout, routed)
    expert = elements["activation"] + elements["permutation"]
    touched = layer_again(
        again,
        norms=NORM * _blocks(model) * model.hidden / layout.residual_split,
        up=elements["rotary"],
        dense=elements["dense"],
        experts=expert,
        shared=elements["shared"],
        activation=elements["activation"],
    )
    cast = layer_again(
        again,
        norms=inputs["norms"],
        dense=inputs["dense"],
        experts=inputs["rows"] + inputs["activation"],
        activation=inputs["activation"],
    )
    return touched * layout.activation_bytes + _per_cast(layout) * cast


def adapter_bytes(model: TrainingModel, layout: Layout) -> Scalar:
    """What adapters read and add in a pass [byte]."""
    used = jnp.where(layout.lora_rank > 0.0, 1.5, 0.0)  # inputs read, outputs read and written
    return used * layout.activation_bytes * model.active_layer_adapters / layout.tensor


def _blocks(model: TrainingModel) -> Scalar:
    return (model.attention_layers + model.mixer_layers + model.dense_layers + model.moe_layers) / model.layers


def _per_cast(layout: Layout) -> Scalar:
    return layout.quantized * (layout.activation_bytes + 2.0 * layout.operand_bytes)


def _product_inputs(model: TrainingModel, layout: Layout, routed: Scalar) -> dict[str, Scalar]:
    """Elements that enter products in the layers' format [1]."""
    read = model.attention_layers + model.mixer_layers + model.dense_layers
    values = model.attention_layers * model.value_width + model.mixer_layers * model.mixer_width
    found = {
        "norms": read * model.hidden,
        "values": values / layout.tensor,
        "dense": model.dense_layers * model.ffn_width / layout.tensor,
        "rows": model.moe_layers * routed * model.expert_hidden,
        "activation": model.moe_layers * routed * model.expert_width / layout.expert_tensor,
    }
    return {name: elements / model.layers for name, elements in found.items()}
