"""Slopes of whole steps: defined for every number, equal to finite differences where the formula is smooth."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from jaxtyping import Array

from jaxperf.core.numerics import as_float
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.step import decode_cost, prefill_cost
from jaxperf.sweeps.once import evaluate_once
from tests.devices import DEVICES, H100, decode_step, deployment, model, peak_index, prefill_step

Differentiable = tuple[Deployment, Transformer, Array, Array]
ROOMY = H100.replace(memory_capacity=4e12)


def decode_time(arguments: Differentiable) -> Array:
    return decode_cost(*arguments).time


def prefill_time(arguments: Differentiable) -> Array:
    return prefill_cost(*arguments, as_float(0.0)).time


def slopes_of(time: Callable[[Differentiable], Array]) -> Callable[[Differentiable], Any]:
    """The gradient by every float; integers (the arithmetic of a format) have none."""

    def at(numbers: Differentiable, rest: Differentiable) -> Array:
        return time(eqx.combine(numbers, rest))

    slopes = jax.jit(jax.grad(at))  # on the host: compiling it takes longer than all points together
    return lambda point: evaluate_once(slopes, *eqx.partition(point, eqx.is_inexact_array))


SLOPES = {"decode": slopes_of(decode_time), "prefill": slopes_of(prefill_time)}
STEPS = {"decode": decode_step, "prefill": prefill_step}
LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("llama-2-7b", {}),
    ("llama-2-7b", {"tensor": 8, "level": "high"}),
    ("llama-2-7b", {"tensor": 2, "data": 4, "pipeline": 2}),
    ("llama-2-7b", {"weights": "int4", "launch": "eager"}),
    ("mixtral-8x7b", {}),
    ("mixtral-8x7b", {"tensor": 8, "expert": 8}),
    ("mixtral-8x7b", {"data": 8, "expert": 8}),
    ("mixtral-8x7b", {"tensor": 2, "data": 4, "expert": 2, "skew": 1.5}),
    ("mixtral-8x7b", {"tensor": 8, "data": 4, "expert": 8, "weights": "fp8"}),
]
every_layout = pytest.mark.parametrize(("name", "layout"), LAYOUTS)
phases = pytest.mark.parametrize("phase", SLOPES)


@functools.cache
def slopes_at(phase: str, name: str, device: str = "h100", memory: float = 4e12, **layout: Any) -> tuple[Any, ...]:
    placed = deployment(DEVICES[device].replace(memory_capacity=memory), **layout)
    return SLOPES[phase]((placed, model(name), as_float(16), as_float(1000)))


@phases
@every_layout
def test_no_number_of_a_step_has_an_undefined_slope(phase: str, name: str, layout: dict[str, Any]) -> None:
    """Device, layout, formats, efficiencies, host, model and workload; branches that `where` hides included: windows
    of zero, absent shared experts, groups of one rank, absent tori."""
    for device in DEVICES:
        slopes = slopes_at(phase, name, device, **layout)
        for path, leaf in jax.tree_util.tree_leaves_with_path(slopes):
            assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)


@phases
def test_an_infeasible_point_has_defined_slopes_too(phase: str) -> None:
    slopes = slopes_at(phase, "llama-2-7b", memory=1e9)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


@phases
@every_layout
def test_slopes_of_a_device_equal_finite_differences(phase: str, name: str, layout: dict[str, Any]) -> None:
    slopes = slopes_at(phase, name, **layout)[0].device

    def time(**changes: Any) -> float:
        return float(STEPS[phase](deployment(ROOMY.replace(**changes), **layout), model(name), 16, 1000).time)

    base = time()
    smooth = "vector_flops memory_bandwidth link_bandwidth link_latency network_bandwidth network_latency"
    for field in smooth.split():
        value = float(getattr(ROOMY, field))
        step = 1e-5 * value
        difference = (time(**{field: value + step}) - time(**{field: value - step})) / (2 * step)
        np.testing.assert_allclose(
            getattr(slopes, field), difference, rtol=1e-5, atol=1e-14 * base / step, err_msg=field
        )
    for index in {peak_index("bf16"), peak_index("fp8")}:
        moved = np.zeros(len(ROOMY.peak_flops))
        moved[index] = step = 1e-5 * float(ROOMY.peak_flops[index])
        up, down = (time(peak_flops=ROOMY.peak_flops + sign * moved) for sign in (1, -1))
        np.testing.assert_allclose(
            slopes.peak_flops[index], (up - down) / (2 * step), rtol=1e-5, atol=1e-14 * base / step
        )


@phases
@every_layout
def test_the_slope_of_the_launch_latency_is_the_number_of_launches(
    phase: str, name: str, layout: dict[str, Any]
) -> None:
    """And of the phases of collectives, each of which takes the latency of a link twice."""
    slopes = slopes_at(phase, name, **layout)[0].device
    phases = float(slopes.link_latency) / 2.0
    assert (phases > 0.0) == any(layout.get(way, 1) > 1 for way in ("tensor", "data", "pipeline", "expert"))
    slope = float(slopes.launch_latency) - phases
    step = STEPS[phase](deployment(ROOMY, **layout), model(name), 16, 1000)
    launches = sum(float(cost.latency) for cost in step.kernels.values()) / 3e-6
    launching, device = launches * float(deployment(**layout).host.launch_interval), float(step.time - step.host)
    if layout.get("pipeline", 1) > 1 and phase == "decode":
        assert slope == pytest.approx(launches + 3, rel=1e-9)  # two microbatches pass the stage with the three ends
    else:
        assert slope == pytest.approx(launches if device > launching else 0.0, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("launch", ["graph", "eager"])
def test_where_the_host_is_in_the_way_the_device_has_no_slope(launch: str) -> None:
    point = (deployment(launch=launch), model("llama-2-7b"), as_float(1), as_float(64))
    slopes = SLOPES["decode"](point)[0]
    at_host = eqx.tree_at(lambda d: d.host.launch_interval, point[0], as_float(1e-3 if launch == "eager" else 0.0))
    waiting = SLOPES["decode"]((at_host, *point[1:]))[0]
    assert float(slopes.device.memory_bandwidth) < 0.0
    assert (float(waiting.device.memory_bandwidth) == 0.0) == (launch == "eager")
    assert (float(waiting.host.launch_interval) > 100.0) == (launch == "eager")


@phases
@every_layout
def test_what_a_step_does_not_use_has_a_slope_of_exactly_zero(phase: str, name: str, layout: dict[str, Any]) -> None:
    slopes = slopes_at(phase, name, **layout)
    device, transformer = slopes[0].device, slopes[1]
    for field in ("memory_capacity", "l2_capacity", "tdp", "mesh", "torus_dimensions", "native"):
        assert np.all(np.asarray(getattr(device, field)) == 0.0), field
    used = {peak_index("bf16"), peak_index(layout.get("weights", "bf16").replace("int4", "bf16"))}
    unused = [index for index in range(len(device.peak_flops)) if index not in used]
    assert np.all(np.asarray(device.peak_flops)[unused] == 0.0)
    assert float(transformer.max_context) == float(transformer.positions) == float(transformer.output_tables) == 0.0
    if layout.get("tensor", 1) == layout.get("data", 1) == layout.get("pipeline", 1) == 1:
        assert float(device.link_bandwidth) == float(device.link_latency) == 0.0
        assert float(device.network_bandwidth) == float(device.network_latency) == 0.0


@pytest.mark.parametrize("name", ["llama-2-7b", "mixtral-8x7b"])
def test_slopes_of_efficiencies_and_host_equal_finite_differences(name: str) -> None:
    at = deployment(ROOMY, tensor=2)
    slopes = SLOPES["decode"]((at, model(name), as_float(16), as_float(1000)))[0]
    places: list[Callable[[Deployment], Array]] = [
        lambda d: d.efficiencies.gemm.memory_logit,
        lambda d: d.efficiencies.gemm.compute_logit,
        lambda d: d.efficiencies.attention_decode.memory_logit,
        lambda d: d.efficiencies.moe.memory_logit,
        lambda d: d.efficiencies.elementwise.memory_logit,
        lambda d: d.efficiencies.link,
        lambda d: d.host.step_overhead,
        lambda d: d.cache.itemsize,
        lambda d: d.weights.itemsize,
    ]
    for place in places:
        value = float(place(at))
        step = 1e-5 * max(abs(value), 1e-3)
        up, down = (
            float(decode_step(eqx.tree_at(place, at, as_float(value + sign * step)), model(name), 16, 1000).time)
            for sign in (1, -1)
        )
        np.testing.assert_allclose(place(slopes), (up - down) / (2 * step), rtol=1e-5, atol=1e-12)


def test_more_cores_more_context_and_more_sequences_have_the_expected_signs() -> None:
    slopes = slopes_at("decode", "llama-2-7b")
    assert float(slopes[0].device.memory_bandwidth) < 0.0
    assert float(slopes[3]) > 0.0  # another token of context
    cache_bytes = 2 * 4096 * 32 * 2 * 16  # one more token in each of sixteen sequences
    assert float(slopes[3]) == pytest.approx(cache_bytes / (3.35e12 * 0.7), rel=0.35)
