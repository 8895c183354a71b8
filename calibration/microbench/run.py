"""A run of measurements: the points of a plan one after the other, each a row of the schema, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from calibration.datasets.schema import FAMILIES
from calibration.microbench.device_clock import time_on_device
from calibration.microbench.meter import SHORTEST, Drawn, Meter, metered
from calibration.microbench.operation import JaxDevice, Operation
from calibration.microbench.points import Point, points
from calibration.microbench.registry import OPERATIONS
from calibration.microbench.timing import Timing, TimingSettings, live, time_calls

FRAMEWORK = "jax"
MICRO = 1e6
# "host": from the call to its result; "device": what the device's own kernels take (`device_clock`).
CLOCKS: Mapping[str, Callable[..., Timing]] = MappingProxyType({"host": time_calls, "device": time_on_device})
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is measured.

    `device`: name in hwspecs of what is measured; `count`: sizes an operation; `dtypes`: only these formats, if any;
    `states`: "resident", "cold" or both; `shortest` and `longest`: between which the roofline time of a size is [s];
    `budget`: no point is begun after it [s]; `statistic`: which of the repeats is the row's time, "median" or
    "fastest", or "sustained", the time back to back, where a kernel is metered; `clock`: one of `CLOCKS`; `meter`: for
    how long what a kernel draws is metered, 0 if not at all [s].
    """

    device: str
    operations: Sequence[Operation] = OPERATIONS
    count: int = 40
    dtypes: tuple[str, ...] = ()
    states: tuple[str, ...] = ("resident",)
    shortest: float = 0.0
    longest: float = 5e-3
    budget: float = 300.0
    statistic: str = "median"
    clock: str = "host"
    meter: float = 0.0
    seed: int = 0
    timing: TimingSettings = TimingSettings()
    directories: tuple[str | Path, ...] = ()

    def points(self) -> list[Point]:
        """The points, in the order in which they are measured."""
        return points(
            self.operations,
            self.dtypes,
            self.states,
            self.device,
            self.count,
            (self.shortest, self.longest),
            self.seed,
            self.directories,
        )


@dataclass(frozen=True)
class Measurement:
    """One point with its row, or with why there is none."""

    point: Point
    row: Row | None
    problem: str = ""


def measure(
    plan: Plan,
    wanted: Sequence[Point],
    device: JaxDevice | None = None,
    flush: Callable[[], None] = lambda: None,
    meter: Meter | None = None,
) -> Iterator[Measurement]:
    """Measure points one at a time, until they or the plan's budget are used up.

    **Arguments:** `wanted`: as `plan.points()` gives them; `device`: of JAX (default: JAX's own choice); `flush`: runs
    before every call of a cold point (`timing.cache_flush`); `meter`: of the device, where the plan meters. What was
    yielded is finished: an interruption loses only the point under way. A point that fails, for want of memory or of a
    format, says why and the run goes on.
    """
    end = time.monotonic() + plan.budget
    columns = shape_columns(plan.operations)
    for point in wanted:
        if time.monotonic() >= end:
            return
        try:
            timing, drawn = time_point(point, plan, device, flush, meter)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, MemoryError) as error:
            yield Measurement(point, None, f"{point.operation.name} {point.sizes} {point.dtype}: {_first_line(error)}")
            continue
        told = row(point, timing, plan, columns)
        if meter is not None:
            told |= power(drawn)
            if plan.statistic == "sustained" and drawn is not None:
                told["latency_us"] = told["sustained_us"]
        yield Measurement(point, told)


def time_point(
    point: Point, plan: Plan, device: JaxDevice | None, flush: Callable[[], None], meter: Meter | None
) -> tuple[Timing, Drawn | None]:
    """Time one point on a device, and meter what it draws there: not where it is cold, for the flush between its calls
    would be metered too, nor where it is shorter than the host can keep the device busy with."""
    with jax.default_device(device):
        function, operands = point.operation.call(point.sizes, point.dtype, plan.seed)
        call, cold = live(function, operands), point.state == "cold"
        timing = CLOCKS[plan.clock](call, plan.timing, flush if cold else lambda: None)
        if meter is None or cold or timing.fastest < SHORTEST:
            return timing, None
        return timing, metered(call, meter, plan.meter)


def power(drawn: Drawn | None) -> Row:
    """The columns of what a kernel draws back to back: power, clock, and its time there; empty where not metered."""
    if drawn is None:
        return dict.fromkeys(("power_w", "clock_mhz", "sustained_us"))
    return {
        "power_w": _digits(drawn.power),
        "clock_mhz": _digits(drawn.clock / MICRO),
        "sustained_us": _digits(MICRO * drawn.time),
    }


def shape_columns(operations: Sequence[Operation]) -> tuple[str, ...]:
    """The shape columns of all the operations' families, each once: every row has the same columns."""
    names = (column.name for each in operations for column in FAMILIES[each.family])
    return tuple(dict.fromkeys(names))


def row(point: Point, timing: Timing, plan: Plan, columns: Sequence[str]) -> Row:
    """A row of the schema, and what else is known of its time."""
    operation, shape = point.operation, point.operation.shape(point.sizes)
    known = {column.name: column.default for column in FAMILIES[operation.family]} | shape
    return {
        "family": operation.family,
        "op": operation.op,
        "device": plan.device,
        "framework": FRAMEWORK,
        "version": jax.__version__,
        # Cold and resident operands are two kernels to whoever learns from the table.
        "kernel": operation.kernel + (", cold" if point.state == "cold" else ""),
        "dtype": point.dtype,
        "distribution": operation.text.get("distribution", ""),
        **{name: _whole(known.get(name)) for name in columns},
        "latency_us": _digits(MICRO * (timing.fastest if plan.statistic == "fastest" else timing.median)),
        "median_us": _digits(MICRO * timing.median),
        "fastest_us": _digits(MICRO * timing.fastest),
        "spread": _digits(timing.spread),
        "repeats": timing.repeats,
        "operands": point.state,
        "clock": plan.clock,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None or value != value else int(value)


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
