"""What the operations of a trace cost on a device: the roofline for work, alpha-beta collectives for messages."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxperf.core.device import Device
from jaxperf.core.efficiency import Utilization, assumed_shares
from jaxperf.core.formats import COMPUTE_FORMATS
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.core.sustained import RATE_LEVELS, Sustained
from jaxperf.kernels.roofline import kernel_cost
from jaxperf.network.link import split_fabric
from jaxperf.training.replay.messages import MESSAGE_TIMES


class Machine(eqx.Module):
    """A device and the shares of its rates that operations reach; `peak`: of the matrix units [FLOP/s]."""

    device: Device
    utilization: Utilization
    link_efficiency: Float[Array, ""]
    peak: Float[Array, ""]


class Demand(NamedTuple):
    """What sets the time of an operation.

    `what`: "work" or a key of `MESSAGE_TIMES`; `flops` [FLOP]; `size`: moved in device memory, or the whole buffer of
    a collective [byte]; `local_ranks` in each of `nodes` nodes but for `gaps`, of which `widest_gap` in one.
    """

    what: str
    flops: float = 0.0
    size: float = 0.0
    local_ranks: int = 1
    nodes: int = 1
    gaps: int = 0
    widest_gap: int = 0


def assumed_machine(device: Device, dtype: str = "bf16", level: str = "nominal") -> Machine:
    """With the shares assumed for matrix products and for links, because a trace does not say what its operations are.

    **Arguments:** `dtype`: one of `COMPUTE_FORMATS`; `level`: "low", "nominal" or "high" (1: the plain roofline).
    """
    shares = assumed_shares()
    return Machine(
        device,
        Utilization(*(as_float(shares["gemm"][resource][level]) for resource in ("compute", "memory"))),
        as_float(shares["link"]["bandwidth"][level]),
        device.peak_flops[COMPUTE_FORMATS.index(dtype)],
    )


def sustained_machine(device: Device, sustained: Sustained, dtype: str = "bf16", level: str = "nominal") -> Machine:
    """`assumed_machine` with what matrix products in that format were measured to sustain, in place of what is assumed.

    **Arguments:** `level`: "low", "nominal" or "high": the ends of the interval of their kernels, and between.
    """
    rates = sustained.rates["gemm"]
    place = RATE_LEVELS.index(level), int(sustained.columns[COMPUTE_FORMATS.index(dtype)])
    leaves = (rates.compute, rates.memory, rates.floor, rates.exposed, rates.power)
    utilization = Utilization(*(leaf[place] for leaf in leaves))
    return dataclasses.replace(assumed_machine(device, dtype, level), utilization=utilization)


def work_time(machine: Machine, flops: Scalar, size: Scalar) -> Scalar:
    """Roofline of one operation: max(flops / peak, size / bandwidth), each over its share, + launch latency [s].

    **Arguments:** `flops` [FLOP]; `size`: moved in device memory [byte]. Nothing of both takes no time.
    """
    cost = kernel_cost(machine.device, machine.utilization, compute=flops / machine.peak, flops=flops, bytes_moved=size)
    return jnp.where((flops > 0.0) | (size > 0.0), cost.time, 0.0)


def message_time(
    what: str, machine: Machine, size: Scalar, local_ranks: Scalar, nodes: Scalar, gaps: Scalar, widest_gap: Scalar
) -> Scalar:
    """A collective or message of `size` bytes in a group that lies so in its nodes, see `Demand` [s]."""
    fabric = split_fabric(machine.device, local_ranks, nodes, machine.link_efficiency)
    return MESSAGE_TIMES[what](dataclasses.replace(fabric, gaps=gaps, widest_gap=widest_gap), size)


def demand_times(demands: Iterable[Demand], machine: Machine) -> dict[Demand, float]:
    """The time of each different demand [s]."""
    kinds: dict[str, list[Demand]] = defaultdict(list)
    for demand in dict.fromkeys(demands):
        kinds[demand.what].append(demand)
    found: dict[Demand, float] = {}
    for what, group in kinds.items():
        columns = [as_float(np.array(column, float)) for column in zip(*(each[1:] for each in group), strict=True)]
        found |= dict(zip(group, np.asarray(_times(what, machine, *columns)).tolist(), strict=True))
    return found


@functools.partial(jax.jit, static_argnames="what")
def _times(
    what: str,
    machine: Machine,
    flops: Float[Array, " demands"],
    size: Float[Array, " demands"],
    *place: Float[Array, " demands"],
) -> Float[Array, " demands"]:
    if what == "work":
        return jax.vmap(functools.partial(work_time, machine))(flops, size)
    return jax.vmap(functools.partial(message_time, what, machine))(size, *place)
