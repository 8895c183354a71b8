"""A request's two phases on one deployment: TTFT from prefill, TPOT from decode, throughput from both."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.deployment import Deployment
from jaxperf.models.feasibility import infeasibility
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import MemoryUse, memory_use
from jaxperf.models.step import StepCost, check_decodes, decode_cost, prefill_cost
from jaxperf.models.towers import media_in_prompt, own_prompt, source_tokens, tower_positions


class ServingCost(eqx.Module):
    """Steady state of one replica that always has `batch` requests of equal length in decode.

    `ttft`: prefill of one prompt, no queueing [s]; `tpot`: one decode step at the mean context [s];
    `tokens_per_second`: output tokens of the replica, the prefills it must also do included [1/s]; all NaN where
    infeasible. `reason`, `memory`: of the whole life of a request, at its full length. `prefill`, `decode`: the steps.
    """

    ttft: Float[Array, "*batch"]
    tpot: Float[Array, "*batch"]
    tokens_per_second: Float[Array, "*batch"]
    reason: Int[Array, "*batch"]
    memory: MemoryUse
    prefill: StepCost
    decode: StepCost


def serving_cost(
    deployment: Deployment,
    model: Transformer,
    batch: Scalar,
    prompt: Scalar,
    output: Scalar,
    media: Scalar | None = None,
) -> ServingCost:
    """Requests of `prompt` tokens in and `output` tokens out, `batch` of them in decode at any time.

    A generation of `batch` requests takes its prefills, one prompt per data-parallel replica at a time, and
    output - 1 decode steps (the prefill makes the first token):
    tokens/s = batch * output / (ceil(batch / dp) * t_prefill + (output - 1) * t_decode).
    Attention is linear in the context, so the mean decode step is the one at context prompt + output / 2. Where an
    encoder reads the prompt, the decoder's context is its own tokens only and the prompt is what it attends across to.

    **Arguments:** `media`: tokens of each prompt that encoders make from images or sound, None for none [1].
    **Returns:** `ServingCost` of scalars.
    **Raises:** `InputError` for a model without a decoder.
    """
    check_decodes(model)
    layout = deployment.layout
    one_prompt_each, sequences = jnp.minimum(batch, layout.data_parallel), ceil_div(batch, layout.data_parallel)
    own, source = own_prompt(model, prompt), source_tokens(model, prompt, media)
    prefill = prefill_cost(deployment, model, one_prompt_each, prompt, as_float(0.0), media)
    decode = decode_cost(deployment, model, batch, own + output / 2.0, source)
    positions = tower_positions(model, as_float(1.0), prompt, media)
    memory = memory_use(deployment, model, sequences, own + output, jnp.maximum(own, sequences), source, positions)
    length = own + output if own is prompt else jnp.maximum(own + output, prompt)
    counts = (prompt, output) if media is None else (prompt, output, media + 1.0)
    within = ((media_in_prompt(model, media), prompt),)
    reason = infeasibility(deployment, model, memory, batch, length, *counts, within=within)
    generation = sequences * prefill.stage_time + (output - 1.0) * decode.time
    runs = reason == 0
    return ServingCost(
        ttft=jnp.where(runs, prefill.time, jnp.nan),
        tpot=jnp.where(runs, decode.time, jnp.nan),
        tokens_per_second=jnp.where(runs, batch * output / generation, jnp.nan),
        reason=reason,
        memory=memory,
        prefill=prefill,
        decode=decode,
    )
