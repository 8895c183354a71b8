"""Power of a kernel back to back, by a counter that moves now and then."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.microbench.meter import (
    POLL,
    QUEUED,
    SHORTEST,
    Drawn,
    NvmlMeter,
    Reading,
    between,
    idle_power,
    meter_of,
    metered,
)
from calibration.microbench.points import Point
from calibration.microbench.registry import OPERATIONS
from calibration.microbench.run import Plan, measure, power
from calibration.microbench.timing import TimingSettings
from hwspecs.errors import InputError

pytestmark = pytest.mark.usefixtures("plain_jax")
ADD = next(each for each in OPERATIONS if each.name == "add")


class Device:
    """A device whose counter moves with every call, by `joules`; each takes a thousandth of a second."""

    def __init__(self, joules: float = 0.25) -> None:
        self.joules, self.calls = joules, 0

    def call(self) -> Any:
        time.sleep(1e-3)
        self.calls += 1
        return jnp.zeros(1)

    def energy(self) -> float:
        return self.joules * self.calls

    def clock(self) -> float:
        return 1.5e9


@given(st.floats(1.0, 1000.0), st.floats(2e-4, 5e-3), st.floats(0.02, 0.1), st.floats(0.0, 1.0))
def test_power_and_time_are_those_of_the_device(watts: float, each: float, step: float, phase: float) -> None:
    """But for what passes between a movement of the counter and the reading that sees it, at both ends."""
    times = phase * step + np.arange(0.0, 1.0, POLL)
    found = between([Reading(at, watts * step * np.floor(at / step), 1.5e9, int(at / each)) for at in times])
    assert found.power == pytest.approx(watts, rel=POLL / (1.0 - 2.0 * step - POLL)) and found.clock == 1.5e9
    assert found.time == pytest.approx(each, rel=each / (1.0 - 2.0 * step - each))


def test_a_counter_that_stands_still_is_told() -> None:
    device = Device(0.0)
    with pytest.raises(ValueError, match="moved less than twice"):
        metered(device.call, device, 0.05, settle=0.0)
    with pytest.raises(ValueError, match="moved less than twice"):
        between([])


def test_calls_run_back_to_back_and_are_counted() -> None:
    device = Device()
    found = metered(device.call, device, 0.3, settle=0.05)
    assert found.power * found.time == pytest.approx(device.joules, rel=0.2)
    assert device.calls > 3 and found.time >= 1e-3


def test_a_meter_that_fails_and_a_call_that_fails_end_it() -> None:
    device = Device()

    def fail() -> Any:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        metered(fail, device, 10.0)
    device.energy = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of memory"):
        metered(device.call, device, 0.05, settle=0.0)


def test_few_results_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import calibration.microbench.meter as module

    device, waited = Device(), [0]

    def wait(results: Any) -> Any:
        waited[0] += 1
        assert device.calls - waited[0] <= QUEUED
        return results

    monkeypatch.setattr(module, "jax", SimpleNamespace(block_until_ready=wait))
    metered(device.call, device, 0.1, settle=0.0)
    assert waited[0] == device.calls - QUEUED + 1


def test_an_idle_device_has_a_power() -> None:
    class Clocked(Device):
        def energy(self) -> float:
            return 70.0 * time.perf_counter()

    assert idle_power(Clocked(), 0.2) == pytest.approx(70.0, rel=0.3)


# --- in a run ---------------------------------------------------------------------------------------------------------


def rows(
    least: float, monkeypatch: pytest.MonkeyPatch, state: str = "resident", statistic: str = "median"
) -> list[dict[str, Any]]:
    import calibration.microbench.run as module

    monkeypatch.setattr(module, "SHORTEST", least)
    monkeypatch.setattr(module, "metered", lambda call, meter, seconds: Drawn(123.456, 1.98e9, 2e-3 * seconds))
    plan = Plan("xeon-cloud-2-core", (ADD,), timing=TimingSettings(2, 2, 0.0, 1), meter=0.5, statistic=statistic)
    point = Point(ADD, {name: 64 for name in ADD.sizes}, "fp32", state)
    return [each.row for each in measure(plan, [point], meter=Device()) if each.row]


def test_a_run_has_the_columns_and_leaves_short_and_cold_kernels_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"power_w": 123.46, "clock_mhz": 1980.0, "sustained_us": 1000.0}
    none = dict.fromkeys(known)
    for found, expected in (
        (rows(0.0, monkeypatch), known),
        (rows(1.0, monkeypatch), none),
        (rows(0.0, monkeypatch, "cold"), none),
    ):
        assert {name: found[0][name] for name in known} == expected
        assert found[0]["latency_us"] == found[0]["median_us"]
    assert rows(0.0, monkeypatch, statistic="sustained")[0]["latency_us"] == 1000.0
    (short,) = rows(1.0, monkeypatch, statistic="sustained")
    assert short["latency_us"] == short["median_us"]
    assert power(None) == none and SHORTEST > 50e-6


# --- NVIDIA's counters ------------------------------------------------------------------------------------------------


class NVMLError(Exception):
    """As of the library."""


def library(**parts: Any) -> ModuleType:
    module: Any = ModuleType("pynvml")
    module.NVMLError, module.NVML_CLOCK_SM = NVMLError, 1
    module.nvmlInit = lambda: None
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 1000 * (handle + 1)
    module.nvmlDeviceGetClockInfo = lambda handle, kind: 1980
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def test_nvidia_counts_millijoules_and_megahertz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    device = SimpleNamespace(platform="gpu", client=SimpleNamespace(platform_version="cuda"), local_hardware_id=2)
    meter = meter_of(device)
    assert (meter.energy(), meter.clock()) == (3.0, 1.98e9)


def test_what_has_no_meter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> int:
        raise NVMLError("Not Supported")

    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlDeviceGetTotalEnergyConsumption=refuse))
    with pytest.raises(InputError, match="does not tell the energy it draws: Not Supported"):
        NvmlMeter(0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InputError, match=r"pip install 'jaxperf\[meter\]'"):
        NvmlMeter(0)
    for device in (
        SimpleNamespace(platform="cpu", device_kind="cpu"),
        SimpleNamespace(platform="gpu", device_kind="MI300X", client=SimpleNamespace(platform_version="rocm 7")),
    ):
        with pytest.raises(InputError, match="reads NVIDIA GPUs"):
            meter_of(device)
