"""Facts of devices in units of the H100's."""

from __future__ import annotations

import numpy as np
import pytest

import hwspecs
from calibration.kernels.busiest import NOT_HELD
from calibration.kernels.hardware import REFERENCE_CLOCK, load_hardware
from calibration.kernels.inputs import prepare
from tests.calibration.tables import blank_table


def test_the_h100_is_its_own_reference() -> None:
    """The constants that everything was fitted with are still what its entry and that of its process state."""
    h100 = load_hardware(["h100-sxm"])
    assert (h100.energy[0], h100.matrix_energy[0]) == pytest.approx((1.0, 1.0), rel=1e-6)
    assert h100.clock[0] == pytest.approx(REFERENCE_CLOCK, rel=1e-3)


def test_the_gpu_of_a_system_on_chip_is_a_gpu() -> None:
    names = ["jetson-agx-thor-128gb", "jetson-nano", "h100-sxm", "epyc-9755", "inf2", "raspberry-pi-5", "tpu-v6e"]
    found = load_hardware(names)
    assert np.asarray(found.many_cores).tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert np.asarray(found.cached).tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", ["cpu", "npu", "soc", "gpu", "tpu"])
def test_only_a_cache_whose_rate_is_known_spares_the_memory(kind: str) -> None:
    """16 rows of 128 elements fit the cache of every device."""
    devices = [name for name in hwspecs.names() if hwspecs.load(name).kind == kind]
    shape = {"rows": np.full(len(devices), 16.0), "columns": np.full(len(devices), 128.0)}
    prepared = prepare(blank_table("norm", shape, np.array(devices, object)))
    cached = np.asarray(load_hardware(devices).cached) > 0.0
    assert ((prepared.footprint < 0.0) == cached).all() and (prepared.footprint[~cached] == NOT_HELD).all()
    assert cached.all() if kind in ("gpu", "tpu") else not cached.all()
