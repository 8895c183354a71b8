"""One inference step of a transformer on a tensor / pipeline / expert-parallel group: decode and prefill."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwspecs.errors import InputError
from jaxperf.core.cost import Limiter
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import flagged
from jaxperf.models.blocks.phase import Decode, Phase, Prefill
from jaxperf.models.deployment import Deployment
from jaxperf.models.feasibility import Within, infeasibility
from jaxperf.models.host import step_time
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import MemoryUse, memory_use, stage_share
from jaxperf.models.towers import (
    PREFIX,
    media_in_prompt,
    own_prompt,
    readings,
    source_tokens,
    tower_kernels,
    tower_positions,
)
from jaxperf.models.transformer import END_KERNELS, add_up, edge_kernels, group_kernels
from jaxperf.network.collectives import send_cost
from jaxperf.network.link import pair_fabric

RESOURCES = (Limiter.COMPUTE, Limiter.MEMORY, Limiter.NETWORK, Limiter.LATENCY)


class StepCost(eqx.Module):
    """One step: its time, what it is made of, the memory it needs, and whether it can run.

    `time`: from one step of a sequence to its next [s], NaN where infeasible; `stage_time`: how long the busiest
    pipeline stage works on it [s]; `host`: the part the host adds [s]; `reason`: bits of `core.feasible.Reason`,
    0 where feasible; `memory`: see `MemoryUse`; `kernels`: cost by kernel name of one microbatch through all layers.
    """

    time: Float[Array, "*batch"]
    stage_time: Float[Array, "*batch"]
    host: Float[Array, "*batch"]
    reason: Int[Array, "*batch"]
    memory: MemoryUse
    kernels: Kernels

    @property
    def flops(self) -> Float[Array, "*batch"]:
        """Useful FLOP of one rank over one microbatch."""
        return add_up(self.kernels, lambda cost: cost.flops)

    @property
    def bytes_moved(self) -> Float[Array, "*batch"]:
        """Device-memory traffic of one rank over one microbatch [byte]; collectives are not in it."""
        local = {name: cost for name, cost in self.kernels.items() if name not in COLLECTIVES}
        return add_up(local, lambda cost: cost.bytes_moved)

    def time_by_limiter(self) -> dict[Limiter, Float[Array, "*batch"]]:
        """Time of the kernels each resource bounds, and the host's [s]."""

        bounds = {name: (cost.limiter, cost.time) for name, cost in self.kernels.items()}

        def bounded_by(resource: Limiter) -> Scalar:
            return add_up(bounds, lambda bound: jnp.where(bound[0] == resource, bound[1], 0.0))

        return {resource: bounded_by(resource) for resource in RESOURCES} | {Limiter.HOST: self.host}

    @property
    def limiter(self) -> Int[Array, "*batch"]:
        """Index into `Limiter`: the resource that bounds most of the step's time."""
        shares = self.time_by_limiter()
        longest, index = shares[Limiter.COMPUTE], jnp.zeros_like(shares[Limiter.COMPUTE], jnp.int32)
        for resource, time in shares.items():
            index = jnp.where(time > longest, jnp.int32(resource), index)
            longest = jnp.maximum(time, longest)
        return index


LAYER_COLLECTIVES = (
    "attention_all_reduce",
    "cross_attention_all_reduce",
    "mixer_all_reduce",
    "state_all_reduce",
    "ffn_all_reduce",
    "shared_all_reduce",
    "expert_dispatch",
    "expert_combine",
)
DRAFT_COLLECTIVES = "draft_collectives"  # of what proposes in a round of speculation, all of them together
COLLECTIVES = frozenset(
    {
        *("logits_all_gather", "pipeline_send", DRAFT_COLLECTIVES),
        *LAYER_COLLECTIVES,
        *(PREFIX + name for name in LAYER_COLLECTIVES),
    }
)


def decode_cost(
    deployment: Deployment, model: Transformer, batch: Scalar, context: Scalar, source: Scalar | None = None
) -> StepCost:
    """One new token for each of `batch` sequences with `context` tokens each, the new one included.

    With p pipeline stages the sequences of a replica run as min(p, sequences) microbatches, one per stage; a
    sequence waits for its own pass through all stages or for the busiest stage to serve all microbatches, whichever
    is longer.

    **Arguments:** `batch`: sequences over all data-parallel replicas [1]; `context`: tokens per sequence [1];
    `source`: tokens of an encoder that each sequence reads by cross-attention; None for those of one input of a
    fixed length, else for as many as `context` [1].
    **Returns:** `StepCost` of scalars; `time` is the time per output token.
    **Raises:** `InputError` for a model without a decoder.
    """
    check_decodes(model)
    layout = deployment.layout
    sequences = ceil_div(batch, layout.data_parallel)
    in_flight = jnp.minimum(layout.pipeline_parallel, sequences)
    microbatch = ceil_div(sequences, in_flight)
    source = source_tokens(model, context, None) if source is None else source
    kernels = step_kernels(deployment, model, Decode(microbatch, context, source), microbatch)
    memory = memory_use(deployment, model, sequences, context, microbatch, source)
    return _step(deployment, model, kernels, in_flight, memory, batch, context, context, source + 1.0)


def prefill_cost(
    deployment: Deployment,
    model: Transformer,
    batch: Scalar,
    prompt: Scalar,
    prefix: Scalar,
    media: Scalar | None = None,
    outputs: Scalar | None = None,
) -> StepCost:
    """The prompts of `batch` sequences in one step, `prefix` tokens of each already cached.

    Where an encoder reads the prompt (T5) the decoder reads its start token only; a model that is nothing but
    encoders ends with them.

    **Arguments:** `batch`: sequences over all data-parallel replicas [1]; `prompt`: new tokens of each [1];
    `prefix`: cached tokens of each [1]; `media`: tokens of each prompt that encoders make from images or sound, None
    where these encoders stay idle [1]; `outputs`: positions of each that have logits, of those that the decoder
    reads, None for the last alone [1].
    **Returns:** `StepCost` of scalars; `time` is the time to the first token, without queueing.
    """
    sequences = ceil_div(batch, deployment.layout.data_parallel)
    tokens, source = own_prompt(model, prompt), source_tokens(model, prompt, media)
    kernels = tower_kernels(deployment, model, sequences, prompt, media)
    logits = sequences if outputs is None else sequences * outputs
    if model.groups:
        phase = Prefill(sequences, tokens, prefix, source)
        kernels = step_kernels(deployment, model, phase, logits) | kernels
    positions = tower_positions(model, sequences, prompt, media)
    held, at_once = prefix + tokens, sequences * tokens
    memory = memory_use(deployment, model, sequences, held, at_once, source, positions, logits)
    length = prefix + (jnp.maximum(tokens, prompt) if model.encodes_prompt else tokens)
    counts = [prompt, prefix + 1.0]
    counts += [] if media is None else [media + 1.0]
    counts += [] if outputs is None else [outputs]
    within = ((media_in_prompt(model, media), prompt), (outputs, tokens))
    return _step(deployment, model, kernels, as_float(1.0), memory, batch, length, *counts, within=within)


def check_decodes(model: Transformer) -> None:
    """Raises `InputError` for a model that is nothing but encoders: it makes no tokens, only its prefill is timed."""
    if not model.groups:
        raise InputError("This model is an encoder: it generates no tokens, so it has no decode; ask for its prefill.")


def check_decoder_alone(model: Transformer) -> None:
    """Raises `InputError` as `check_decodes`, and for a model with an encoder that reads every request (T5, Whisper):
    the steps of an engine, made of `step_kernels`, leave its passes and its tokens out."""
    check_decodes(model)
    if readings(model, as_float(1.0), None):
        raise InputError(
            "An encoder of this model reads every request, and steps of a serving engine are timed for the decoder "
            "alone; jaxperf estimate, rank, sweep and serve count both."
        )


def step_kernels(deployment: Deployment, model: Transformer, phase: Phase, outputs: Scalar) -> Kernels:
    """All kernels of one microbatch by name, those of alike layers times their count, sends between stages included."""
    kernels = group_kernels(deployment, model.hidden, model.groups, phase)
    layout = deployment.layout
    fabric = flagged(deployment, pair_fabric(deployment.device, layout.num_devices, deployment.efficiencies.link))
    send = send_cost(fabric, phase.tokens * model.hidden * model.streams * deployment.activations.itemsize)
    sends = {"pipeline_send": send * (layout.pipeline_parallel - 1.0)}
    return kernels | edge_kernels(deployment, model, phase.tokens, outputs) | sends


def _step(
    deployment: Deployment,
    model: Transformer,
    kernels: Kernels,
    in_flight: Scalar,
    memory: MemoryUse,
    batch: Scalar,
    length: Scalar,
    *tokens: Scalar,
    within: Within = (),
) -> StepCost:
    layout = deployment.layout
    ends, sends = as_float(0.0), as_float(0.0)
    if model.groups:
        at_ends = {name: cost for name, cost in kernels.items() if name in END_KERNELS or name.startswith(PREFIX)}
        ends, sends = add_up(at_ends, lambda cost: cost.time), kernels["pipeline_send"].time
    through = add_up(kernels, lambda cost: cost.time)
    share = stage_share(model, layout)
    # One stage's layers, and the ends with it: the last stage has the head.
    busiest = through * share + (ends * (1.0 - share) + sends * (1.0 / layout.pipeline_parallel - share))
    device_time = jnp.maximum(through, in_flight * busiest)
    launches = add_up(kernels, lambda cost: cost.launches)
    elapsed = step_time(deployment.host, device_time, launches)
    reason = infeasibility(deployment, model, memory, batch, length, *tokens, within=within)
    feasible = reason == 0
    return StepCost(
        time=jnp.where(feasible, elapsed, jnp.nan),
        stage_time=jnp.where(feasible, jnp.maximum(busiest, elapsed / layout.pipeline_parallel), jnp.nan),
        host=elapsed - device_time,
        reason=reason,
        memory=memory,
        kernels=kernels,
    )
