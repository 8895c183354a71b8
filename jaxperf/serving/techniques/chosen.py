"""The techniques of one engine, and what there is to tell of them once its steps are priced."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.serving.phases import ServingCost
from jaxperf.serving.techniques.drafts import draft_time
from jaxperf.serving.techniques.kv_offload import OffloadedCache
from jaxperf.serving.techniques.lora import Adapters, adapter_bytes, distinct_adapters, miss_share, swap_time
from jaxperf.serving.techniques.power import PowerCap, mean_power
from jaxperf.serving.techniques.speculative import Speculation, expected_tokens, token_distribution
from jaxperf.serving.techniques.two_batches import exchange_left
from jaxperf.serving.techniques.wide_experts import ExpertCopies

Told = dict[str, Array]


class Techniques(eqx.Module):
    """What an engine uses beside the plain step; None or false where it does not (structure). `two_batches`: whether
    two micro-batches hide each other's exchange with experts."""

    speculation: Speculation | None = None
    adapters: Adapters | None = None
    offload: OffloadedCache | None = None
    cap: PowerCap | None = None
    two_batches: bool = eqx.field(static=True, default=False)
    copies: ExpertCopies | None = None

    @property
    def verified(self) -> Scalar:
        """Tokens of a sequence in one step of decode [1]."""
        return as_float(1.0) if self.speculation is None else self.speculation.verified

    @property
    def kept(self) -> Scalar:
        """Tokens that one step of decode makes of a sequence, on average [1]."""
        return as_float(1.0) if self.speculation is None else expected_tokens(self.speculation.acceptance)


def limited(deployment: Deployment, techniques: Techniques | None, told: Told) -> Deployment:
    """The deployment with the power limit of the techniques, where there is one, as the TDP of its device: or what is
    drawn on average (`told_of`), where no clock is low enough for the limit."""
    if techniques is None or techniques.cap is None:
        return deployment
    power = jnp.maximum(techniques.cap.limit, told["average_power"])
    return dataclasses.replace(deployment, device=deployment.device.replace(tdp=power))


def told_of(
    deployment: Deployment,
    model: Transformer,
    techniques: Techniques,
    cost: ServingCost,
    told: Told,
    sequences: Scalar,
    output: Scalar,
) -> Told:
    """What the phases do not tell: of a round, of the adapters, of the energy."""
    more: Told = {}
    if techniques.speculation is not None:
        more |= {
            "tokens_per_round": techniques.kept,
            "round_time": cost.decode.time,
            "draft_time": draft_time(cost.decode.kernels),
            "token_distribution": token_distribution(techniques.speculation.acceptance),
        }
    if techniques.adapters is not None:
        more |= {
            "distinct_adapters": distinct_adapters(techniques.adapters.popularity, sequences),
            "adapter_bytes": adapter_bytes(deployment, model, techniques.adapters),
            "miss_share": miss_share(techniques.adapters, sequences),
            "swap_time": swap_time(deployment, model, techniques.adapters, sequences),
        }
    if techniques.two_batches:
        steps = {"prefill": cost.prefill, "decode": cost.decode}
        more |= {f"{phase}_exchange_left": exchange_left(step.kernels) for phase, step in steps.items()}
    if techniques.cap is not None:
        prefills, decodes = sequences * cost.prefill.stage_time, (output - 1.0) * cost.tpot
        average = mean_power(told["prefill_power"], told["decode_power"], prefills, decodes)
        energy = average * deployment.layout.num_devices / cost.tokens_per_second
        more |= {"average_power": average, "drawn_energy_per_token": energy}
    return more


def told_of_copies(copies: ExpertCopies, without: ServingCost, plain: ServingCost) -> Told:
    """Of experts' copies: how uneven ranks are `without` and with them, both in plain steps."""
    return {
        "skew": copies.skew,
        "balanced_skew": copies.balanced,
        "copy_bytes": plain.memory.weights - without.memory.weights,
        "ttft_without_copies": without.ttft,
        "tpot_without_copies": without.tpot,
    }
