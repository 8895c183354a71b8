"""The GEMM formula over dense float32 columns, as a fraction of this machine's own copy bandwidth, one core.

A dense sweep has no structure to exploit: every point has its own shape, so memory bandwidth bounds it. Columns read
per point: m, n, k of the GEMM, peak rate in the weight format, memory bandwidth, cores, launch latency (7 x 4 byte).
Columns written: time, compute time, memory time, FLOP (4 x 4 byte). That is 44 byte a point. The tile (128 x 128, no
split), the number formats and the efficiency are the same for all points. As in a sweep, results are written over those
of the block before last, loops are quick, and vectors have 512 bits where the processor can; the copy counts what it
reads and writes. A second row has the same columns in and out with one addition for each result: what XLA reaches with
this traffic and no formula.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.table import Row
from benchmarks.timing import medians
from jaxperf.core.compiler_options import JOINTLY, WIDE_VECTORS
from jaxperf.core.device import load_device
from jaxperf.core.efficiency import constant_efficiency
from jaxperf.core.formats import number_format
from jaxperf.kernels.gemm import Gemm, gemm_cost
from jaxperf.kernels.tiling import Tile

TARGET = ">= 80"
POINTS = 2**24
BLOCK = 2**18
COPY_BYTES = 2**29  # beyond any cache that one core has to itself
COLUMNS = ("m", "n", "k", "peak", "bandwidth", "cores", "latency")
RESULTS = ("time", "compute", "memory", "flops")
BYTES_PER_POINT = 4 * (len(COLUMNS) + len(RESULTS))


def run() -> list[Row]:
    """The formula's traffic over the copy's."""
    columns = dense_columns(POINTS)
    evaluate, additions = _over_columns(point()), _over_columns(one_addition_each)
    blocks = [[each[start : start + BLOCK] for each in columns] for start in range(0, POINTS, BLOCK)]
    on_device = [[jnp.asarray(each) for each in block] for block in blocks]
    _assert_correct(evaluate(_room(), *on_device[0]), blocks[0])
    source = np.ones(COPY_BYTES // 4, np.float32)
    target = np.zeros_like(source)
    seconds = medians(
        {
            "the GEMM formula": lambda: _sweep(evaluate, on_device),
            "additions only": lambda: _sweep(additions, on_device),
            "copy": lambda: np.copyto(target, source),
        },
        rounds=11,
    )
    traffic, copy = POINTS * BYTES_PER_POINT, 2 * COPY_BYTES / seconds.pop("copy")
    return [
        Row(
            "fraction_of_copy",
            f"of copy bandwidth, {name} on dense float32 columns, {BYTES_PER_POINT} byte a point: "
            f"{POINTS / each / 1e6:.0f} M points/s, {traffic / each / 1e9:.1f} of {copy / 1e9:.1f} GB/s",
            100 * traffic / each / copy,
            "%",
            TARGET if name == "the GEMM formula" else "",
        )
        for name, each in seconds.items()
    ]


def point() -> Callable[..., tuple[jax.Array, ...]]:
    """`gemm_cost` of one point as a function of the columns."""
    base = load_device("h100-sxm")
    bf16, efficiency, tile = number_format("bf16"), constant_efficiency(0.7, 0.8), Tile(128.0, 128.0)
    is_bf16 = jnp.arange(base.peak_flops.size) == bf16.compute

    def evaluate(m, n, k, peak, bandwidth, cores, latency):
        device = base.replace(
            peak_flops=jnp.where(is_bf16, peak, base.peak_flops),
            memory_bandwidth=bandwidth,
            num_cores=cores,
            launch_latency=latency,
        )
        cost = gemm_cost(device, Gemm(m, n, k), bf16, bf16, tile, efficiency)
        return tuple(getattr(cost, name) for name in RESULTS)

    return evaluate


def dense_columns(points: int) -> list[np.ndarray]:
    """Random shapes and devices, one of each per point."""
    rng = np.random.default_rng(0)
    shapes = [rng.integers(1, 8192, points) for _ in range(3)]
    rates = [rng.uniform(1e14, 2e15, points), rng.uniform(1e12, 8e12, points)]
    return [each.astype(np.float32) for each in [*shapes, *rates, rng.integers(32, 256, points), np.full(points, 3e-6)]]


def one_addition_each(m, n, k, peak, bandwidth, cores, latency):
    """As many results of as many columns."""
    return m + n, k + peak, bandwidth + cores, latency + m


def _over_columns(point: Callable) -> Callable:
    """The point function over columns, its results written into the `room` given first."""

    def evaluate(room, *columns):
        del room
        return jax.vmap(point)(*columns)

    return jax.jit(evaluate, donate_argnums=0, keep_unused=True, compiler_options=WIDE_VECTORS | JOINTLY)


def _room() -> tuple[jax.Array, ...]:
    return tuple(jnp.zeros(BLOCK, jnp.float32) for _ in RESULTS)


def _sweep(evaluate: Callable, blocks: list[list[jax.Array]]) -> None:
    rooms = [_room(), _room()]
    for block in blocks:
        rooms.append(jax.block_until_ready(evaluate(rooms.pop(0), *block)))


def _assert_correct(results: tuple[jax.Array, ...], columns: list[np.ndarray]) -> None:
    """The equations once more in float64, close to float32."""
    m, n, k, peak, bandwidth, cores, latency = (each.astype(np.float64) for each in columns)
    waves = np.ceil(np.ceil(m / 128) * np.ceil(n / 128) / cores)
    compute = waves * 2 * 128 * 128 * k * cores / peak / 0.7
    memory = 2 * (m * k + n * k + m * n) / (bandwidth * 0.8)
    expected = (np.maximum(compute, memory) + latency, compute, memory, 2 * m * n * k)
    for name, result, right in zip(RESULTS, results, expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, err_msg=name)
