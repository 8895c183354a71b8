"""A decode step that works on several tokens of each sequence, and a step put together from kernels that are changed.

Tokens of one sequence share its cache: attention is that of a decode with so many times the query heads, which read
keys and values once (the packing of query heads that grouped-query attention has already; FlashInfer, MLSys 2025). All
other kernels see that many more tokens. Layers without such a cache (recurrent ones, sparse attention) are counted one
token after the other: their states or chosen keys are each token's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeGuard

import jax.numpy as jnp

from jaxperf.core.feasible import Reason, reason_bits
from jaxperf.core.numerics import Scalar
from jaxperf.models.blocks.attention import AttentionMixer
from jaxperf.models.blocks.base import AbstractMixer, Kernels
from jaxperf.models.blocks.latent import LatentMixer
from jaxperf.models.blocks.phase import Decode
from jaxperf.models.deployment import Deployment
from jaxperf.models.host import step_time
from jaxperf.models.layers import LayerGroup, Transformer
from jaxperf.models.step import StepCost
from jaxperf.models.transformer import add_up, edge_kernels, in_own_format, layer_kernels, merged

# Kernels of (deployment, model, sequences, context, tokens of each, source), as `several_token_kernels` has them.
Step = Callable[[Deployment, Transformer, Scalar, Scalar, Scalar, Scalar], Kernels]


def several_token_kernels(
    deployment: Deployment, model: Transformer, sequences: Scalar, context: Scalar, tokens: Scalar, source: Scalar
) -> Kernels:
    """All kernels of a decode step with `tokens` new tokens for each of `sequences`, which all have their logits.

    One token is `models.step.step_kernels` of a decode, bit for bit, without the sends between pipeline stages.

    **Arguments:** `sequences` of one attention replica [1]; `context`: tokens of each, the new ones included [1];
    `tokens`: new tokens of each [1]; `source`: see `Decode` [1].
    """
    parts = []
    for group in model.groups:
        kernels = several_token_layer(deployment, model.hidden, group, Decode(sequences, context, source), tokens)
        parts.append({name: cost * group.repeats for name, cost in kernels.items()})
    return merged(parts) | edge_kernels(deployment, model, sequences * tokens, sequences * tokens)


def several_token_layer(
    deployment: Deployment, hidden: Scalar, group: LayerGroup, phase: Decode, tokens: Scalar
) -> Kernels:
    """One layer: the kernels of as many sequences as there are tokens, attention that shares a cache as it shares."""
    apart = dataclasses.replace(phase, sequences=phase.sequences * tokens)
    kernels = layer_kernels(deployment, hidden, group, apart)
    for mixer in group.mixers:
        if shares_cache(mixer):
            packed = dataclasses.replace(mixer, heads=mixer.heads * tokens)
            own = packed.kernels(in_own_format(deployment, group, "mixer"), hidden, phase)
            kernels["attention"] = own["attention"]
    return kernels


def shares_cache(mixer: AbstractMixer) -> TypeGuard[AttentionMixer | LatentMixer]:
    """Whether the new tokens of a sequence read the same keys: attention to all cached tokens, or to a window."""
    if isinstance(mixer, LatentMixer):
        return mixer.indexer is None
    return isinstance(mixer, AttentionMixer) and mixer.causal and mixer.indexer is None


def with_kernels(deployment: Deployment, step: StepCost, kernels: Kernels) -> StepCost:
    """The step with other kernels, on one pipeline stage; with several it is infeasible here.

    t = max(device, launches x interval) + overhead, see `models.host`; the same kernels give the same step.
    """
    device_time = add_up(kernels, lambda cost: cost.time)
    elapsed = step_time(deployment.host, device_time, add_up(kernels, lambda cost: cost.launches))
    reason = step.reason | reason_bits({Reason.PIPELINE_PARALLEL: deployment.layout.pipeline_parallel > 1.0})
    time = jnp.where(reason == 0, elapsed, jnp.nan)
    return StepCost(time, time, elapsed - device_time, reason, step.memory, kernels)
