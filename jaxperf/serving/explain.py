"""One deployment explained: its metrics with intervals, and every kernel of both phases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from jaxperf.core.cost import Limiter
from jaxperf.core.device import Device
from jaxperf.core.efficiency import LEVELS
from jaxperf.core.numerics import Scalar, as_float, stack
from jaxperf.core.sustained import RATE_LEVELS, ROOFLINE, CalibratedDevice
from jaxperf.models.layers import transformer
from jaxperf.models.memory import MemoryUse
from jaxperf.models.step import StepCost
from jaxperf.serving.metrics import Metrics, metrics_of, with_intervals
from jaxperf.serving.phases import ServingCost, serving_cost
from jaxperf.serving.study import Assumed, Study, assumed_at, deployment_of, formats_of
from jaxperf.serving.study_values import MEDIA
from jaxperf.serving.techniques.break_even import break_even_batch
from jaxperf.serving.techniques.chosen import Techniques, Told, limited
from jaxperf.serving.techniques.serve import technique_cost
from jaxperf.serving.techniques.wide_experts import with_copies
from jaxperf.sweeps.once import evaluate_once, evaluate_over

WORKLOAD = ("batch", "prompt", "output", MEDIA)
PHASES = ("prefill", "decode")
HOST, WAIT = "host", "pipeline_wait"  # among kernels

Ends = dict[str, dict[str, tuple[Array, Array]]]  # by phase and kernel


class Explanation(eqx.Module):
    """Metrics with interval ends, the costs behind their nominal values, the time that each resource bounds by phase
    [s], the metrics at the plain roofline, what there is to tell of techniques (`techniques.serve.technique_cost`), and
    the ends of the interval of each kernel's time, and of the `HOST`'s and the `WAIT`'s, by phase [s]; leaves are host
    arrays."""

    metrics: Metrics
    cost: ServingCost
    bounded: dict[str, dict[Limiter, Array]]
    roofline: Metrics
    told: Told
    ends: Ends


def explain(
    study: Study,
    devices: Sequence[Device | CalibratedDevice],
    points: Sequence[Mapping[str, Any]],
    techniques: Techniques | None = None,
) -> list[Explanation]:
    """Explanations of several points in one compiled call, or of one.

    **Arguments:** `study`: its task is "serve"; `devices`, `points`: one device and one set of parameter values each,
    all points naming the same parameters; `techniques`: of all points, None for plain steps.
    """
    arguments = [_arguments(device, point) for device, point in zip(devices, points, strict=True)]
    one, assumed = _at_point(study), [assumed_at(level, study.launch) for level in RATE_LEVELS]
    if len(arguments) == 1:
        found = [evaluate_once(one, level, arguments[0], techniques) for level in assumed]
        return [jax.device_get(_told_together(found))]
    rows = jax.device_get(evaluate_over(one, stack(assumed), stack(arguments), techniques, along=((0,), (1,), ())))
    levels = [jax.tree.map(lambda leaf, at=level: leaf[at], rows) for level in range(len(assumed))]
    together = jax.device_get(_told_together(levels))
    return [jax.tree.map(lambda leaf, at=point: leaf[at], together) for point in range(len(points))]


def memory_of(
    study: Study, device: Device | CalibratedDevice, point: Mapping[str, Any], techniques: Techniques | None = None
) -> MemoryUse:
    """What one rank keeps in memory, as `explain` has it."""
    nominal = assumed_at("nominal", study.launch)
    return evaluate_once(_at_point(study), nominal, _arguments(device, point), techniques).cost.memory


def _arguments(device: Device | CalibratedDevice, point: Mapping[str, Any]) -> dict[str, Any]:
    """Device, formats and numbers of a point, as arrays."""
    numbers = {name: as_float(value) for name, value in point.items() if name not in ("weights", "kv_cache")}
    return {"device": device, **formats_of(point["weights"], point["kv_cache"]), **numbers}


@functools.lru_cache(maxsize=8)
def _at_point(study: Study) -> Callable[[Assumed, Mapping[str, Any], Techniques | None], Explanation]:
    """The explanation of one point at one level, without intervals, as a jitted function that is kept."""

    def one(assumed: Assumed, given: Mapping[str, Any], techniques: Techniques | None) -> Explanation:
        rest = {name: value for name, value in given.items() if name not in WORKLOAD}
        deployment = deployment_of(assumed, **rest)
        batch, prompt, output = given["batch"], given["prompt"], given["output"]
        model, told = transformer(study.model), {}
        if techniques is None:
            cost = serving_cost(deployment, model, batch, prompt, output, given.get(MEDIA))
        else:
            cost, told = technique_cost(deployment, model, techniques, batch, prompt, output)
        metrics = metrics_of(limited(deployment, techniques, told), cost, given["output"])
        bounded = {phase: getattr(cost, phase).time_by_limiter() for phase in PHASES}
        return Explanation({name: metrics[name] for name in study.metrics}, cost, bounded, {}, told, {})

    return jax.jit(one)


def _told_together(found: Sequence[Explanation]) -> Explanation:
    """The nominal explanation, with the metrics of all of `RATE_LEVELS`."""
    at = dict(zip(RATE_LEVELS, found, strict=True))
    metrics = with_intervals({level: at[level].metrics for level in LEVELS})
    nominal = at["nominal"]
    ends = _kernel_ends([at[level].cost for level in LEVELS])
    return Explanation(metrics, nominal.cost, nominal.bounded, at[ROOFLINE].metrics, nominal.told, ends)


def _kernel_ends(costs: Sequence[ServingCost]) -> Ends:
    """The shortest and the longest time of each kernel among costs of the same kernels."""

    def over(phase: str) -> dict[str, tuple[Array, Array]]:
        steps = [getattr(cost, phase) for cost in costs]
        times = {name: [step.kernels[name].time for step in steps] for name in steps[0].kernels}
        times |= {HOST: [step.host for step in steps], WAIT: [pipeline_wait(step) for step in steps]}
        return {name: (np.minimum.reduce(each), np.maximum.reduce(each)) for name, each in times.items()}

    return {phase: over(phase) for phase in PHASES}


def pipeline_wait(step: StepCost) -> Array:
    """How long a sequence waits for the busiest stage of a pipeline, beside its own pass through all of them [s]."""
    return step.time - sum(cost.time for cost in step.kernels.values()) - step.host


def break_even(
    study: Study,
    device: Device | CalibratedDevice,
    point: Mapping[str, Any],
    techniques: Techniques,
    law: Callable[..., Scalar] = break_even_batch,
) -> float:
    """From which batch on a technique does not pay, or pays, for requests like those of the point: a `law` of
    `techniques.break_even`."""
    layout = {name: as_float(point[name]) for name in point if name.endswith("_parallel")}
    formats, context = formats_of(point["weights"], point["kv_cache"]), point["prompt"] + point["output"] / 2.0
    arguments = {"device": device, **formats, **layout}

    @jax.jit
    def batch(given: Mapping[str, Any], techniques: Techniques) -> Array:
        deployment, model = deployment_of(assumed_at("nominal", study.launch), **given), transformer(study.model)
        copied = with_copies(deployment, model, techniques.copies)
        return law(*copied, techniques.speculation, as_float(context))

    return float(evaluate_once(batch, arguments, techniques))


def limiter_shares(explanation: Explanation, phase: str) -> dict[Limiter, float]:
    """Share of a phase's step that each resource bounds, largest first; shares under 0.5 % are left out."""
    times = {limiter: float(time) for limiter, time in explanation.bounded[phase].items()}
    total = sum(times.values())
    shares = {limiter: time / total for limiter, time in times.items()}
    return {limiter: share for limiter, share in sorted(shares.items(), key=lambda item: -item[1]) if share >= 0.005}
