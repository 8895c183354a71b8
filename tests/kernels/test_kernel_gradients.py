"""Slopes of every kernel: finite everywhere, finite differences away from kinks, straight-through at quotients."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import jax
import numpy as np
import pytest
from jaxtyping import Array

from jaxperf import kernels
from jaxperf.core.device import Device
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.attention import AttentionShape, decode_attention_cost, prefill_attention_cost
from jaxperf.kernels.batched_gemm import BatchedGemm, batched_gemm_cost
from jaxperf.kernels.delta_rule import delta_prefill_cost
from jaxperf.kernels.gemm import Gemm, gemm_cost
from jaxperf.kernels.lightning import lightning_prefill_cost
from jaxperf.kernels.recurrent import LinearAttentionShape
from jaxperf.kernels.tiling import Tile
from tests.devices import DEVICES, H100, efficiencies, peak_index
from tests.kernel_points import KERNELS, arguments

BF16 = number_format("bf16")
SMOOTH = ("peak_flops", "vector_flops", "memory_bandwidth", "launch_latency")
UNUSED = (
    "memory_capacity tdp link_bandwidth link_latency node_size mesh torus_dimensions network_bandwidth "
    "network_latency native l2_capacity energy_per_flop energy_per_byte idle_power energy_facts"
).split()
TIMES = {name: jax.jit(lambda *given, point=kernel.point: point(*given).time) for name, kernel in KERNELS.items()}
GRADIENTS = {
    name: jax.jit(jax.grad(lambda *given, point=kernel.point: point(*given).time, (0, 3, 4, 5)))
    for name, kernel in KERNELS.items()
}
every_kernel = pytest.mark.parametrize("name", KERNELS)
POINTS = ((1.0, 1.0), (1.0, 4096.0), (100.0, 3000.0), (4096.0, 512.0))


@every_kernel
@pytest.mark.parametrize("level", ["nominal", "high"])
def test_no_slope_is_infinite_or_undefined(name: str, level: str) -> None:
    for device in DEVICES.values():
        for m, n in POINTS:
            slopes = GRADIENTS[name](*arguments(device, level=level), as_float(m), as_float(n))
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


@every_kernel
@pytest.mark.parametrize(("m", "n"), POINTS)
def test_slopes_of_rates_and_latencies_equal_finite_differences(name: str, m: float, n: float) -> None:
    fixed = arguments(H100)
    slopes = GRADIENTS[name](*fixed, as_float(m), as_float(n))[0]
    for field in SMOOTH:
        values = np.atleast_1d(np.asarray(getattr(H100, field)))
        for position, value in enumerate(values):
            step = 1e-5 * value

            def at(sign: int, field: str = field, position: int = position, step: float = step) -> float:
                moved = np.atleast_1d(np.asarray(getattr(H100, field))).copy()
                moved[position] += sign * step
                shaped = moved if field == "peak_flops" else moved[0]
                return float(TIMES[name](H100.replace(**{field: shaped}), *fixed[1:], as_float(m), as_float(n)))

            slope = np.atleast_1d(getattr(slopes, field))[position]
            rounding = 1e-15 * at(0) / step
            np.testing.assert_allclose(slope, (at(1) - at(-1)) / (2 * step), rtol=1e-5, atol=10 * rounding)


@every_kernel
def test_what_a_kernel_does_not_use_has_a_slope_of_exactly_zero(name: str) -> None:
    slopes = GRADIENTS[name](*arguments(H100), as_float(1000), as_float(4096))[0]
    for field in set(UNUSED) - set(KERNELS[name].uses):
        assert np.all(np.asarray(getattr(slopes, field)) == 0.0), field
    others = np.delete(np.asarray(slopes.peak_flops), peak_index("bf16"))
    assert np.all(others == 0.0)
    assert float(slopes.launch_latency) == KERNELS[name].launches


def relaxed(a: Array, b: Array) -> Array:
    return a / b


def central(fn: Callable[[float], float], at: float) -> float:
    step = 1e-5 * at
    return (fn(at + step) - fn(at - step)) / (2 * step)


def relax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every integer quotient by the plain division it stands for."""
    for found in pkgutil.iter_modules(kernels.__path__):
        module = importlib.import_module(f"jaxperf.kernels.{found.name}")
        for name in {"ceil_div", "floor_div"} & set(vars(module)):
            monkeypatch.setattr(module, name, relaxed)


def gemm_compute(cores: Array, m: Array, n: Array, k: Array) -> Array:
    tile = Tile(as_float(128), as_float(128), as_float(2))
    device = H100.replace(num_cores=cores)
    return gemm_cost(device, Gemm(m, n, k), BF16, BF16, tile, efficiencies().gemm).compute


def decode_times(cores: Array, batch: Array, context: Array, kv_heads: Array) -> Array:
    """Compute and memory time, so that both sides of the overlap are seen."""
    shape = AttentionShape(kv_heads * 16.0, kv_heads, as_float(128), as_float(0))
    cost = decode_attention_cost.__wrapped__(
        H100.replace(num_cores=cores), shape, batch, context, BF16, BF16, efficiencies().attention_decode
    )
    return cost.compute + cost.memory


def prefill_compute(cores: Array, batch: Array, queries: Array, prefix: Array) -> Array:
    shape = AttentionShape(as_float(32), as_float(8), as_float(128), as_float(0))
    return prefill_attention_cost.__wrapped__(
        H100.replace(num_cores=cores), shape, batch, queries, prefix, BF16, BF16, efficiencies().attention_prefill
    ).compute


def lightning_times(cores: Array, batch: Array, tokens: Array, heads: Array) -> Array:
    shape = LinearAttentionShape(heads, heads, 128, 128, 256)
    cost = lightning_prefill_cost.__wrapped__(
        H100.replace(num_cores=cores), shape, batch, tokens, BF16, efficiencies().linear_attention
    )
    return cost.compute + cost.memory


def delta_compute(cores: Array, batch: Array, tokens: Array, heads: Array) -> Array:
    shape = LinearAttentionShape(heads, heads / 2.0, 128, 128, 64)
    return delta_prefill_cost.__wrapped__(
        H100.replace(num_cores=cores), shape, batch, tokens, BF16, efficiencies().linear_attention
    ).compute


def batched_compute(cores: Array, batch: Array, m: Array, k: Array) -> Array:
    shape = BatchedGemm(batch, m, as_float(1024), k)
    cost = batched_gemm_cost.__wrapped__(
        H100.replace(num_cores=cores), shape, BF16, BF16, efficiencies().gemm, "data-parallel"
    )
    return cost.compute


EXACT_POINTS = {  # all quotients inside are whole numbers here
    "gemm": (gemm_compute, (128.0, 128.0 * 64, 128.0 * 6, 4096.0)),
    "decode": (decode_times, (128.0, 16.0, 4096.0, 8.0)),
    "prefill": (prefill_compute, (128.0, 4.0, 2048.0, 1024.0)),
    "lightning": (lightning_times, (128.0, 8.0, 4096.0, 64.0)),
    "delta": (delta_compute, (128.0, 8.0, 4096.0, 64.0)),
    "batched_gemm": (batched_compute, (128.0, 8.0, 4096.0, 4096.0)),
}


@pytest.mark.parametrize("name", EXACT_POINTS)
@pytest.mark.parametrize("argument", range(4))
def test_the_slope_of_a_count_is_that_of_the_relaxed_formula(
    name: str, argument: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn, values = EXACT_POINTS[name]
    point = tuple(as_float(value) for value in values)
    exact, slope = float(fn(*point)), float(jax.grad(fn, argument)(*point))
    relax(monkeypatch)

    def moved(value: float) -> float:
        return float(fn(*(as_float(value) if i == argument else x for i, x in enumerate(point))))

    assert moved(values[argument]) == pytest.approx(exact, rel=1e-14)
    np.testing.assert_allclose(slope, central(moved, values[argument]), rtol=1e-6, atol=1e-9 * exact / values[argument])


def test_a_gradient_finds_the_binding_resource_only() -> None:
    def time(device: Device, m: float) -> Array:
        tile = Tile(as_float(min(m, 128.0)), as_float(128))
        shape = Gemm(as_float(m), as_float(8192), as_float(8192))
        return gemm_cost(device, shape, BF16, BF16, tile, efficiencies().gemm).time

    few, many = jax.grad(time)(H100, 16.0), jax.grad(time)(H100, 16384.0)
    assert float(few.memory_bandwidth) < 0.0 == float(few.peak_flops[peak_index("bf16")])
    assert float(many.peak_flops[peak_index("bf16")]) < 0.0 == float(many.memory_bandwidth)
