"""Communication of one layer and micro-batch, between stages, and of the step: sizes, groups and times.

Collectives are rings over the links a group really has: inside a node its local link, between nodes the ports of all
its members there together, whichever is slower. A send to a neighbor has one link, or one port.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.network.expert_exchange import exchange_pass
from jaxperf.network.hierarchy import local_members, pair_link, ring_bandwidth
from jaxperf.network.link import Fabric, filled_fabric
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.flops import key_width
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.overlap import Passes
from jaxperf.training.recompute import Again, layer_again

STATE_BYTES = 4.0  # of a recurrent state's element


class Groups(eqx.Module):
    """The links of every group of a layout."""

    tensor: Fabric
    context: Fabric
    context_neighbors: Fabric
    expert: Fabric
    expert_tensor: Fabric
    shard: Fabric
    replica: Fabric
    expert_shard: Fabric
    expert_replica: Fabric
    stages: Fabric


def layout_groups(device: Device, layout: Layout, efficiencies: TrainingEfficiencies) -> Groups:
    """Groups by their stride: tensor ranks are neighbours, then context, data and pipeline ranks. Where copies of the
    weights are at both ends of a pipeline (DualPipe), in the shard group or among its replicas, the ends share a node
    only where it holds the whole pipeline."""
    tensor, one = layout.tensor, as_float(1.0)
    replicas = layout.data * layout.context * layout.copies / layout.shard
    experts = layout.expert * layout.expert_tensor
    apart = jnp.where(layout.world > device.node_size, layout.copies, 1.0)
    in_replicas = jnp.where(layout.shard_group > 0.0, apart, 1.0)
    in_shard = apart / in_replicas

    def group(members: Scalar, stride: Scalar, ends: Scalar = one) -> Fabric:
        local = local_members(device.node_size, jnp.maximum(members / ends, 1.0), stride)
        return _sustained(filled_fabric(device, local, members, one), efficiencies)

    return Groups(
        tensor=group(tensor, one),
        context=group(layout.context, tensor),
        context_neighbors=_sustained(pair_link(device, layout.context, tensor), efficiencies),
        expert=group(layout.expert, layout.expert_tensor),
        expert_tensor=group(layout.expert_tensor, one),
        shard=group(layout.shard, tensor, in_shard),
        replica=group(replicas, tensor * layout.shard, in_replicas),
        expert_shard=group(layout.expert_shard, experts, in_shard),
        expert_replica=group(
            jnp.maximum(layout.expert_data / layout.expert_shard, 1.0), experts * layout.expert_shard, in_replicas
        ),
        stages=_sustained(pair_link(device, layout.pipeline, layout.stage_ranks), efficiencies),
    )


def _sustained(fabric: Fabric, efficiencies: TrainingEfficiencies) -> Fabric:
    """The fabric at the share of its rates that collectives reach."""
    return dataclasses.replace(
        fabric,
        local_bandwidth=fabric.local_bandwidth * efficiencies.link_local,
        network_bandwidth=fabric.network_bandwidth * efficiencies.link_network,
    )


def ring_pass(fabric: Fabric, size: Scalar, messages: Scalar | float = 1.0) -> Scalar:
    """One reduce-scatter or all-gather of `size` bytes in all, cut into `messages`; an all-reduce is two.

    t = (n - 1) / n S / `ring_bandwidth` + messages x hops: a ring enters and leaves a node through the ports of all its
    members there, and so does not pass the node with the fewest faster (NCCL's rings; Thakur, Rabenseifner, Gropp 2005
    for the count). Zero for one rank.
    """
    n = fabric.members
    hops = (fabric.nodes - 1.0) * fabric.network_latency + (fabric.local_ranks - 1.0) * fabric.local_latency
    return jnp.where(n > 1.0, (n - 1.0) / n * size / ring_bandwidth(fabric) + messages * hops, 0.0)


def send_pass(pair: Fabric, size: Scalar) -> Scalar:
    """One send of `size` bytes between the neighbors of `hierarchy.pair_link` [s]."""
    apart = pair.nodes > 1.0
    rate = jnp.where(apart, pair.network_bandwidth, pair.local_bandwidth)
    return jnp.where(apart, pair.network_latency, pair.local_latency) + size / rate


def tensor_exchange(model: TrainingModel, layout: Layout, groups: Groups) -> Passes:
    """Two all-reduces of the residual rows forward and two backward a layer of two blocks (Megatron-LM,
    arXiv:1909.08053); with sequence parallelism a gather and a scatter each, and the input gathered once more for the
    gradient of the weight (Korthikanti et al. 2022, arXiv:2205.05198)."""
    blocks = _split_blocks(model) / model.layers
    one = blocks * ring_pass(groups.tensor, layout.tokens * model.hidden * layout.activation_bytes)
    again = jnp.where(layout.sequence_parallel > 0.0, 1.0, 0.0)
    return Passes(2.0 * one, (2.0 + again) * one)


def tensor_again(model: TrainingModel, again: Again) -> Scalar:
    """Share of the forward messages of `tensor_exchange` that modules which are computed `again` repeat, whole layers
    not among them [1]."""
    repeated = layer_again(again, dense=model.dense_layers, shared=_split_shared(model))
    return repeated / jnp.maximum(_split_blocks(model), 1.0)


def _split_blocks(model: TrainingModel) -> Scalar:
    """Blocks of all layers that tensor ranks share, each with its all-reduce [1]."""
    return model.attention_layers + model.mixer_layers + model.dense_layers + _split_shared(model)


def _split_shared(model: TrainingModel) -> Scalar:
    return jnp.where(model.shared_weights > 0.0, model.moe_layers, 0.0)


def context_exchange(model: TrainingModel, layout: Layout, groups: Groups) -> Passes:
    """Keys and values around the context-parallel group.

    Ring: c - 1 sends of them to a neighbor, over a rank's own port where one is in another node, backward also of their
    gradients (arXiv:2310.01889). All-gather: one of all, through all ports, backward a gather and a scatter (Llama 3,
    arXiv:2407.21783, section 3.3.2). Ulysses: all-to-all of queries, keys, values and outputs, as many backward
    (arXiv:2309.14509).
    """
    itemsize = layout.activation_bytes
    kept = layout.tokens * key_width(model, layout) * itemsize
    rows = layout.tokens * (model.score_width + model.value_width) / layout.tensor * itemsize + kept
    sends = jnp.where(layout.context > 1.0, (layout.context - 1.0) * send_pass(groups.context_neighbors, kept), 0.0)
    gather = ring_pass(groups.context, kept * layout.context)
    once = jnp.where(layout.context_method > 0.5, gather, sends)
    a2a = exchange_pass(groups.context, rows, as_float(1.0))
    ulysses = layout.context_method > 1.5
    share = model.attention_layers / model.layers
    return Passes(share * jnp.where(ulysses, a2a, once), share * jnp.where(ulysses, a2a, 2.0 * once))


def state_exchange(model: TrainingModel, layout: Layout, groups: Groups) -> Passes:
    """What recurrent mixers hand on around the context-parallel group, in fp32 as kernels keep it, and its gradient on
    the way back.

    Ring: a rank's tokens follow on the state behind all before them, so that the last waits for c - 1 sends in turn
    (LASP, arXiv:2404.02882). All-gather: every rank gathers what each stretch of tokens makes of a state, its sum and,
    of delta rules, its matrix (LASP-2, arXiv:2502.07563; Megatron-Core's chunkwise context parallelism). Ulysses:
    all-to-all of what the projections make and read, after which a rank has whole sequences of some channels.
    """
    split, several = layout.microbatch / layout.tensor * STATE_BYTES, layout.context > 1.0
    state, whole = split * model.state_elements, split * (model.state_elements + model.transition_elements)
    sends = jnp.where(several, (layout.context - 1.0) * send_pass(groups.context_neighbors, state), 0.0)
    once = jnp.where(layout.context_method > 0.5, ring_pass(groups.context, whole * layout.context), sends)
    rows = layout.tokens * model.mixer_weights / model.hidden / layout.tensor * layout.activation_bytes
    a2a = exchange_pass(groups.context, rows, as_float(1.0))
    both = jnp.where(layout.context_method > 1.5, a2a, once)
    share = jnp.where(model.state_elements > 0.0, model.mixer_layers / model.layers, 0.0)
    return Passes(share * both, share * both)


def expert_exchange(model: TrainingModel, layout: Layout, groups: Groups, imbalance: Scalar) -> Passes:
    """Dispatch and combine forward, their mirror images backward; the ranks that share an expert gather its rows
    and scatter its results. The busiest rank sends for all."""
    tokens = layout.tokens / layout.tensor * model.expert_hidden * imbalance

    def moved(itemsize: Scalar) -> Scalar:
        return exchange_pass(groups.expert, tokens * itemsize, model.topk, layout.deduplicate, table=model.hits)

    dispatch, combine = moved(layout.dispatch_bytes), moved(layout.activation_bytes)
    rows = tokens * layout.activation_bytes * model.topk * layout.expert_tensor
    shared = 2.0 * ring_pass(groups.expert_tensor, rows)
    share = jnp.where(model.topk > 0.0, model.moe_layers / model.layers, 0.0)
    return Passes(share * (dispatch + combine + shared), share * (2.0 * combine + shared))


def stage_send(model: TrainingModel, layout: Layout, groups: Groups) -> Scalar:
    """One micro-batch handed to the next stage: each tensor rank sends its share over its own port, and where rows are
    not split the receivers gather them (Narayanan et al. 2021, arXiv:2104.04473, section 4.1) [s]."""
    size = layout.tokens * model.hidden * model.streams * layout.activation_bytes
    gathered = jnp.where(layout.sequence_parallel > 0.0, 0.0, ring_pass(groups.tensor, size))
    return jnp.where(layout.pipeline > 1.0, send_pass(groups.stages, size / layout.tensor) + gathered, 0.0)
