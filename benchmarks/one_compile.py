"""How many programs XLA compiles during a sweep of many blocks: exactly one."""

from __future__ import annotations

import jax

from benchmarks.grid import full_grid
from benchmarks.table import Row
from jaxperf.sweeps import Sweep

BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"


def ragged_sweep() -> Sweep:
    """The full grid in blocks of which the last one is shorter, however many devices there are."""
    for points in range(220_000, 60_000, -20_000):
        sweep = full_grid().sweep(points_per_block=points, runs=10)
        if sweep.plan.points % sweep.plan.block_points:
            return sweep
    raise AssertionError("no block size leaves a ragged last block")


def run() -> list[Row]:
    """Counts JAX's own compile events from the first block to the last, ragged last block included."""
    jax.config.update("jax_enable_x64", True)
    sweep = ragged_sweep()
    compiled: list[str] = []

    def count(event: str, duration: float, **_: object) -> None:
        if event == BACKEND_COMPILE:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(count)
    blocks = sum(1 for _ in sweep.blocks())
    assert len(compiled) == 1, f"{len(compiled)} compilations in one sweep"
    what = f"compilations in a sweep of {blocks} blocks, {sweep.plan.points:,} points"
    return [Row("one_compile", what, len(compiled), "", "== 1")]
