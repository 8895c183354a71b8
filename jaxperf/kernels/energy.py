"""Energy of a kernel: arithmetic, device memory, and what the device draws meanwhile.

E = FLOP x energy per FLOP + bytes x energy per byte + idle power x time (the roofline of energy: Choi, Bedard, Fowler,
Vuduc 2013, IPDPS). Energies per FLOP and byte are of the arithmetic units and the memory alone, so a sum is a lower
bound of what a meter shows. A device whose energies are not known (`Device.energy_facts` 0) is taken to draw its TDP
all the time, an upper bound.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar


class Energy(eqx.Module):
    """What arithmetic, device memory and time spend on one kernel [J]."""

    compute: Float[Array, "*batch"]
    memory: Float[Array, "*batch"]
    idle: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """All of it [J]."""
        return self.compute + self.memory + self.idle


def background_power(device: Device) -> Scalar:
    """What the device draws whatever the kernel does: its idle power, or its TDP where energies are unknown [W]."""
    return jnp.where(device.energy_facts > 0.0, device.idle_power, device.tdp)


@jax.jit
def kernel_energy(device: Device, cost: Cost, operands: NumberFormat) -> Energy:
    """Energy of one kernel on one device.

    **Arguments:** `cost`: of a kernel on this device (a collective's bytes are of the wire: pass none);
    `operands`: the format that is multiplied.
    **Returns:** `Energy` of scalars. Only useful FLOP are counted: what tiles waste is in the time.
    """
    return Energy(
        compute=cost.flops * device.energy_per_flop[operands.compute],
        memory=cost.bytes_moved * device.energy_per_byte,
        idle=background_power(device) * cost.time,
    )


def average_power(energy: Energy, time: Scalar) -> Scalar:
    """E / t of a kernel that takes `time` > 0 [W]."""
    return energy.total / time
