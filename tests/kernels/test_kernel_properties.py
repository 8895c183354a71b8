"""What holds for every kernel: better devices are never slower, more work is never faster, units do not matter."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.numerics import as_float
from tests.devices import DEVICES, close, faster, single
from tests.kernel_points import KERNELS, arguments

COMPILED = {name: jax.jit(kernel.point) for name, kernel in KERNELS.items()}
every_kernel = pytest.mark.parametrize("name", KERNELS)
sizes = st.one_of(st.integers(1, 20_000), st.sampled_from([2**j for j in range(14)]))
device_names = st.sampled_from(sorted(DEVICES))
some = settings(max_examples=12)  # of each kernel and property: two thousand in all


def run(name: str, device: Device, m: float, n: float, weights: str = "bf16", level: str = "nominal") -> Cost:
    return COMPILED[name](*arguments(device, weights, level), as_float(m), as_float(n))


@every_kernel
@some
@given(device_names, sizes, sizes, st.floats(1.0, 4.0))
def test_faster_memory_or_arithmetic_is_never_slower(name: str, device: str, m: int, n: int, more: float) -> None:
    before = DEVICES[device]
    time = float(run(name, before, m, n).time)
    for field in ("memory_bandwidth", "peak_flops", "vector_flops"):
        better = before.replace(**{field: getattr(before, field) * more})
        assert float(run(name, better, m, n).time) <= time * (1 + 1e-14)
    later = before.replace(launch_latency=before.launch_latency * more)
    assert float(run(name, later, m, n).time) >= time


@pytest.mark.parametrize("name", ["gemm", "grouped_gemm", "routed_gemm", "prefill", "windowed_prefill"])
@some
@given(device_names, sizes, sizes, st.integers(0, 200))
def test_more_cores_of_the_same_kind_are_never_slower(name: str, device: str, m: int, n: int, more: int) -> None:
    """At a fixed total peak this is false (133 cores may need the waves of 132), and where work is split over idle
    cores (linear, decode) the traffic of the partial results grows."""
    before = DEVICES[device]
    cores = before.num_cores + more
    after = before.replace(num_cores=cores, peak_flops=before.peak_flops * (cores / before.num_cores))
    assert float(run(name, after, m, n).time) <= float(run(name, before, m, n).time) * (1 + 1e-13)


@every_kernel
@some
@given(device_names, sizes, sizes, st.integers(0, 2000))
def test_more_work_is_never_faster(name: str, device: str, m: int, n: int, more: int) -> None:
    kernel, base = KERNELS[name], run(name, DEVICES[device], m, n)
    larger = {"m": run(name, DEVICES[device], m + more, n), "n": run(name, DEVICES[device], m, n + more)}
    for grows, cost in ((kernel.m_grows, larger["m"]), (kernel.n_grows, larger["n"])):
        if grows:
            assert float(cost.time) >= float(base.time) * (1 - 1e-14)
            assert float(cost.flops) >= float(base.flops) and float(cost.bytes_moved) >= float(base.bytes_moved)


@every_kernel
@some
@given(device_names, sizes, sizes)
def test_efficiency_levels_are_ordered(name: str, device: str, m: int, n: int) -> None:
    slow, usual, fast = (run(name, DEVICES[device], m, n, level=level) for level in ("low", "nominal", "high"))
    assert float(slow.time) > float(usual.time) > float(fast.time)
    assert float(slow.bytes_moved) == float(fast.bytes_moved) and float(slow.flops) == float(fast.flops)


@every_kernel
@some
@given(device_names, sizes, sizes, st.integers(-20, 20), st.floats(0.01, 100.0))
def test_a_world_with_faster_clocks_scales_every_time(
    name: str, device: str, m: int, n: int, exponent: int, factor: float
) -> None:
    base = run(name, DEVICES[device], m, n)
    doubled, other = (run(name, faster(DEVICES[device], scale), m, n) for scale in (2.0**exponent, factor))
    for field in ("time", "compute", "memory", "network", "latency"):
        assert float(getattr(doubled, field)) == float(getattr(base, field)) / 2.0**exponent
        np.testing.assert_allclose(getattr(other, field), getattr(base, field) / factor, rtol=1e-12)
    assert float(doubled.flops) == float(base.flops) and float(other.bytes_moved) == float(base.bytes_moved)


M = np.asarray([1.0, 16.0, 17.0, 128.0, 1056.0, 4096.0])
N = np.asarray([1.0, 100.0, 512.0, 16896.0, 8192.0])


def grids(name: str) -> dict[str, Cost]:
    """The same product of sizes in each layout a sweep may use, as [M, N] columns."""
    point, fixed = KERNELS[name].point, arguments(DEVICES["h100"], "int4")
    constant = (None,) * len(fixed)
    m, n = as_float(M), as_float(N)
    columns = [as_float(x.ravel()) for x in np.meshgrid(M, N, indexing="ij")]
    nested = jax.vmap(jax.vmap(point, (*constant, None, 0)), (*constant, 0, None))
    dense = jax.vmap(point, (*constant, 0, 0))

    def square(cost: Cost) -> Cost:
        return jax.tree.map(lambda leaf: leaf.reshape(len(M), len(N)), cost)

    scalars = [COMPILED[name](*fixed, x, y) for x, y in zip(*columns, strict=True)]
    return {
        "nested vmap": jax.jit(nested)(*fixed, m, n),
        "dense columns": square(jax.jit(dense)(*fixed, *columns)),
        "scalars": square(jax.tree.map(lambda *leaves: np.stack(leaves), *scalars)),
    }


@every_kernel
def test_every_layout_gives_the_same_counts_and_times(name: str) -> None:
    found = grids(name)
    reference = found.pop("scalars")
    for cost in found.values():
        assert close(cost, reference)
        if name != "routed_gemm":  # its counts are expectations, not integers
            assert np.array_equal(cost.flops, reference.flops)
            assert np.array_equal(cost.bytes_moved, reference.bytes_moved)


@every_kernel
def test_without_compilation_a_point_is_the_same(name: str) -> None:
    with jax.disable_jit():
        eager = KERNELS[name].point(*arguments(DEVICES["a100"]), as_float(1056), as_float(4096))
    assert close(eager, run(name, DEVICES["a100"], 1056, 4096))


@every_kernel
def test_single_precision_agrees_with_double(name: str) -> None:
    fixed, point = arguments(DEVICES["mi300x"], "fp8"), KERNELS[name].point
    double = [COMPILED[name](*fixed, as_float(m), as_float(n)) for m in M for n in N]
    with jax.enable_x64(False):
        narrow = jax.jit(point)
        sizes = [(as_float(m), as_float(n)) for m in M for n in N]
        found = [narrow(*single(fixed), m, n) for m, n in sizes]
        assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(found))
    assert close(found, double, 1e-5)
