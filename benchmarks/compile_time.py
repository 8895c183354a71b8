"""Seconds to trace and to compile the point function of a study over a grid, with and without interval ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax

from benchmarks.grid import MODEL, large_devices, only
from benchmarks.table import Row
from jaxperf.core.metric import column_units
from jaxperf.io.huggingface import load_model
from jaxperf.serving.study import Study
from jaxperf.sweeps import Sweep

AXES = {
    "decode": {"tensor_parallel": [1, 2, 4, 8], "batch": [1, 8, 64], "context": [512, 4096]},
    "serve": {"tensor_parallel": [1, 2, 4, 8], "batch": [1, 8, 64], "prompt": [512, 4096], "output": [128, 256]},
}
OFTEN = 2**20  # so few points are not compiled for less
METRICS = {
    "decode": ("tpot", "tokens_per_second", "memory", "limiter", "reason"),
    "serve": ("ttft", "tpot", "tokens_per_second", "memory", "limiter", "reason"),
}


def run() -> list[Row]:
    """Informational. Kernel functions are jitted, so the first study also pays for tracing them."""
    jax.config.update("jax_enable_x64", True)
    devices = large_devices()
    rows = []
    for task, metrics in METRICS.items():
        for intervals in (False, True):
            study = Study(load_model(MODEL), task, metrics)
            names = tuple(column_units(study.facts)) if intervals else metrics
            trace, compiling = _seconds(study, names, devices, AXES[task])
            what = f"{task} {'with' if intervals else 'without'} intervals, {len(names)} metrics"
            rows.append(Row("compile_time", f"trace {what}", trace, "s"))
            rows.append(Row("compile_time", f"compile {what}", compiling, "s"))
    return rows


def _seconds(
    study: Study, names: Sequence[str], devices: dict[str, Any], values: dict[str, Any]
) -> tuple[float, float]:
    axes = study.axes({"device": list(devices), **values, "weights": ["bf16", "fp8", "int4"]}, devices)
    jax.clear_caches()
    start = time.perf_counter()
    sweep = Sweep(only(study.point(), names), axes, runs=OFTEN)
    traced = time.perf_counter()
    for _ in sweep.blocks():  # a few thousand points: compiling is all the time
        pass
    return traced - start, time.perf_counter() - traced
