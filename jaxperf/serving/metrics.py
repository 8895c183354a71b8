"""The metrics a sweep or a ranking can ask for: name, unit, meaning, and how they follow from a step's cost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array

from jaxperf.core.metric import MetricFacts
from jaxperf.core.numerics import Scalar
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.towers import prompt_tokens, source_tokens
from jaxperf.serving.phases import ServingCost, decode_cost, prefill_cost, serving_cost

Metrics = dict[str, Array]


METRICS = {
    "ttft": MetricFacts("s", "time to first token: prefill of one prompt, no queueing", True, "min"),
    "tpot": MetricFacts("s", "time per output token: one decode step", True, "min"),
    "e2e_latency": MetricFacts("s", "ttft + (output - 1) x tpot", True, "min"),
    "tokens_per_second": MetricFacts("1/s", "tokens of one replica per second", True, "max"),
    "tokens_per_second_per_device": MetricFacts("1/s", "tokens per second and device of the replica", True, "max"),
    "energy_per_token": MetricFacts("J", "thermal design power of all devices x time over tokens", True, "min"),
    "tokens_per_joule": MetricFacts("1/J", "tokens over the energy at thermal design power", True, "max"),
    "memory": MetricFacts("B", "weights, KV cache and activations on the fullest device", False, "min"),
    "memory_share": MetricFacts("1", "memory over what an engine may use of the device", False, "min"),
    "num_devices": MetricFacts("1", "devices of one replica", False, "min"),
    "limiter": MetricFacts("1", "resource that bounds most of the time: index into core.cost.Limiter", False),
    "reason": MetricFacts("1", "why infeasible: bits of core.feasible.Reason, 0 where feasible", False),
}

# What one task can report; `context` is a decode's only length, `prompt` a prefill's.
TASK_METRICS = {
    "decode": tuple(name for name in METRICS if name not in ("ttft", "e2e_latency")),
    "prefill": tuple(name for name in METRICS if name not in ("tpot", "e2e_latency")),
    "serve": tuple(METRICS),
}
TASK_LENGTHS = {"decode": ("context",), "prefill": ("prompt",), "serve": ("prompt", "output")}


def throughput_metrics(deployment: Deployment, tokens_per_second: Scalar) -> Metrics:
    """Throughput of a replica per device and per joule at thermal design power."""
    devices = deployment.layout.num_devices
    power = deployment.device.tdp * devices
    return {
        "tokens_per_second": tokens_per_second,
        "tokens_per_second_per_device": tokens_per_second / devices,
        "energy_per_token": power / tokens_per_second,
        "tokens_per_joule": tokens_per_second / power,
        "num_devices": devices,
    }


def decode_metrics(
    deployment: Deployment, model: Transformer, batch: Scalar, *, context: Scalar, media_tokens: Scalar | None = None
) -> Metrics:
    """All metrics of `TASK_METRICS["decode"]` for one point."""
    step = decode_cost(deployment, model, batch, context, source_tokens(model, context, media_tokens))
    return {"tpot": step.time, **throughput_metrics(deployment, batch / step.time), **_common(step)}


def prefill_metrics(
    deployment: Deployment, model: Transformer, batch: Scalar, *, prompt: Scalar, media_tokens: Scalar | None = None
) -> Metrics:
    """All metrics of `TASK_METRICS["prefill"]`; tokens are prompt tokens, all `batch` prompts run in one step."""
    step = prefill_cost(deployment, model, batch, prompt, jnp.zeros_like(prompt), media_tokens)
    rate = batch * prompt_tokens(model, prompt) / step.stage_time
    return {"ttft": step.time, **throughput_metrics(deployment, rate), **_common(step)}


def serve_metrics(
    deployment: Deployment,
    model: Transformer,
    batch: Scalar,
    *,
    prompt: Scalar,
    output: Scalar,
    media_tokens: Scalar | None = None,
) -> Metrics:
    """All metrics for requests of `prompt` tokens in and `output` out."""
    return metrics_of(deployment, serving_cost(deployment, model, batch, prompt, output, media_tokens), output)


def metrics_of(deployment: Deployment, cost: ServingCost, output: Scalar) -> Metrics:
    """The metrics that follow from a serving cost."""
    return {
        "ttft": cost.ttft,
        "tpot": cost.tpot,
        "e2e_latency": cost.ttft + (output - 1.0) * cost.tpot,
        **throughput_metrics(deployment, cost.tokens_per_second),
        **_common(cost),
    }


TASKS: dict[str, Callable[..., Metrics]] = {
    "decode": decode_metrics,
    "prefill": prefill_metrics,
    "serve": serve_metrics,
}


def _common(cost) -> Metrics:
    step = cost.decode if isinstance(cost, ServingCost) else cost
    return {
        "memory": cost.memory.total,
        "memory_share": cost.memory.total / cost.memory.usable,
        "limiter": step.limiter,
        "reason": cost.reason,
    }


def with_intervals(levels: Mapping[str, Metrics]) -> Metrics:
    """The nominal metrics, each that has an interval followed by `NAME_lower` and `NAME_upper`.

    **Arguments:** `levels`: the metrics at "low", "nominal" and "high" assumptions.
    """
    found: Metrics = {}
    for name, nominal in levels["nominal"].items():
        found[name] = nominal
        if METRICS[name].interval:
            ends = [level[name] for level in levels.values()]
            found[f"{name}_lower"] = functools.reduce(jnp.minimum, ends)
            found[f"{name}_upper"] = functools.reduce(jnp.maximum, ends)
    return found
