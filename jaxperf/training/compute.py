"""Compute of the average layer and of the ends of the model, for one micro-batch on one rank.

Forward products cost 2 FLOP a weight and token, gradients of inputs and of weights as much again each (Kaplan et al.
2020, arXiv:2001.08361); attention is counted over the tokens a query sees; streams are counted in bytes read and
written. The peaks of narrow formats hold for the layers' products alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.training.flops import attended_tokens, scored_tokens
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.products import HALF_TILE, Phases, Rates, block_phases, linear_phases, product_time
from jaxperf.training.recompute import computed_again, layer_again
from jaxperf.training.streams import NORM, adapter_bytes, bytes_again, cast_bytes, forward_bytes

LOSS_FP32 = 8.0  # bytes a logit of fp32 softmax, written and read
SCORE = 4.0  # bytes of an indexer's score
UNFUSED_FORWARD = (6.0, 1.0)  # times a score is written or read in 16 bits, and dropout masks: scores, softmax, dropout
UNFUSED_BACKWARD = (9.0, 1.0)


class LayerCompute(eqx.Module):
    """The average layer and one micro-batch, by kind [s]; gradients of streams are all in `vector.backward`; modules
    that are computed `again` besides, whole layers not among them."""

    gemm: Phases
    experts: Phases
    attention: Phases
    vector: Phases
    again: Float[Array, "*batch"]

    @property
    def total(self) -> Phases:
        """All kinds, once."""
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
    **Returns:** `LayerCompute` [s], of one micro-batch on one rank.
    """
    products, core = _dense_products(model, layout, rates), _attention(model, layout, rates)
    experts = _expert_products(model, layout, rates, imbalance)
    routed = routed_rows(model, layout) / layout.tokens * imbalance
    first, *others = (*products.values(), _adapter_products(model, layout, rates))
    return LayerCompute(
        gemm=sum(others, start=first),
        experts=experts,
        attention=core + _scan(model, layout, rates),
        vector=_streams(model, layout, rates, routed),
        again=_computed_again(model, layout, rates, products, experts, core, routed),
    )


def ends_compute(model: TrainingModel, layout: Layout, rates: Rates) -> Ends:
    """Token table, output head with its loss: the head stays in 16 bits, its softmax in fp32. Each further token that a
    position predicts visits the head, and before its layer the table, three norms and a projection of two rows."""
    rows, columns, itemsize = layout.tokens, model.vocab / layout.tensor, layout.activation_bytes
    head = linear_phases(
        rates, rates.plain, rows, columns, model.hidden, layout, operand=itemsize, groups=as_float(1.0)
    )
    loss = rows * columns * (3.0 * itemsize + LOSS_FP32) / rates.memory
    streamed = rows * model.hidden / layout.residual_split * itemsize / rates.memory
    table = 5.0 * streamed  # gather, then scatter-add
    joined = linear_phases(
        rates,
        rates.matrix,
        rows,
        model.hidden / layout.tensor,
        2.0 * model.hidden,
        layout,
        operand=layout.operand_bytes,
        groups=as_float(1.0),
    )
    norms = 3.0 * (NORM + 2.0 * NORM) * streamed  # of both inputs and before the head; backward twice the forward
    further = model.further * (head.total + loss + joined.total + norms + table)
    return Ends(embedding=model.table * table, head=model.head * (head.total + loss) + further)


def _dense_products(model: TrainingModel, layout: Layout, rates: Rates) -> dict[str, Phases]:
    rows, split, one = layout.tokens, layout.tensor, as_float(1.0)
    hidden, rate = model.hidden, rates.matrix
    read = jnp.where(model.output_width > 0.0, model.output_width, model.value_width)
    blocks = {
        "attention": (model.attention_layers, model.attention_weights, read),
        "mixer": (model.mixer_layers, model.mixer_weights, model.mixer_width),
        "dense": (model.dense_layers, model.dense_ffn_weights, model.ffn_width),
        "shared": (model.moe_layers, model.shared_weights, model.shared_width),
    }
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
    beside = linear_phases(
        rates, rate, rows, model.beside_weights / hidden, hidden, layout, operand=layout.operand_bytes, groups=one
    )
    found = {
        "router": router * (model.moe_layers / model.layers),
        "beside": beside * (model.beside_layers / model.layers),
    }
    for name, (count, weights, width) in blocks.items():
        phases = block_phases(rates, rate, rows, hidden, weights, width, split, layout, one)
        found[name] = phases * (count / model.layers)
    return found


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
    choice = _choice(model, layout, rates)
    return Phases(
        share * (unit * (score + value) / rates.attention + traffic(UNFUSED_FORWARD) + choice.forward),
        share * (unit * backward / rates.attention_backward + traffic(UNFUSED_BACKWARD) + choice.backward),
        as_float(0.0),
    )


def _choice(model: TrainingModel, layout: Layout, rates: Rates) -> Phases:
    """What an indexer takes that chooses the tokens a query sees: scores of all before it, of all heads on every tensor
    rank as in inference, written and read once in fp32; twice their FLOP backward (DeepSeek V3.2, arXiv:2512.02556)."""
    pairs = layout.tokens * scored_tokens(model, layout.sequence)
    scores = pairs * model.choosing_flops
    chosen = pairs * model.choosing_scores * 2.0 * SCORE / rates.memory
    return Phases(scores / rates.attention + chosen, 2.0 * scores / rates.attention_backward, as_float(0.0))


def _scan(model: TrainingModel, layout: Layout, rates: Rates) -> Phases:
    """State updates of recurrent mixers, twice as many backward."""
    forward = layout.tokens / layout.tensor * model.state_flops / rates.scan * (model.mixer_layers / model.layers)
    return Phases(forward, 2.0 * forward, as_float(0.0))


def _streams(model: TrainingModel, layout: Layout, rates: Rates, routed: Scalar) -> Phases:
    """Norms, sums, rotary embedding, activations, permutations, casts and adapters, by the bytes they move."""
    forward, casts = forward_bytes(model, layout, routed), cast_bytes(model, layout, routed)
    per_byte = layout.tokens / rates.memory
    return Phases((forward + casts) * per_byte, (2.0 * forward + casts) * per_byte, as_float(0.0))


def _computed_again(
    model: TrainingModel,
    layout: Layout,
    rates: Rates,
    products: Mapping[str, Phases],
    experts: Phases,
    core: Phases,
    routed: Scalar,
) -> Scalar:
    """Modules that selective recomputation computes again (`recompute.py`): their products, attention, and streams."""
    again = computed_again(layout)
    up = model.up_rows / layout.tensor  # outputs of the projections up, by whose mean depth their FLOP are exact
    depth = model.up_weights / jnp.maximum(model.up_rows, 1.0)
    sizes = (layout.operand_bytes, layout.operand_bytes, layout.activation_bytes)
    raised = product_time(rates, rates.matrix, layout.tokens, up, depth, as_float(1.0), sizes)
    computed = layer_again(
        again,
        core=core.forward,
        up=jnp.where(up > 0.0, raised, 0.0) * (model.attention_layers / model.layers),
        dense=products["dense"].forward,
        experts=products["router"].forward + experts.forward,
        shared=products["shared"].forward,
    )
    return computed + bytes_again(model, layout, again, routed) * layout.tokens / rates.memory


def _adapter_products(model: TrainingModel, layout: Layout, rates: Rates) -> Phases:
    """What the products of adapters take beyond the streams they run beside, which are longer at usual ranks: 2 r (in +
    out) FLOP a token forward and for either gradient (Hu et al. 2021, arXiv:2106.09685)."""
    flops = 2.0 * layout.lora_rank * model.active_layer_adapters / layout.tensor
    beyond = layout.tokens * jnp.maximum(flops / rates.matrix - adapter_bytes(model, layout) / rates.memory, 0.0)
    return Phases(beyond, beyond, beyond)
