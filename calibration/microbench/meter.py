"""What a device draws while it runs one kernel over and over, by its own counter of energy.

A call takes microseconds and a counter moves every few hundredths of a second. So calls run back to back, a few queued
ahead of the device, and power is the energy between the first and the last movement of the counter over the time
between them. A thread of its own reads: an answer takes 10 ms on some machines, in which the device would run dry.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any, NamedTuple, Protocol

import jax

from calibration.microbench.operation import JaxDevice
from hwspecs.errors import InputError

SETTLE = 0.3  # run before the first reading: until the clock is where the power leaves it [s]
POLL = 5e-3  # between readings [s]
QUEUED = 4  # calls that the device has before it, so that it never waits for the host, yet few results are held
SHORTEST = 150e-6  # of what is metered: the dispatch of a call, some 50 us, must keep ahead of the device [s]
IDLE = 1.0  # for how long an idle device is metered [s]
MILLI, MEGA = 1e-3, 1e6


class Meter(Protocol):
    """What a device tells of itself while it works."""

    def energy(self) -> float:
        """Energy drawn since some moment [J]."""
        ...

    def clock(self) -> float:
        """Clock of its cores now [Hz]."""
        ...


@dataclass(frozen=True)
class Drawn:
    """Mean power [W] and median clock [Hz] of a kernel back to back; `time`: of one call there [s]."""

    power: float
    clock: float
    time: float


class NvmlMeter:
    """The counters of an NVIDIA GPU (NVML: nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetClockInfo)."""

    def __init__(self, index: int) -> None:
        """**Raises:** `InputError` where the library, the driver, or the counter is missing."""
        try:
            import pynvml
        except ImportError:
            raise InputError(
                "--meter reads the GPU's counters with nvidia-ml-py: pip install 'jaxperf[meter]'."
            ) from None
        self._library: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self.energy()
        except pynvml.NVMLError as error:
            raise InputError(f"--meter: the GPU does not tell the energy it draws: {error}.") from None

    def energy(self) -> float:
        """Energy since the driver was loaded [J]."""
        return MILLI * self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle)

    def clock(self) -> float:
        """Clock of the multiprocessors [Hz]."""
        return MEGA * self._library.nvmlDeviceGetClockInfo(self._handle, self._library.NVML_CLOCK_SM)


def meter_of(device: JaxDevice) -> Meter:
    """The meter of a device of JAX. Raises `InputError` where there is none."""
    if device.platform not in ("gpu", "cuda") or "rocm" in str(getattr(device.client, "platform_version", "")).lower():
        raise InputError(f"--meter reads NVIDIA GPUs; JAX runs on {device.device_kind} here.")
    return NvmlMeter(device.local_hardware_id)


class Reading(NamedTuple):
    """When [s], the energy until then [J], the clock then [Hz], and the calls begun until then."""

    time: float
    energy: float
    clock: float
    calls: int


def metered(call: Callable[[], Any], meter: Meter, seconds: float, settle: float = SETTLE) -> Drawn:
    """Run `call` back to back for `settle` and then `seconds`, in which the meter is read.

    **Raises:** `ValueError` where the counter moved less than twice.
    """
    queue: deque[Any] = deque()
    stop, begun = Event(), 0

    def once() -> None:
        nonlocal begun
        queue.append(call())
        begun += 1
        if len(queue) > QUEUED:
            jax.block_until_ready(queue.popleft())

    _until(time.perf_counter() + settle, once)
    with ThreadPoolExecutor(1) as reader:
        try:
            read = reader.submit(_readings, meter, lambda: begun, stop)
            _until(time.perf_counter() + seconds, once)
        finally:
            stop.set()
        readings = read.result()
    jax.block_until_ready(queue)
    return between(readings)


def idle_power(meter: Meter, seconds: float = IDLE) -> float:
    """What a device draws with nothing to do but a program that holds it [W]."""
    return metered(lambda: time.sleep(POLL), meter, seconds).power


def between(readings: Sequence[Reading]) -> Drawn:
    """Power, clock and time of a call from the first to the last movement of the counter.

    **Raises:** `ValueError` where it moved less than twice.
    """
    moved = [now for before, now in itertools.pairwise(readings) if now.energy != before.energy]
    if len(moved) < 2:
        raise ValueError("the counter of energy moved less than twice; meter for longer")
    first, last = moved[0], moved[-1]
    elapsed, calls = last.time - first.time, last.calls - first.calls
    clock = statistics.median(each.clock for each in readings)
    return Drawn((last.energy - first.energy) / elapsed, clock, elapsed / max(calls, 1))


def _until(end: float, work: Callable[[], None]) -> None:
    while time.perf_counter() < end:
        work()


def _readings(meter: Meter, calls: Callable[[], int], stop: Event) -> list[Reading]:
    found = []
    while not stop.wait(POLL):
        before = time.perf_counter()
        energy = meter.energy()
        middle = 0.5 * (before + time.perf_counter())
        found.append(Reading(middle, energy, meter.clock(), calls()))
    return found
