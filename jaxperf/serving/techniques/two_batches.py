"""Two micro-batches of one step, one of which works while the tokens of the other travel.

DeepSeek-V3, arXiv:2412.19437, 3.4; two-batch overlap of SGLang, dual-batch overlap of vLLM.

The batch is halved: sequences in decode, tokens of the prompt in prefill, the second half attending to the first. Every
layer is attention (and all that is not the routed experts), dispatch, experts, combine; the halves A and B take turns:

    attention B | dispatch A,  experts A | dispatch B,  experts B | combine A,  next attention A | combine B

and each pair takes as long as its longer part. So a layer is never faster than the work of both halves, nor than their
exchange. The last combine of a run of layers has no attention beside it. Weights are read once for each half: it pays
where the exchange is longer than that. Cores that an exchange takes from the work are not counted.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.transformer import add_up, edge_kernels, layer_kernels, merged
from jaxperf.serving.techniques.step import several_token_layer

DISPATCH, COMBINE = "expert_dispatch", "expert_combine"
EXPERTS = "expert_"  # how the kernels between the two begin


def both_halves(first: Kernels, second: Kernels, repeats: Scalar) -> Kernels:
    """`repeats` layers of both halves in a row: all kernels, of dispatch and combine the time that nothing hides.

    As they are, one after the other, where the layer has no exchange.
    """
    work = {name: (cost + second[name]) * repeats for name, cost in first.items()}
    if DISPATCH not in first:
        return work
    beside, experts = zip(_work(first), _work(second), strict=True)
    out, back = (tuple(half[name].time for half in (first, second)) for name in (DISPATCH, COMBINE))
    dispatched = _left(out[0], beside[1]) + _left(out[1], experts[0])
    combined = _left(back[0], experts[1]) + _left(back[1], beside[0])
    last = jnp.minimum(back[1], beside[0])
    return work | {
        DISPATCH: _taking(work[DISPATCH], repeats * dispatched),
        COMBINE: _taking(work[COMBINE], repeats * combined + last),
    }


def _work(layer: Kernels) -> tuple[Scalar, Scalar]:
    """(what is not of the routed experts, what they multiply) of one layer [s]."""
    inside = {name: cost for name, cost in layer.items() if name.startswith(EXPERTS)}
    outside = {name: cost for name, cost in layer.items() if name not in inside}
    experts = {name: cost for name, cost in inside.items() if name not in (DISPATCH, COMBINE)}
    return add_up(outside, lambda cost: cost.time), add_up(experts, lambda cost: cost.time)


def _left(exchange: Scalar, work: Scalar) -> Scalar:
    return jnp.maximum(exchange - work, 0.0)


def _taking(cost: Cost, time: Scalar) -> Cost:
    return dataclasses.replace(cost, time=time)


def decode_in_two(
    deployment: Deployment, model: Transformer, sequences: Scalar, context: Scalar, tokens: Scalar, source: Scalar
) -> Kernels:
    """All kernels of a decode step in two halves, as `step.several_token_kernels` has them of one.

    Halves of an odd number of sequences are both the larger one. The two ends of the model see all sequences at once.
    """
    phase, parts = Decode(ceil_div(sequences, as_float(2.0)), context, source), []
    for group in model.groups:
        half = several_token_layer(deployment, model.hidden, group, phase, tokens)
        parts.append(both_halves(half, half, group.repeats))
    return merged(parts) | edge_kernels(deployment, model, sequences * tokens, sequences * tokens)


def prefill_in_two(deployment: Deployment, model: Transformer, new: Scalar, prefix: Scalar) -> Kernels:
    """All kernels of the prefill of one prompt in two halves, `new` tokens after `prefix` cached ones."""
    half, one, parts = ceil_div(new, as_float(2.0)), as_float(1.0), []
    phases = Prefill(one, half, prefix), Prefill(one, jnp.maximum(new - half, 1.0), prefix + half)
    for group in model.groups:
        first, second = (layer_kernels(deployment, model.hidden, group, phase) for phase in phases)
        parts.append(both_halves(first, second, group.repeats))
    return merged(parts) | edge_kernels(deployment, model, new, one)


def exchange_left(kernels: Kernels) -> Scalar:
    """Time of dispatch and combine that a step waits for [s]."""
    return kernels[DISPATCH].time + kernels[COMBINE].time
