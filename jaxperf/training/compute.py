"""Compute of the average layer and of the ends of the model, for one micro-batch on one rank.

Forward products cost 2 FLOP a weight and token, gradients of inputs and of weights as much again each (Kaplan et al.
2020, arXiv:2001.08361); attention is counted over the tokens a query sees; streams are counted in bytes read and
written. The peaks of narrow formats hold for the layers' products alone.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.training.flops import attended_tokens
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.products import HALF_TILE, Phases, Rates, block_phases, linear_phases

NORM_AND_ADD = 5.0  # elements of the residual stream a block touches: norm in and out, sum of two, written
MIXED_STREAMS = 4.0  # the same of n streams and what the block reads: 4 (n + 1), weights, sum, norm, mixed and added to
PERMUTE = 4.0  # elements of a routed row read and written on its way to the expert and back
MIXER_STREAM = 10.0  # elements a channel of a recurrent mixer is touched: convolution, scan, gate and norm
LOSS_FP32 = 8.0  # bytes a logit of fp32 softmax, written and read
UNFUSED_FORWARD = (6.0, 1.0)  # times a score is written or read in 16 bits, and dropout masks: scores, softmax, dropout
UNFUSED_BACKWARD = (9.0, 1.0)


class LayerCompute(eqx.Module):
    """The average layer and one micro-batch, by kind [s]; gradients of streams are all in `vector.backward`."""

    gemm: Phases
    experts: Phases
    attention: Phases
    vector: Phases

    @property
    def total(self) -> Phases:
        """All kinds."""
        return self.gemm + self.experts + self.attention + self.vector


class Ends(eqx.Module):
    """Embedding on the first stage, head and loss on the last, one micro-batch [s]."""

    embedding: Float[Array, "*batch"]
    head: Float[Array, "*batch"]


def routed_rows(model: TrainingModel, layout: Layout) -> Scalar:
    """Rows that the experts of one rank receive when the routing is even: tokens / tensor x topk, gathered again over
    the ranks that share an expert [1]."""
    return layout.tokens / layout.tensor * model.topk * layout.expert_tensor


def layer_compute(model: TrainingModel, layout: Layout, rates: Rates, imbalance: Scalar) -> LayerCompute:
    """Forward and backward of the average layer.

    **Arguments:** scalar leaves; `imbalance`: rows of the busiest rank's experts over the mean [1].
    **Returns:** `LayerCompute` [s], of one micro-batch on one rank, without recomputation.
    """
    return LayerCompute(
        gemm=_dense_products(model, layout, rates) + _adapter_products(model, layout, rates),
        experts=_expert_products(model, layout, rates, imbalance),
        attention=_attention(model, layout, rates) + _scan(model, layout, rates),
        vector=_streams(model, layout, rates, imbalance),
    )


def ends_compute(model: TrainingModel, layout: Layout, rates: Rates) -> Ends:
    """Token table, output head with its loss: the head stays in 16 bits, its softmax in fp32."""
    rows, columns, itemsize = layout.tokens, model.vocab / layout.tensor, layout.activation_bytes
    head = linear_phases(
        rates, rates.plain, rows, columns, model.hidden, layout, operand=itemsize, groups=as_float(1.0)
    )
    loss = rows * columns * (3.0 * itemsize + LOSS_FP32) / rates.memory
    table = rows * model.hidden / layout.residual_split * 5.0 * itemsize / rates.memory  # gather, then scatter-add
    return Ends(embedding=model.table * table, head=model.head * (head.total + loss))


def _dense_products(model: TrainingModel, layout: Layout, rates: Rates) -> Phases:
    rows, split, one = layout.tokens, layout.tensor, as_float(1.0)
    hidden, rate = model.hidden, rates.matrix
    read = jnp.where(model.output_width > 0.0, model.output_width, model.value_width)
    blocks = (
        (model.attention_layers, model.attention_weights, read),
        (model.mixer_layers, model.mixer_weights, model.mixer_width),
        (model.dense_layers, model.dense_ffn_weights, model.ffn_width),
        (model.moe_layers, model.shared_weights, model.shared_width),
    )
    router = linear_phases(
        rates,
        rates.plain,
        rows / layout.residual_split,
        model.router / hidden,
        hidden,
        layout,
        operand=layout.activation_bytes,
        groups=one,
    )
    total = router * (model.moe_layers / model.layers)
    for count, weights, width in blocks:
        phases = block_phases(rates, rate, rows, hidden, weights, width, split, layout, one)
        total = total + phases * (count / model.layers)
    return total


def _expert_products(model: TrainingModel, layout: Layout, rates: Rates, imbalance: Scalar) -> Phases:
    local = model.experts / layout.expert
    rows = jnp.where(model.topk > 0.0, routed_rows(model, layout) * imbalance / local + HALF_TILE, 0.0)
    phases = block_phases(
        rates,
        rates.grouped,
        rows,
        model.expert_hidden,
        model.expert_weights,
        model.expert_width,
        layout.expert_tensor,
        layout,
        local,
    )
    return phases * (model.moe_layers / model.layers)


def _attention(model: TrainingModel, layout: Layout, rates: Rates) -> Phases:
    """Two products forward; five backward in flash attention, which computes the scores again (Dao 2023,
    arXiv:2307.08691, section 3.1), four where they were kept. Unfused attention multiplies masked scores too and
    moves every score through memory."""
    flash = layout.flash > 0.0
    score, value = model.score_width, model.value_width
    tokens = layout.tokens / layout.tensor
    seen = jnp.where(flash, attended_tokens(model, layout.sequence), layout.sequence)
    scores = tokens * model.heads * layout.sequence

    def traffic(passes: tuple[float, float]) -> Scalar:
        return jnp.where(flash, 0.0, scores * (passes[0] * layout.activation_bytes + passes[1]) / rates.memory)

    unit = 2.0 * tokens * seen
    share = model.attention_layers / model.layers
    backward = jnp.where(flash, 3.0 * score + 2.0 * value, 2.0 * (score + value))
    return Phases(
        share * (unit * (score + value) / rates.attention + traffic(UNFUSED_FORWARD)),
        share * (unit * backward / rates.attention_backward + traffic(UNFUSED_BACKWARD)),
        as_float(0.0),
    )


def _scan(model: TrainingModel, layout: Layout, rates: Rates) -> Phases:
    """State updates of recurrent mixers, twice as many backward."""
    forward = layout.tokens / layout.tensor * model.state_flops / rates.scan * (model.mixer_layers / model.layers)
    return Phases(forward, 2.0 * forward, as_float(0.0))


def _streams(model: TrainingModel, layout: Layout, rates: Rates, imbalance: Scalar) -> Phases:
    """Norms, sums, rotary embedding, activations, permutations, casts and adapters, by the bytes they move."""
    itemsize, split = layout.activation_bytes, layout.tensor
    attention, mixer, dense, moe = (
        count / model.layers
        for count in (model.attention_layers, model.mixer_layers, model.dense_layers, model.moe_layers)
    )
    blocks = attention + mixer + dense + moe
    routed = routed_rows(model, layout) / layout.tokens * imbalance
    activation = 2.0 + model.gated
    rotary = 2.0 * (model.score_width + 0.5 * model.kv_width)
    touched = jnp.where(model.streams > 1.0, MIXED_STREAMS * (model.streams + 1.0), NORM_AND_ADD)
    residual = blocks * model.hidden * (touched * itemsize + model.dropout) / layout.residual_split
    inner = (
        attention * rotary / split
        + mixer * MIXER_STREAM * model.mixer_width / split
        + dense * activation * model.ffn_width / split
        + moe * activation * model.shared_width / split
        + moe * routed * (activation * model.expert_width / layout.expert_tensor + PERMUTE * model.expert_hidden)
    ) * itemsize
    forward = residual + inner + _adapters(model, layout)
    casts = layout.quantized * (itemsize + 2.0 * layout.operand_bytes) * _product_inputs(model, layout, routed)
    per_byte = layout.tokens / rates.memory
    return Phases((forward + casts) * per_byte, (2.0 * forward + casts) * per_byte, as_float(0.0))


def _product_inputs(model: TrainingModel, layout: Layout, routed: Scalar) -> Scalar:
    """Elements a token of the average layer that enter products, on one rank [1]."""
    dense = (
        model.attention_layers * (model.hidden + model.value_width / layout.tensor)
        + model.mixer_layers * (model.hidden + model.mixer_width / layout.tensor)
        + model.dense_layers * (model.hidden + model.ffn_width / layout.tensor)
        + model.moe_layers * routed * (model.expert_hidden + model.expert_width / layout.expert_tensor)
    )
    return dense / model.layers


def _adapter_products(model: TrainingModel, layout: Layout, rates: Rates) -> Phases:
    """What the products of adapters take beyond the streams they run beside, which are longer at usual ranks: 2 r (in +
    out) FLOP a token forward and for either gradient (Hu et al. 2021, arXiv:2106.09685)."""
    flops = 2.0 * layout.lora_rank * model.active_layer_adapters / layout.tensor
    beyond = layout.tokens * jnp.maximum(flops / rates.matrix - _adapters(model, layout) / rates.memory, 0.0)
    return Phases(beyond, beyond, beyond)


def _adapters(model: TrainingModel, layout: Layout) -> Scalar:
    """Bytes a token that adapters read and add in a pass."""
    used = jnp.where(layout.lora_rank > 0.0, 1.5, 0.0)  # inputs read, outputs read and written
    return used * layout.activation_bytes * model.active_layer_adapters / layout.tensor
