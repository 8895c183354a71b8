"""The full decode step over a million-point grid: a jaxperf sweep against NumPy broadcasting, one core each.

The last row of each group is the limit of the others: what the same sweep reaches where every result is a single
operation a point.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from benchmarks.grid import METRICS, Grid, TwinInputs, full_grid, twin_inputs
from benchmarks.table import Row
from benchmarks.timing import medians
from jaxperf.sweeps import Sweep

TARGET = ">= 8"
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
RUNS = 20  # of each sweep, about
DEVICES_A_BLOCK = (2, 4, 8, 16)  # NumPy's blocks: the fastest of these is taken


def run() -> list[Row]:
    """Both number types; the step's time alone, and with what a ranking shows beside it."""
    rows = []
    for dtype in ("float64", "float32"):
        with double_precision(dtype == "float64"):
            for metrics, said in ((METRICS[:1], "the step's time"), (METRICS, f"{len(METRICS)} results")):
                rows += _compare(full_grid(), dtype, metrics, said)
    return rows


def _compare(grid: Grid, dtype: str, metrics: Sequence[str], said: str) -> list[Row]:
    sweep, inputs, points = grid.sweep(metrics, runs=RUNS), twin_inputs(grid, dtype), math.prod(grid.shape)
    assert_agreement(grid, sweep, inputs, TOLERANCE[dtype])
    alone = grid.results_alone(metrics, runs=RUNS)
    contenders = {
        "jaxperf": lambda: consume(sweep),
        "results alone": lambda: consume(alone),
        "whole": lambda: dense(inputs, grid.shape, metrics),
    }
    for devices in DEVICES_A_BLOCK:
        contenders[f"blocks of {devices} devices"] = lambda devices=devices: in_blocks(
            inputs, grid.shape, devices, metrics
        )
    seconds = medians(contenders)
    rate = {name: points / each / 1e6 for name, each in seconds.items()}
    best = min((name for name in seconds if name.startswith("blocks")), key=seconds.__getitem__)
    here = f"{said}, {points:,} points, {dtype}: {rate['jaxperf']:.0f} M/s"
    return [
        Row(
            "vs_numpy",
            f"NumPy broadcasting: {here} against {rate['whole']:.0f}",
            seconds["whole"] / seconds["jaxperf"],
            "x",
            TARGET,
        ),
        Row(
            "vs_numpy",
            f"NumPy in {best}: {here} against {rate[best]:.0f}",
            seconds[best] / seconds["jaxperf"],
            "x",
            TARGET,
        ),
        Row(
            "vs_numpy",
            f"NumPy broadcasting, if {said} were one operation a result: {rate['results alone']:.0f} M/s",
            seconds["whole"] / seconds["results alone"],
            "x",
        ),
    ]


def consume(sweep: Sweep) -> None:
    """Compute every block, and look at one number of it."""
    for block in sweep.blocks():
        next(iter(block.metrics.values())).flat[0]


def dense(inputs: TwinInputs, shape: tuple[int, ...], metrics: Sequence[str]) -> dict[str, np.ndarray]:
    """Metrics of the twin as dense arrays, which is what a sweep returns."""
    found = inputs.evaluate(metrics)
    return {name: np.ascontiguousarray(np.broadcast_to(each, shape)) for name, each in found.items()}


def in_blocks(inputs: TwinInputs, shape: tuple[int, ...], devices: int, metrics: Sequence[str]) -> None:
    """The same, some devices at a time, so that temporaries stay near the processor."""
    for start in range(0, shape[0], devices):
        stop = min(shape[0], start + devices)
        dense(inputs.rows(start, stop), (stop - start, *shape[1:]), metrics)


def assert_agreement(grid: Grid, sweep: Sweep, inputs: TwinInputs, tolerance: float) -> None:
    """Every metric of every point is the same, infeasible points included."""
    expected = dense(inputs, grid.shape, tuple(sweep.metrics))
    for name, values in sweep.dense().metrics.items():
        # Axes the grid does not name come last, with one value.
        np.testing.assert_allclose(values.reshape(grid.shape), expected[name], rtol=tolerance, err_msg=name)


@contextlib.contextmanager
def double_precision(enabled: bool) -> Iterator[None]:
    """64-bit floats inside, or not."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", enabled)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
