"""`serving.phases.serving_cost` of a deployment that uses techniques: what each changes of the two steps, in turn.

A draft and adapters add kernels, a cache on the host adds the wait for it, a power limit lowers the clock of all of
them. With none of them it is the plain cost.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.deployment import Deployment
from jaxperf.models.feasibility import infeasibility
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import MemoryUse, kv_cache_bytes
from jaxperf.models.step import StepCost, prefill_cost
from jaxperf.models.transformer import add_up, merged
from jaxperf.network.collectives import network_cost
from jaxperf.serving.phases import ServingCost, serving_cost
from jaxperf.serving.techniques.chosen import Techniques, Told, told_of, told_of_copies
from jaxperf.serving.techniques.drafts import as_draft
from jaxperf.serving.techniques.kv_offload import OffloadedCache, hit_tokens, layered_time, load_time, resident
from jaxperf.serving.techniques.lora import adapter_bytes, adapter_kernels, adapters_there, swap_time
from jaxperf.serving.techniques.power import capped_clock, clocked_kernels, step_power
from jaxperf.serving.techniques.speculative import memory_with_draft, round_kernels
from jaxperf.serving.techniques.step import several_token_kernels, with_kernels
from jaxperf.serving.techniques.two_batches import decode_in_two, prefill_in_two
from jaxperf.serving.techniques.wide_experts import with_copies, without_copies


def technique_cost(
    deployment: Deployment, model: Transformer, techniques: Techniques, batch: Scalar, prompt: Scalar, output: Scalar
) -> tuple[ServingCost, Told]:
    """Requests as in `serving_cost`, and what there is to tell of each technique by name, nominal SI units.

    `decode` of the cost is a whole round of speculation, of which `tpot` is the share of one token. One pipeline stage;
    several are infeasible. `plain_*` are of the steps without techniques but with the copies of experts.

    **Arguments:** as `serving_cost`; a model that `checks.check_with_techniques` lets pass.
    """
    once = without_copies(deployment, techniques.copies), model
    deployment, model = with_copies(deployment, model, techniques.copies)
    plain, length = serving_cost(deployment, model, batch, prompt, output), prompt + output
    of_copies: Told = {}
    if techniques.copies is not None:
        of_copies = told_of_copies(techniques.copies, serving_cost(*once, batch, prompt, output), plain)
    sequences = ceil_div(batch, deployment.layout.data_parallel)
    memory = _memory(deployment, model, techniques, plain.memory, sequences, length)
    reason = infeasibility(deployment, model, memory, batch, length, prompt, output)
    steps = [dataclasses.replace(step, reason=reason) for step in (plain.prefill, plain.decode)]
    prefill, of_prefill = _prefill(deployment, model, techniques, steps[0], batch, prompt)
    decode, of_decode = _decode(deployment, model, techniques, steps[1], batch, prompt + output / 2.0)
    tpot = decode.time / techniques.kept
    swap = as_float(0.0)
    if techniques.adapters is not None:
        swap = swap_time(deployment, model, techniques.adapters, sequences)
    generation = sequences * prefill.stage_time + (output - 1.0) * tpot
    cost = ServingCost(
        ttft=prefill.time + swap,
        tpot=tpot,
        tokens_per_second=batch * output / generation,
        reason=decode.reason,
        memory=memory,
        prefill=prefill,
        decode=decode,
    )
    told = {"plain_tpot": plain.tpot, "plain_ttft": plain.ttft, **of_copies, **of_prefill, **of_decode}
    return cost, told | told_of(deployment, model, techniques, cost, told, sequences, output)


def _memory(
    deployment: Deployment,
    model: Transformer,
    techniques: Techniques,
    memory: MemoryUse,
    sequences: Scalar,
    length: Scalar,
) -> MemoryUse:
    if techniques.speculation is not None:
        memory = memory_with_draft(deployment, model, techniques.speculation, memory, sequences, length)
    if techniques.adapters is not None:
        there = adapters_there(techniques.adapters, sequences)
        held = there * adapter_bytes(deployment, model, techniques.adapters)
        memory = dataclasses.replace(memory, weights=memory.weights + held)
    return memory if techniques.offload is None else resident(memory, techniques.offload)


def _prefill(
    deployment: Deployment, model: Transformer, techniques: Techniques, step: StepCost, batch: Scalar, prompt: Scalar
) -> tuple[StepCost, Told]:
    """The prefill of a prompt for each attention replica, without what is found of it."""
    layout, offload = deployment.layout, techniques.offload
    prompts, hits, load = jnp.minimum(batch, layout.data_parallel), as_float(0.0), as_float(0.0)
    if offload is not None:
        hits = hit_tokens(offload, prompt)
        found = prefill_cost(deployment, model, prompts, prompt - hits, hits)
        step = dataclasses.replace(found, reason=step.reason)
        load = offload.from_host * kv_cache_bytes(deployment, model, as_float(1.0), hits)
    one, new = as_float(1.0), prompt - hits
    kernels = [prefill_in_two(deployment, model, new, hits) if techniques.two_batches else step.kernels]
    if techniques.speculation is not None:
        kernels.append(as_draft(techniques.speculation.draft.prompt_kernels(deployment, one, new, hits)))
    if techniques.adapters is not None:
        kernels.append(adapter_kernels(deployment, model, techniques.adapters, new, one))
    return _step(deployment, model, techniques, step, merged(kernels), load, "prefill")


def _decode(
    deployment: Deployment, model: Transformer, techniques: Techniques, step: StepCost, batch: Scalar, context: Scalar
) -> tuple[StepCost, Told]:
    """One step of all sequences at the mean context, a whole round where it is speculative."""
    sequences, offload = ceil_div(batch, deployment.layout.data_parallel), techniques.offload
    kernels, load, no_source = [step.kernels], as_float(0.0), as_float(0.0)
    together = decode_in_two if techniques.two_batches else several_token_kernels
    if techniques.speculation is not None:
        kernels = [round_kernels(deployment, model, techniques.speculation, batch, context, no_source, together)]
    elif techniques.two_batches:
        kernels = [decode_in_two(deployment, model, sequences, context, as_float(1.0), no_source)]
    if techniques.adapters is not None:
        tokens = sequences * techniques.verified
        kernels.append(adapter_kernels(deployment, model, techniques.adapters, tokens, sequences))
    if offload is not None:
        load = offload.share * kv_cache_bytes(deployment, model, sequences, context)
    return _step(deployment, model, techniques, step, merged(kernels), load, "decode")


def _step(
    deployment: Deployment,
    model: Transformer,
    techniques: Techniques,
    step: StepCost,
    kernels: Kernels,
    load: Scalar,
    phase: str,
) -> tuple[StepCost, Told]:
    """The step of all kernels, at the clock that a limit leaves, waiting for `load` bytes from the host."""
    offload, told = techniques.offload, {}

    def timed(kernels: Kernels) -> StepCost:
        waits = {} if offload is None else {"cache_load": network_cost(_waiting(offload, model, kernels, load), load)}
        return with_kernels(deployment, step, kernels | waits)

    slowed = kernels
    if techniques.cap is not None:
        own = (deployment.device, techniques.cap.law, kernels, lambda at: timed(clocked_kernels(kernels, at)).time)
        clock = capped_clock(*own, techniques.cap.limit)
        told = {f"{phase}_clock": clock, f"{phase}_power": step_power(*own, clock)}
        slowed = clocked_kernels(kernels, clock)
    if offload is not None:
        told |= {f"{phase}_load": load_time(offload, load), f"{phase}_wait": _waiting(offload, model, slowed, load)}
    return timed(slowed), told


def _waiting(offload: OffloadedCache, model: Transformer, kernels: Kernels, load: Scalar) -> Scalar:
    """How long the kernels of a step wait for `load` bytes from the host [s]."""
    work = add_up(kernels, lambda cost: cost.time)
    return layered_time(work, load_time(offload, load), model.num_layers, offload.hidden) - work
