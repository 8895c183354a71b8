"""Facts of devices in units of the H100's."""

from __future__ import annotations

import pytest

from calibration.kernels.hardware import REFERENCE_CLOCK, load_hardware


def test_the_h100_is_its_own_reference() -> None:
    """The constants that everything was fitted with are still what its entry and that of its process state."""
    h100 = load_hardware(["h100-sxm"])
    assert (h100.energy[0], h100.matrix_energy[0]) == pytest.approx((1.0, 1.0), rel=1e-6)
    assert h100.clock[0] == pytest.approx(REFERENCE_CLOCK, rel=1e-3)
