"""What an engine's steps need of the device: a representative step of each phase, as it was simulated, in our model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.deployment import Deployment
from jaxperf.models.host import step_time
from jaxperf.models.layers import Transformer
from jaxperf.models.step import step_kernels
from jaxperf.models.transformer import CONTEXT_KERNELS, add_up, merged
from jaxperf.serving.simulator.state import Log
from jaxperf.serving.techniques.colocation import busy_shares

MEMORY = 1  # place of device memory among the resources


class MeanSteps(NamedTuple):
    """Means over the time of each phase, whole numbers: a step with `prompts`, each of `tokens` after `prefix` cached
    ones, has `beside` decodes too; a step of decodes alone has `decodes`; each decode attends to `context` tokens."""

    prompts: int
    tokens: int
    prefix: int
    beside: int
    decodes: int
    context: int


class StepNeeds(eqx.Module):
    """Of the representative step of each phase, alone: its `time` [phases] s, and the `shares` of it that it keeps
    arithmetic units, device memory and links busy [phases, 3] [1]."""

    time: Float[Array, " phases"]
    shares: Float[Array, "phases resources"]


def mean_steps(log: Log, requests: Mapping[str, np.ndarray]) -> MeanSteps:
    """The representative steps of one replica.

    A decode sees the prompt and half of the output of its request in the mean; a part of a prompt half of the rest.

    **Arguments:** `log`: complete, of the one replica; `requests`: `prompt` and `output` [R] tokens.
    """
    count = int(log.count)
    seconds, steps, sequences, tokens, decodes = (
        np.asarray(getattr(log, name))[:count] for name in ("seconds", "steps", "sequences", "tokens", "decodes")
    )
    prompt, output = (np.asarray(requests[name], float) for name in ("prompt", "output"))
    lasts, some = steps * seconds, tokens > decodes
    prompts = max(1, round(_mean(sequences - decodes, lasts * some, 1.0)))
    chunk = _mean(tokens - decodes, lasts * some, prompt.mean()) / prompts
    return MeanSteps(
        prompts=prompts,
        tokens=max(1, round(chunk)),
        prefix=max(0, round((_mean(prompt, prompt, 1.0) - chunk) / 2.0)),
        beside=round(_mean(decodes, lasts * some, 0.0)),
        decodes=max(1, round(_mean(decodes, lasts * ~some, 1.0))),
        context=max(1, round(_mean(prompt + output / 2.0, output - 1.0, prompt.mean()))),
    )


def _mean(values: np.ndarray, weights: np.ndarray, otherwise: float) -> float:
    return float(np.average(values, weights=weights)) if weights.sum() > 0.0 else float(otherwise)


def step_needs(deployment: Deployment, model: Transformer, steps: MeanSteps) -> StepNeeds:
    """What the representative steps need; as in a table of step times, the linear layers run once over all tokens."""
    beside = as_float(steps.beside) if steps.beside else None
    numbers = {name: as_float(getattr(steps, name)) for name in steps._fields if name != "beside"}
    return _step_needs(deployment, model, beside=beside, **numbers)


@jax.jit
def _step_needs(
    deployment: Deployment,
    model: Transformer,
    *,
    prompts: Scalar,
    tokens: Scalar,
    prefix: Scalar,
    beside: Scalar | None,
    decodes: Scalar,
    context: Scalar,
) -> StepNeeds:
    prefill = step_kernels(deployment, model, Prefill(prompts, tokens, prefix), prompts)
    if beside is not None:
        every = step_kernels(deployment, model, Prefill(as_float(1.0), prompts * tokens + beside), prompts + beside)
        decoding = step_kernels(deployment, model, Decode(beside, context), beside)
        prefill = merged([_of_context(every, False), _of_context(prefill, True), _of_context(decoding, True)])
    decode = step_kernels(deployment, model, Decode(decodes, context), decodes)
    times, shares = zip(*(_time_and_shares(deployment, kernels) for kernels in (prefill, decode)), strict=True)
    return StepNeeds(jnp.stack(times), jnp.stack(shares))


def _of_context(kernels: Kernels, looks: bool) -> Kernels:
    """The kernels that look at the context, or the others."""
    return {name: cost for name, cost in kernels.items() if (name in CONTEXT_KERNELS) == looks}


def _time_and_shares(deployment: Deployment, kernels: Kernels) -> tuple[Scalar, Float[Array, " resources"]]:
    busy, launches = add_up(kernels, lambda cost: cost.time), add_up(kernels, lambda cost: cost.launches)
    time = step_time(deployment.host, busy, launches)
    return time, busy_shares(kernels, time)
