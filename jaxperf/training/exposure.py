"""Communication of a step by kind, in all and what compute does not hide of it."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar
from jaxperf.network.link import Fabric
from jaxperf.training.communication import (
    Groups,
    context_exchange,
    expert_exchange,
    ring_pass,
    state_exchange,
    tensor_again,
    tensor_exchange,
)
from jaxperf.training.compute import LayerCompute
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.layout import Layout
from jaxperf.training.memory import StageParameters
from jaxperf.training.model import TrainingModel
from jaxperf.training.overlap import Passes, exposed_time, inner_share
from jaxperf.training.products import Phases
from jaxperf.training.recompute import computed_again

BUCKET = 40e6  # gradients sent together, Megatron-LM's default [1]


class Communication(eqx.Module):
    """Time of the messages of one step on one rank of the busiest stage, by kind [s]."""

    tensor: Float[Array, "*batch"]
    context: Float[Array, "*batch"]
    expert: Float[Array, "*batch"]
    pipeline: Float[Array, "*batch"]
    data: Float[Array, "*batch"]
    offload: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """All kinds [s]."""
        return self.tensor + self.context + self.expert + self.pipeline + self.data + self.offload


class LayerExchange(eqx.Module):
    """One kind of communication of the average layer and one micro-batch: in all, and what shows forward and
    backward [s]."""

    total: Float[Array, "*batch"]
    forward: Float[Array, "*batch"]
    backward: Float[Array, "*batch"]


class Both(eqx.Module):
    """A communication in all, and what each pass waits for [s]."""

    total: Float[Array, "*batch"]
    exposed: Passes


class DataExchange(eqx.Module):
    """Communication among the data-parallel ranks of one step, in all and what the step waits for; `gathers`: what of
    the latter every micro-batch has before its forward and behind its backward pass, none but in ZeRO-3 [s]."""

    total: Float[Array, "*batch"]
    exposed: Float[Array, "*batch"]
    gathers: Passes


def layer_exchanges(
    model: TrainingModel,
    layout: Layout,
    groups: Groups,
    compute: LayerCompute,
    efficiencies: TrainingEfficiencies,
) -> tuple[dict[str, LayerExchange], Passes, Scalar]:
    """Tensor, context and expert communication of the average layer, each beside the compute it may hide behind; the
    compute that none of them runs beside; and gradients of weights that tensor communication runs beside.

    What is computed again repeats its forward messages before the backward pass, beside itself.
    """
    again = computed_again(layout)
    gemm, attention = _windows(compute.gemm), _windows(compute.attention)
    found = {}

    def exchange(name: str, messages: Passes, windows: Passes, share: Scalar, modules: Scalar) -> tuple[Passes, Scalar]:
        """What it runs beside, and of the `modules` that are computed again; these: share of the forward messages that
        they repeat."""
        shown, repeated = messages.exposed(windows, share), again.whole + modules
        total = (1.0 + repeated) * messages.forward + messages.backward
        found[name] = LayerExchange(total, shown.forward, shown.backward + repeated * shown.forward)
        hidden = messages - shown
        return hidden, modules * hidden.forward

    share = layout.overlap_tensor * efficiencies.overlap_tensor
    hidden, beside = exchange("tensor", tensor_exchange(model, layout, groups), gemm, share, tensor_again(model, again))
    held = jnp.maximum(hidden.backward - compute.gemm.backward, 0.0)
    free, left = _windows(compute.total).left(hidden), jnp.maximum(compute.again - beside, 0.0)
    share = layout.overlap_context * efficiencies.overlap_context
    keys, states = context_exchange(model, layout, groups), state_exchange(model, layout, groups)
    sent = keys.forward + states.forward
    core = again.core * keys.forward / jnp.where(sent > 0.0, sent, 1.0)
    hidden, beside = exchange("context", keys + states, attention, share, core)
    free, left = free.left(hidden), jnp.maximum(left - beside, 0.0)
    share = layout.overlap_expert * efficiencies.overlap_expert
    messages = expert_exchange(model, layout, groups, efficiencies.imbalance)
    hidden, beside = exchange("expert", messages, free, share, again.experts)
    free, left = free.left(hidden), jnp.maximum(left - beside, 0.0)
    return found, Passes(free.forward, free.backward + again.whole * free.forward + left), held


def _windows(phases: Phases) -> Passes:
    """Messages of the backward pass run beside both kinds of gradients."""
    return Passes(phases.forward, phases.backward + phases.weight)


def pipeline_sends(send: Scalar, windows: Passes, layout: Layout, e: TrainingEfficiencies) -> tuple[Both, Passes]:
    """A chunk's output and the gradient of its input, a `send` each [s], `interleave` times a stage and micro-batch,
    beside `windows` of the stage; and what is left of these."""
    one = layout.interleave * send
    return _beside(Passes(one, one), windows, layout.overlap_pipeline * e.overlap_pipeline)


def offload_copies(kept: Scalar, windows: Passes, layout: Layout, e: TrainingEfficiencies) -> tuple[Both, Passes]:
    """Kept activations of a stage and micro-batch to host memory and back; `kept` [byte], beside `windows`; and what is
    left of these."""
    copy = layout.offload * kept / e.host_bandwidth
    return _beside(Passes(copy, copy), windows, layout.overlap_offload * e.overlap_offload)


def _beside(messages: Passes, windows: Passes, share: Scalar) -> tuple[Both, Passes]:
    shown = messages.exposed(windows, share)
    return Both(messages.total, shown), windows.left(messages - shown)


def data_exchange(
    own: StageParameters,
    layout: Layout,
    groups: Groups,
    layers: Scalar,
    windows: Passes,
    efficiencies: TrainingEfficiencies,
) -> DataExchange:
    """Gradients and weights among the data-parallel ranks, of one step.

    ZeRO-0 all-reduces gradients once a step; ZeRO-1 scatters them and gathers weights; ZeRO-2 scatters after each
    micro-batch, but with a pipeline once (Llama 3, arXiv:2407.21783, section 3.3.2); ZeRO-3 (FSDP) scatters after each
    and gathers weights before each forward and each backward pass, layer by layer; the others by buckets. With shard
    groups (HSDP) their replicas all-reduce what a rank keeps. Context-parallel ranks hold copies of the weights, and
    so does the other end of DualPipe: what is sent once a step is of both stages of a rank.

    **Arguments:** `own`: parameters of the stage [1]; `layers` it has [1]; `windows`: its compute for one micro-batch
    that hides nothing else [s].
    **Returns:** `DataExchange`. Compute never hides the first and the last layer's.
    """
    dense, experts = own.learned(layout)

    def passes(dense: Scalar, experts: Scalar, itemsize: Scalar) -> Scalar:
        return _passes(groups.shard, dense, itemsize, layers, layout) + _passes(
            groups.expert_shard, experts, itemsize, layers, layout
        )

    m, each = layout.microbatches, layout.split_weights
    stages = jnp.where(layout.split_gradients > 0.0, 1.0, layout.copies)
    scatter = passes(stages * dense, stages * experts, layout.gradient_bytes)
    gather = passes(layout.copies * dense, layout.copies * experts, layout.weight_bytes)
    whole = passes(own.dense + own.dense_adapters, own.experts + own.expert_adapters, layout.weight_bytes)
    scatters = jnp.where(layout.split_gradients > 0.0, m, 1.0)
    replicas = (2.0 * layout.copies) * (
        ring_pass(groups.replica, dense * layout.gradient_bytes / layout.shard)
        + ring_pass(groups.expert_replica, experts * layout.gradient_bytes / layout.expert_shard)
    )
    reduced = jnp.where(layout.zero > 0.5, scatter, 2.0 * scatter)  # a gather of gradients too
    updated = jnp.where(layout.zero > 0.5, gather, 0.0)
    share = layout.overlap_data * efficiencies.overlap_data * inner_share(layers)
    gathered = exposed_time(whole, windows.forward, share)
    before = jnp.where(each > 0.0, m * gathered, exposed_time(updated, windows.forward, share))
    after = reduced + each * whole
    behind = exposed_time(after, windows.backward, share)
    left = jnp.maximum(windows.backward - (after - behind), 0.0)
    return DataExchange(
        total=scatters * reduced + replicas + jnp.where(each > 0.0, 2.0 * m * whole, updated),
        exposed=before + scatters * behind + exposed_time(replicas, left, share),
        gathers=Passes(each * gathered, each * behind),
    )


def _passes(fabric: Fabric, elements: Scalar, itemsize: Scalar, layers: Scalar, layout: Layout) -> Scalar:
    """One pass over `elements`, a message a layer in ZeRO-3 and a bucket else; nothing where there are none [s]."""
    messages = jnp.where(layout.split_weights > 0.0, layers, jnp.maximum(elements / BUCKET, 1.0))
    return jnp.where(elements > 0.0, ring_pass(fabric, elements * itemsize, messages), 0.0)
