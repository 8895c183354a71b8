"""Measure this machine's own device, kernel by kernel, into the schema of `calibration.datasets`."""

from calibration.microbench.registry import OPERATIONS, families
from calibration.microbench.run import Measurement, Plan, measure
from calibration.microbench.timing import Timing, TimingSettings, time_calls

__all__ = [
    "OPERATIONS",
    "Measurement",
    "Plan",
    "Timing",
    "TimingSettings",
    "families",
    "measure",
    "time_calls",
]
