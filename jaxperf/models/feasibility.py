"""Whether a model can be split and run as asked: each check of a step, as bits."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxperf.core.feasible import Reason, reason_bits
from jaxperf.core.numerics import Scalar, divides
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.layers import MoeFfn, Transformer
from jaxperf.models.memory import MemoryUse

Within = Sequence[tuple[Scalar | None, Scalar]]


def infeasibility(
    deployment: Deployment,
    model: Transformer,
    memory: MemoryUse,
    batch: Scalar,
    length: Scalar,
    *tokens: Scalar,
    within: Within = (),
) -> Int[Array, ""]:
    """Bits of `core.feasible.Reason`; 0 where the step can run.

    **Arguments:** `length`: tokens of a whole sequence, for the limit of the model [1]; `tokens`: the lengths it was
    made of, each at least one where the point means anything [1]; `within`: pairs of some tokens of a prompt, None for
    none, and of how many they are [1].
    """
    layout = deployment.layout
    expert = layout.expert_parallel
    uneven_experts = ~divides(expert, layout.tensor_parallel * layout.data_parallel)
    groups = model.split_groups
    for group in groups:
        if group.ffn is not None:
            uneven_experts = uneven_experts | group.ffn.uneven_experts(layout)
    if not any(isinstance(group.ffn, MoeFfn) for group in groups):
        uneven_experts = uneven_experts | (expert > 1.0)
    return reason_bits(
        {
            Reason.TENSOR_PARALLEL: uneven_ranks(layout, model),
            Reason.PIPELINE_PARALLEL: layout.pipeline_parallel > jnp.maximum(model.num_layers, 1.0),
            Reason.EXPERT_PARALLEL: uneven_experts,
            Reason.DATA_PARALLEL: batch < layout.data_parallel,
            Reason.CONTEXT: length > model.max_context,
            Reason.COUNT: no_count(deployment, batch, *tokens),
            Reason.PROMPT: beyond_prompt(within),
            Reason.FORMAT: unknown_format(deployment),
            Reason.MEMORY: memory.total > memory.usable,  # last: it alone depends on every axis of a grid
        }
    )


def no_count(deployment: Deployment, *counts: Scalar) -> Bool[Array, ""]:
    """Whether a way of the layout, the skew of the routing or one of `counts` is less than one or not finite."""
    layout = deployment.layout
    ways = layout.tensor_parallel, layout.pipeline_parallel, layout.expert_parallel, layout.data_parallel
    # Not `count < 1`, which is false of NaN; each over the axes of that count alone.
    numbers = (*ways, deployment.routing_skew, *counts)
    counted = (jnp.logical_and(number >= 1.0, number < jnp.inf) for number in numbers)  # of a Python number too
    return functools.reduce(operator.or_, (~each for each in counted))


def beyond_prompt(within: Within) -> Bool[Array, ""]:
    """Whether some tokens of a prompt are more than those they are of."""
    refused = jnp.asarray(False)
    for part, whole in within:
        if part is not None:
            refused = refused | (part > whole)
    return refused


def unknown_format(deployment: Deployment) -> Bool[Array, ""]:
    """Whether the device has no arithmetic for the weights or the activations, not even a stand-in."""
    peaks = deployment.device.peak_flops
    return (peaks[deployment.weights.compute] <= 0.0) | (peaks[deployment.activations.compute] <= 0.0)


def uneven_ranks(layout: Parallelism, model: Transformer) -> Bool[Array, ""]:
    """Whether the tensor-parallel ranks cannot have equal shares of every layer."""
    refused = jnp.asarray(False)
    for group in model.split_groups:
        for block, _ in group.blocks:
            refused = refused | block.uneven(layout)
    return refused
