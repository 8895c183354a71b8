"""What a plan knows of every layout of an engine: its step in closed form, room for sequences, what forbids it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxperf.core.numerics import Scalar, as_float, stack
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.config import ModelConfig
from jaxperf.models.deployment import Deployment
from jaxperf.models.feasibility import infeasibility
from jaxperf.models.layers import Transformer, transformer
from jaxperf.models.memory import kv_cache_bytes, memory_use, stage_share
from jaxperf.models.step import check_decoder_alone, step_kernels
from jaxperf.models.transformer import CONTEXT_KERNELS, one_stage_time
from jaxperf.serving.fleet.transfer import Link, network_link, pull_time
from jaxperf.serving.queueing.engine import Engine
from jaxperf.serving.queueing.law import StepLaw, probed_law
from jaxperf.serving.queueing.pools import Sending
from jaxperf.serving.study import Assumed, assumed_at, deployment_of, formats_of
from jaxperf.sweeps.once import evaluate_over


@dataclass(frozen=True)
class Candidate:
    """One engine: `layout`, parallel counts by the names of `ranking.LAYOUT_NAMES`, and the format of its weights."""

    layout: Mapping[str, int]
    weights: str

    @property
    def devices(self) -> int:
        """Devices of the engine."""
        return self.layout["tensor_parallel"] * self.layout["pipeline_parallel"] * self.layout["data_parallel"]

    @property
    def engine(self) -> Engine:
        """Its stages and attention replicas, with neither slots nor a budget yet."""
        return Engine(1.0, 1.0, self.layout["pipeline_parallel"], self.layout["data_parallel"])


@dataclass(frozen=True)
class Reach:
    """How far steps go: `prompt` and `output` of a request; most tokens (`budget`) and sequences (`cap`) of a step."""

    prompt: int
    output: int
    budget: int
    cap: int


class EngineFacts(eqx.Module):
    """`law` of a step; `slots`: sequences of full length that all its batches have memory for [1]; `cache`: what each
    of the `ranks` that share a sequence keeps of a prompt [byte]; `link` of a device to other engines; `reason`:
    bits of `core.feasible.Reason`."""

    law: StepLaw
    slots: Float[Array, "*batch"]
    cache: Float[Array, "*batch"]
    ranks: Float[Array, "*batch"]
    link: Link
    reason: Int[Array, "*batch"]


def engine_facts(
    model: ModelConfig,
    device: CalibratedDevice,
    candidates: Sequence[Candidate],
    reach: Reach,
    kv_cache: str,
    levels: Sequence[str] = ("nominal",),
) -> dict[str, EngineFacts]:
    """The facts of all candidates, with a leading axis of them, at each level of what is fitted or assumed.

    **Raises:** `InputError` for a model without a decoder or with an encoder that reads every request.
    """
    facts = _facts(model, reach)
    arguments = stack(
        [
            formats_of(each.weights, kv_cache) | {name: as_float(count) for name, count in each.layout.items()}
            for each in candidates
        ]
    )
    assumed = {level: assumed_at(level, "graph") for level in levels}
    return {
        level: evaluate_over(facts, each, device, arguments, along=((), (), (0,))) for level, each in assumed.items()
    }


@functools.lru_cache(maxsize=8)
def _facts(config: ModelConfig, reach: Reach) -> Callable[..., EngineFacts]:
    """The facts of one candidate, kept so that the next device is not traced again."""
    model = transformer(config)
    check_decoder_alone(model)

    def one(assumed: Assumed, device: CalibratedDevice, given: dict[str, Any]) -> EngineFacts:
        deployment = deployment_of(assumed, device=device, **given)
        layout, length = deployment.layout, as_float(reach.prompt + reach.output)
        tokens = as_float(min(reach.budget, reach.prompt))
        memory = memory_use(deployment, model, as_float(1.0), length, tokens)
        room = memory.usable - memory.weights - memory.activations
        return EngineFacts(
            law=deployment_law(deployment, model, reach),
            slots=room / memory.kv_cache * layout.data_parallel,
            cache=kv_cache_bytes(deployment, model, as_float(1.0), as_float(reach.prompt)),
            ranks=layout.tensor_parallel * layout.pipeline_parallel,
            link=network_link(deployment),
            reason=infeasibility(deployment, model, memory, layout.data_parallel, length),
        )

    return jax.jit(one)


def sending(sender: EngineFacts, receiver: EngineFacts) -> Sending:
    """The cache of a prompt on its way from one engine to another, as `fleet.transfer` has it."""
    wire = pull_time(receiver.cache, receiver.ranks, sender.ranks, sender.link, receiver.link)
    return Sending(wire, jnp.maximum(sender.link.latency, receiver.link.latency))


def deployment_law(deployment: Deployment, model: Transformer, reach: Reach) -> StepLaw:
    """The step of one batch of a deployment through all its pipeline stages, in closed form: linear layers of its
    tokens as in a prefill, and what a decode or a prompt takes on top (attention, and the exchange of a decode).

    Where stages are uneven all of them are as long as the fullest.
    """
    uneven = stage_share(model, deployment.layout) * deployment.layout.pipeline_parallel

    def linear(tokens: Scalar) -> Scalar:
        kernels = step_kernels(deployment, model, Prefill(1.0, tokens), as_float(1.0))
        kernels = {name: cost for name, cost in kernels.items() if name not in CONTEXT_KERNELS}
        return uneven * one_stage_time(deployment, kernels)

    def decode(sequences: Scalar, context: Scalar) -> Scalar:
        kernels = step_kernels(deployment, model, Decode(sequences, context), sequences)
        return uneven * one_stage_time(deployment, kernels) - linear(sequences)

    def prefill(prefix: Scalar, tokens: Scalar) -> Scalar:
        kernels = step_kernels(deployment, model, Prefill(1.0, tokens, prefix), as_float(1.0))
        return uneven * one_stage_time(deployment, kernels) - linear(tokens)

    return probed_law(
        linear,
        decode,
        prefill,
        tokens=float(max(reach.budget, reach.cap)),
        decodes=float(reach.cap),
        context=float(reach.prompt + reach.output),
        chunk=float(min(reach.budget, reach.prompt)),
    )


def facts_at(facts: EngineFacts, index: int) -> EngineFacts:
    """The facts of one candidate."""
    return jax.tree.map(lambda leaf: leaf[index], facts)
