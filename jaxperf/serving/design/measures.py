"""What a design is judged by: times and power of a model served on a device of given sizes, a pure function of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.models.layers import Transformer
from jaxperf.models.step import StepCost
from jaxperf.serving.design.sized import SIZES, PowerParts, Sizes, sized
from jaxperf.serving.metrics import metrics_of
from jaxperf.serving.phases import ServingCost, serving_cost
from jaxperf.serving.study import Assumed, deployment_of
from jaxperf.serving.techniques.power import PowerLaw, mean_power, step_power

# Measure -> (its unit, what it is). Less of each is better, so each can be minimised, or limited from above.
MEASURES = {
    "power": ("W", "what a device draws on average while it serves"),
    "tdp": ("W", "power that the device is built for"),
    "die_area": ("m^2", "of its dies, where that of the base is known"),
    "energy_per_token": ("J", "drawn by all devices over output tokens"),
    "ttft": ("s", "prefill of one prompt, no queueing"),
    "tpot": ("s", "one decode step"),
    "e2e_latency": ("s", "ttft + (output - 1) x tpot"),
}
Measures = dict[str, Scalar]


class Served(eqx.Module):
    """The base device with the parts of its power, and how a model is served on it: `point` holds the arguments of
    `deployment_of` but for the device, and batch, prompt and output; `die_area` of the base [m^2], None if unknown."""

    base: CalibratedDevice
    parts: PowerParts
    law: PowerLaw
    model: Transformer
    point: dict[str, Any]
    die_area: Scalar | None = None


class Judged(NamedTuple):
    """`measures` of `MEASURES`, NaN where it cannot run, and the sizes over the base's; `cost` of serving."""

    measures: Measures
    cost: ServingCost


def judged(served: Served, assumed: Assumed, sizes: Sizes, holds_all: bool = False) -> Judged:
    """A model served on the device of these sizes.

    **Arguments:** `holds_all`: see `sized`.
    """
    rest = dict(served.point)
    batch, prompt, output = (rest.pop(name) for name in ("batch", "prompt", "output"))
    device = sized(served.base, served.parts, sizes, holds_all)
    deployment = deployment_of(assumed, device=device, **rest)
    cost = serving_cost(deployment, served.model, batch, prompt, output)
    sequences = ceil_div(batch, deployment.layout.data_parallel)
    power = serving_power(deployment.device, served.law, cost, sequences, output)
    found = metrics_of(deployment, cost, output)
    measures = {
        "power": jnp.where(cost.reason == 0, power, jnp.nan),
        "tdp": deployment.device.tdp,
        "energy_per_token": power * deployment.layout.num_devices / cost.tokens_per_second,
        **({} if served.die_area is None else {"die_area": served.die_area * sizes.cores}),
        **{name: found[name] for name in ("ttft", "tpot", "e2e_latency")},
        **dict(zip(SIZES, (sizes.cores, sizes.bandwidth, sizes.clock, sizes.links), strict=True)),
    }
    return Judged(measures, cost)


def serving_power(device: Device, law: PowerLaw, cost: ServingCost, sequences: Scalar, output: Scalar) -> Scalar:
    """What one device draws on average while it serves, at its highest clock (`techniques.power`) [W].

    **Arguments:** `sequences` of a replica in decode, `output` tokens of each [1].
    """
    prefill, decode = (_step_power(device, law, step) for step in (cost.prefill, cost.decode))
    prefills, decodes = sequences * cost.prefill.stage_time, (output - 1.0) * cost.decode.time
    return mean_power(prefill, decode, prefills, decodes)


def _step_power(device: Device, law: PowerLaw, step: StepCost) -> Scalar:
    return step_power(device, law, step.kernels, lambda clock: step.time, as_float(1.0))
