"""What the card of a run says: before it the machine and its limits, after it how the run went."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import jax

import hwspecs
from calibration.microbench.device_clock import device_bandwidth
from calibration.microbench.machine import machine_facts, machine_state
from calibration.microbench.meter import Meter, idle_power
from calibration.microbench.operation import JaxDevice
from calibration.microbench.points import Point
from calibration.microbench.run import Measurement, Plan
from calibration.microbench.timing import cache_flush, clock_resolution, dispatch_floor, stream_bandwidth

FLUSHED = 2.0  # a flush writes this many times the last cache
STREAMED = 4.0  # the bandwidth is measured over this many
MOST_MEMORY = 1 / 8  # share of the memory that either may take
MICRO = 1e6


def baseline(plan: Plan, device: JaxDevice, meter: Meter | None = None) -> dict[str, Any]:
    """Machine, clock, dispatch floor [us], memory bandwidth [byte/s], and idle power [W] where there is a meter,
    measured before the first kernel."""
    with jax.default_device(device):
        floor = dispatch_floor()
        streamed = stream_bandwidth if plan.clock == "host" else device_bandwidth
        bandwidth = streamed(_bytes(plan, STREAMED))
    return {
        "created": datetime.date.today().isoformat(),
        "device": plan.device,
        "machine": machine_facts(device),
        "before": machine_state(),
        "clock_resolution_s": clock_resolution(),
        "dispatch_floor_us": {"median": MICRO * floor.median, "fastest": MICRO * floor.fastest},
        "stream_bandwidth": bandwidth,
        **({} if meter is None else {"idle_power_w": idle_power(meter)}),
    }


def caches_flush(plan: Plan, device: JaxDevice) -> Callable[[], None]:
    """What leaves the operands of the next call cold; nothing where no point of the plan is cold."""
    if "cold" not in plan.states:
        return lambda: None
    with jax.default_device(device):
        return cache_flush(_bytes(plan, FLUSHED))


def outcome(plan: Plan, wanted: Sequence[Point], done: Sequence[Measurement], stopped: str | None) -> dict[str, Any]:
    """The plan, how much of it was measured, and what failed; `stopped`: why it ended early, None if it did not."""
    several = any(operation.family == "collective" for operation in plan.operations)
    return {
        "after": machine_state(),
        "statistic": plan.statistic,
        "clock": plan.clock,
        "seed": plan.seed,
        "shortest_s": plan.shortest,
        "longest_s": plan.longest,
        "meter_s": plan.meter,
        "budget_s": plan.budget,
        "sizes_an_operation": plan.count,
        "timing": dataclasses.asdict(plan.timing),
        "collectives": "" if several else "no collective is measured: it takes two devices or more",
        "kernels_planned": len(wanted),
        "kernels_measured": sum(each.row is not None for each in done),
        "stopped": stopped,
        "problems": [each.problem for each in done if each.problem],
    }


def _bytes(plan: Plan, caches: float) -> float:
    spec = hwspecs.load(plan.device, plan.directories)
    return min(caches * spec.l2_capacity.si, MOST_MEMORY * spec.memory_capacity.si)
