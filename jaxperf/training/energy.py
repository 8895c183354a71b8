"""Energy of a training step over all devices: the roofline of energy, where the device's energies are known.

E = FLOP x energy per FLOP + bytes x energy per byte + idle power x time (Choi, Bedard, Fowler, Vuduc 2013, IPDPS).
Energies per FLOP and byte are of the arithmetic units and the memory alone, and the bytes of matrix products are left
out: a lower bound of what a meter shows. A device whose energies are not known (`Device.energy_facts` 0) is taken to
draw its TDP all the time, an upper bound: the two do not compare.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar
from jaxperf.training.layout import Layout


def step_energy(device: Device, layout: Layout, flops: Scalar, memory_time: Scalar, time: Scalar) -> Scalar:
    """Energy of one step [J].

    **Arguments:** `flops`: issued over all devices [FLOP]; `memory_time`: time one device's memory streams at its full
    rate [s]; `time` of the step [s].
    """
    arithmetic = flops * device.energy_per_flop[layout.compute_format]
    streamed = memory_time * device.memory_bandwidth * device.energy_per_byte
    return arithmetic + layout.world * (streamed + background_power(device) * time)


def background_power(device: Device) -> Scalar:
    """What the device draws whatever it does: its idle power, or its TDP where energies are unknown [W]."""
    return jnp.where(device.energy_facts > 0.0, device.idle_power, device.tdp)
