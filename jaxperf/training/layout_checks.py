"""Why a layout cannot run: bits of data, not errors."""

from __future__ import annotations

import enum
import functools
import operator

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxperf.core.device import Device
from jaxperf.core.feasible import reason_bits, sentences
from jaxperf.core.numerics import Scalar, as_float, divides
from jaxperf.training.layout import FROM_ONE, ZERO_STAGES, Layout
from jaxperf.training.model import TrainingModel


class TrainingReason(enum.IntFlag):
    """Bits of the `reason` of a training step; 0 means feasible."""

    MEMORY = 1
    WORLD = 2
    TENSOR = 4
    TENSOR_LINK = 8
    STAGES = 16
    CONTEXT = 32
    EXPERTS = 64
    EXPERT_GROUP = 128
    BATCH = 256
    SCHEDULE = 512
    SHARD_GROUP = 1024
    FORMAT = 2048
    NETWORK = 4096
    COUNT = 8192
    ADAPTERS = 16384
    HOST = 32768


SENTENCES = {
    TrainingReason.MEMORY: "weights, states and activations of the fullest stage do not fit in device memory",
    TrainingReason.WORLD: "tensor x context x data x pipeline ranks are not the devices there are",
    TrainingReason.TENSOR: "tensor parallel does not divide the heads and widths, or the KV heads (nor copies them)",
    TrainingReason.TENSOR_LINK: "a tensor group spans nodes that no network joins",
    TrainingReason.STAGES: "the pipeline's chunks do not divide the layers, or are more than the layers",
    TrainingReason.CONTEXT: "context parallel (times tensor, with sequence parallelism) does not divide the sequence, "
    "or (Ulysses) the heads of a tensor rank",
    TrainingReason.EXPERTS: "expert parallel does not divide the experts, expert-tensor their width, or there are none",
    TrainingReason.EXPERT_GROUP: "expert x expert-tensor ranks do not divide the devices of a pipeline stage",
    TrainingReason.BATCH: "data parallel x micro-batch does not divide the global batch",
    TrainingReason.SCHEDULE: "the schedule needs several pipeline stages, does not interleave chunks, or (DualPipe) "
    "takes even numbers of stages and of micro-batches, two of these a stage at least",
    TrainingReason.SHARD_GROUP: "the shard group does not divide the data-parallel ranks, or does not fit the experts'",
    TrainingReason.FORMAT: "the device multiplies neither the number format nor one that can stand in for it",
    TrainingReason.NETWORK: "the layout spans nodes that no network joins",
    TrainingReason.COUNT: "a number of ranks, chunks, sequences or tokens is below one, or ZeRO's stage is not 0 to 3",
    TrainingReason.ADAPTERS: "the rank of LoRA is above the model's width",
    TrainingReason.HOST: "what is offloaded does not fit in the host memory that a device has",
}


def layout_reasons(
    model: TrainingModel, layout: Layout, device: Device, memory: Scalar, host: Scalar
) -> Int[Array, ""]:
    """Bits of `TrainingReason`; 0 where the step can run. `memory` of the fullest stage on its device, and what it has
    in that of the `host` [byte]."""
    return reason_bits(structure_checks(model, layout) | device_checks(layout, device, memory, host))


def structure_checks(model: TrainingModel, layout: Layout) -> dict[TrainingReason, Bool[Array, ""]]:
    """What the model and the batch forbid (True: infeasible)."""
    chunks = layout.pipeline * layout.interleave
    heads = jnp.where(model.attention_layers > 0.0, model.heads, layout.tensor)
    has_experts = (model.moe_layers > 0.0) & (model.topk > 0.0)
    group = layout.expert * layout.expert_tensor
    spread = divides(layout.expert, model.experts) & divides(layout.expert_tensor, model.expert_shares)
    ranks = layout.tensor * layout.shard  # of a shard group
    apart = ~divides(group, ranks) & ~divides(ranks, group)
    split = layout.tensor * layout.context  # ranks that Ulysses shares the heads among
    rows = divides(layout.context * layout.residual_split, layout.sequence)
    ulysses = (layout.context_method > 1.5) & ~(divides(split, heads) & _keys_fit(model, split))
    uneven = (layout.uneven <= 0.0) & ~divides(chunks, model.layers)
    chunked = layout.schedule > 1.5
    needs_chunks = (layout.schedule < 1.5) & (layout.interleave > 1.0)
    two_ways = (layout.copies > 1.0) & ~_meets_in_the_middle(layout)
    return {
        TrainingReason.WORLD: (layout.devices > 0.0) & (layout.world != layout.devices),
        TrainingReason.TENSOR: ~(divides(layout.tensor, model.tensor_shares) & _keys_fit(model, layout.tensor)),
        TrainingReason.STAGES: uneven | (chunks > model.layers),
        TrainingReason.CONTEXT: ~rows | ((layout.context > 1.0) & ulysses),
        TrainingReason.EXPERTS: jnp.where(has_experts, ~spread, group > 1.0),
        TrainingReason.EXPERT_GROUP: has_experts & ~divides(group, layout.stage_ranks),
        TrainingReason.BATCH: ~divides(layout.data * layout.microbatch, layout.global_batch),
        TrainingReason.SCHEDULE: (chunked & (layout.pipeline <= 1.0)) | needs_chunks | two_ways,
        TrainingReason.SHARD_GROUP: (layout.shard_group > 0.0)
        & (~divides(layout.shard_group, layout.data) | (has_experts & apart)),
        TrainingReason.COUNT: _out_of_range(layout),
        TrainingReason.ADAPTERS: layout.lora_rank > model.hidden,
    }


def _out_of_range(layout: Layout) -> Bool[Array, ""]:
    """Whether a number is none that a run can have."""
    stage = (layout.zero >= ZERO_STAGES[0]) & (layout.zero <= ZERO_STAGES[-1])
    return functools.reduce(operator.or_, (~(getattr(layout, name) >= 1.0) for name in FROM_ONE), ~stage)


def _meets_in_the_middle(layout: Layout) -> Bool[Array, ""]:
    """Whether two halves of the micro-batches, from both ends, have as many stages to the middle and fill them: what
    DualPipe's own code asserts (github.com/deepseek-ai/DualPipe, dualpipe.py: ranks and chunks even, chunks at least
    twice the ranks)."""
    even = divides(as_float(2.0), layout.pipeline) & divides(as_float(2.0), layout.microbatches)
    return even & (layout.microbatches >= 2.0 * layout.pipeline)


def _keys_fit(model: TrainingModel, ranks: Scalar) -> Bool[Array, ""]:
    """Whether the ranks can have equal shares of the KV heads, or equally many copies."""
    return divides(ranks, model.kv_shares) | divides(jnp.maximum(model.kv_shares, 1.0), ranks)


def device_checks(
    layout: Layout, device: Device, memory: Scalar, host: Scalar
) -> dict[TrainingReason, Bool[Array, ""]]:
    """What the device, its links and its host forbid (True: infeasible)."""
    no_network = device.network_bandwidth <= 0.0
    peaks = device.peak_flops
    missing = (peaks[layout.compute_format] <= 0.0) | (peaks[layout.plain_format] <= 0.0)
    return {
        TrainingReason.TENSOR_LINK: no_network & (layout.tensor > device.node_size),
        TrainingReason.NETWORK: no_network & (layout.world > device.node_size),
        TrainingReason.FORMAT: missing,
        TrainingReason.MEMORY: memory > device.memory_capacity,
        TrainingReason.HOST: (layout.host_memory > 0.0) & (host > layout.host_memory),
    }


def reason_sentences(bits: int) -> list[str]:
    """The plain-word reasons of a bit mask."""
    return sentences(bits, SENTENCES)
