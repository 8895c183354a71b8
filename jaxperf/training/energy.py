"""Energy of a training step over all devices: the roofline of energy, where the device's energies are known.

E = FLOP x energy per FLOP + bytes x energy per byte + idle power x time (Choi, Bedard, Fowler, Vuduc 2013, IPDPS), as
in `jaxperf.kernels.energy`: a lower bound, without the bytes of matrix products. A device whose energies are not known
is taken to draw its TDP all the time, an upper bound: the two do not compare.
"""

from __future__ import annotations

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar
from jaxperf.kernels.energy import background_power
from jaxperf.training.layout import Layout


def step_energy(device: Device, layout: Layout, flops: Scalar, memory_time: Scalar, time: Scalar) -> Scalar:
    """Energy of one step [J].

    **Arguments:** `flops`: issued over all devices [FLOP]; `memory_time`: time one device's memory streams at its full
    rate [s]; `time` of the step [s].
    """
    arithmetic = flops * device.energy_per_flop[layout.compute_format]
    streamed = memory_time * device.memory_bandwidth * device.energy_per_byte
    return arithmetic + layout.world * (streamed + background_power(device) * time)
