"""Whole iterations over a grid of devices and batches: the kernels of GPT-3 2.7B predicted, then composed."""

from __future__ import annotations

import time

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from benchmarks.table import Row
from benchmarks.timing import medians

DEVICES = tuple("h200-sxm h100-sxm a100-sxm-80gb a100-pcie-40gb a40 l4 l40s t4 v100-pcie-32gb b200".split())
BATCHES = 1000
ENDS = (3, 5)  # batches that the line is drawn through; at 1 two kernels have the same shape
TARGET = "<= 1"  # seconds for all of them


def run() -> list[Row]:
    """Everything after the graph is built: shapes at every batch, kernels on every device, the iterations."""
    from calibration.composition.graph_parameters import load_graphs
    from calibration.composition.kernel_times import kernel_times
    from jaxperf.core.numerics import as_float
    from jaxperf.io.workloads import load_workload
    from jaxperf.models.composition import Composition, iteration_time, shared_limit
    from jaxperf.models.scaled_graph import scaled

    parameters = load_graphs()
    composition, kernels = parameters.compositions["plain"], parameters.kernels
    line = scaled(*(load_workload("gpt3_27", "inf", 2048, batch) for batch in ENDS), ENDS)
    steps = line.laid.steps

    @eqx.filter_jit
    def iterations(times: Array, unlimited: Array, empty: Array, composition: Composition) -> Array:
        def one(times: Array, unlimited: Array, empty: Array) -> Array:
            return iteration_time(
                steps, shared_limit(steps, times, unlimited, composition.draw), composition, empty
            ).time

        return jax.vmap(jax.vmap(one, (0, 0, None)))(times, unlimited, empty)

    def every() -> np.ndarray:
        ops = [op for batch in range(1, BATCHES + 1) for op in line.ops(batch)]
        found = kernel_times(ops, DEVICES, kernels)
        times, unlimited = (
            as_float(each.reshape(len(DEVICES), BATCHES, -1)) for each in (found.predicted, found.unlimited)
        )
        return np.asarray(iterations(times, unlimited, as_float(found.empty), composition))

    found = every()
    seconds = medians({"every": every}, 5, time.perf_counter)["every"]
    what = f"{found.size:,} iterations of GPT-3 2.7B, {len(line.laid.ops)} distinct kernels each, after compilation"
    assert np.isfinite(found).all()
    return [Row("graph_grid", what, seconds, "s", TARGET)]
