"""A device's energies are those of its process and memory, or zeros where the facts are missing."""

from __future__ import annotations

import numpy as np
import pytest

import hwspecs
from jaxperf.core.device import ASSUMED_IDLE_SHARE, load_device
from jaxperf.core.formats import COMPUTE_FORMATS


def test_a_shipped_device_takes_its_facts_from_its_process_and_memory() -> None:
    spec, device = hwspecs.load("h100-sxm"), load_device("h100-sxm")
    facts = hwspecs.energy_of(spec)
    assert facts is not None and float(device.energy_facts) == 1.0
    assert float(device.energy_per_byte) == pytest.approx(facts.per_byte.si, rel=1e-15)
    bf16, fp4 = (float(device.energy_per_flop[COMPUTE_FORMATS.index(name)]) for name in ("bf16", "fp4"))
    assert bf16 == pytest.approx(facts.per_flop["bf16"].si, rel=1e-15) == fp4  # no fp4 units: multiplied in bf16
    assert float(device.idle_power) == pytest.approx(ASSUMED_IDLE_SHARE * 700, rel=1e-15)


@pytest.mark.parametrize("name", hwspecs.names())
def test_no_device_has_undefined_energies(name: str) -> None:
    device = load_device(name)
    facts = hwspecs.energy_of(hwspecs.load(name))
    leaves = [device.energy_per_flop, device.energy_per_byte, device.idle_power]
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
    known = float(device.energy_facts)
    assert known == (1.0 if facts is not None else 0.0)
    assert known == float(device.energy_per_byte > 0.0) == float(device.idle_power > 0.0)
    multiplied = np.asarray(device.peak_flops) > 0.0
    assert np.all(np.asarray(device.energy_per_flop)[multiplied] > 0.0) or not known
