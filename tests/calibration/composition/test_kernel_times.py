"""Isolated times of a graph's operations."""

from __future__ import annotations

from calibration.composition.kernel_times import kernel_times
from calibration.kernels.parameters import load_parameters
from jaxperf.models.workloads.kernels import attention


def test_attention_without_a_mask_goes_by_its_law() -> None:
    """One device's share of the heads takes no less than its share of the time, far beyond what was measured too."""
    ops = [attention(2.0, heads, 75_600.0, 75_600.0, 128.0) for heads in (40.0, 5.0)]
    found = kernel_times(ops, ["h100-sxm"], load_parameters())
    whole, eighth = found.predicted[0]
    assert 0.999 * whole < 8.0 * eighth < 1.1 * whole
    assert (found.lower < found.predicted).all() and (found.predicted < found.upper).all()
