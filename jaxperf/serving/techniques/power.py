"""What a device draws at a clock, and the clock that a power limit leaves it.

At the clock that it chooses without a limit a device draws

    P = TDP min(1, background + compute A_c + memory A_m)

with A the share of the time that its arithmetic units and its memory are busy (a linear power model of activity: Fan,
Weber, Barroso 2007, ISCA, per unit instead of per machine). Dynamic power is C V^2 f with V in proportion to f, so that
at f times that clock what is clocked all the time draws f^3, an operation costs f^2, and idle power and the energy of a
byte in device memory, which has a clock of its own, stay:

    P(f) = idle + E_memory / t(f) + (background - idle) f^3 + (E - E_memory) f^2 / t(f)

(E: energy of all operations of a step, without the background). Arithmetic takes 1 / f as long, memory and links as
long as before, and a kernel the longest of them. The limit sets the highest clock with P(f) <= limit: a decode that
waits for memory loses nothing, a prefill about the cube root (Patel et al., POLCA, ASPLOS 2024; Splitwise, ISCA 2024).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.step import COLLECTIVES
from jaxperf.models.transformer import add_up

TimeAt = Callable[[Scalar], Scalar]
LEAST_CLOCK = 0.15  # of the highest: the lowest that data-center GPUs offer is about that (H100: 210 of 1980 MHz)
BISECTIONS = 40


class PowerLaw(eqx.Module):
    """Shares of the TDP: `background` of a device that works at all; `compute`, `memory`: added while the arithmetic
    units, or the memory, are busy [1]."""

    background: Float[Array, ""] = eqx.field(converter=as_float)
    compute: Float[Array, ""] = eqx.field(converter=as_float)
    memory: Float[Array, ""] = eqx.field(converter=as_float)


class PowerCap(eqx.Module):
    """A limit on what one device draws on average over a step [W], and the law by which it draws."""

    law: PowerLaw
    limit: Float[Array, ""] = eqx.field(converter=as_float)


class Work(NamedTuple):
    """A step of one device for its power: `time`; `compute`, `memory`: for how long their units are busy [s];
    `bytes_moved` of device memory [byte]."""

    time: Scalar
    compute: Scalar
    memory: Scalar
    bytes_moved: Scalar


class Drawn(NamedTuple):
    """What a step draws at the highest clock, in parts: `still`: idle power, `clocked`: the rest of the background
    [W]; `stored`: energy of the bytes, `worked`: of all operations beside it [J]."""

    still: Scalar
    clocked: Scalar
    stored: Scalar
    worked: Scalar


def work_of(kernels: Kernels, time: Scalar) -> Work:
    """What the kernels of a step keep busy in its `time` [s]."""
    local = {name: cost for name, cost in kernels.items() if name not in COLLECTIVES}
    return Work(
        time,
        jnp.minimum(add_up(kernels, lambda cost: cost.compute), time),
        jnp.minimum(add_up(kernels, lambda cost: cost.memory), time),
        add_up(local, lambda cost: cost.bytes_moved),
    )


def drawn(device: Device, law: PowerLaw, work: Work) -> Drawn:
    """The parts of what a step draws, scaled down together where the sum would exceed the TDP.

    The energy of a byte is that of the memory (`Device.energy_per_byte`), at most what the law gives the memory; where
    the device's energies are not known it is 0 and all follows the clock. Idle power likewise.
    """
    still = jnp.minimum(device.idle_power, device.tdp * law.background)
    memory = device.tdp * law.memory * work.memory
    stored = jnp.minimum(device.energy_per_byte * work.bytes_moved, memory)
    clocked = device.tdp * law.background - still
    worked = device.tdp * law.compute * work.compute + memory - stored
    kept = still + stored / work.time
    scale = jnp.minimum((device.tdp - kept) / (clocked + worked / work.time), 1.0)
    return Drawn(still, clocked * scale, stored, worked * scale)


def power_at(drawn: Drawn, clock: Scalar, time: Scalar) -> Scalar:
    """P(f) of a step that takes `time` at that clock [W]."""
    return drawn.still + drawn.clocked * clock**3 + (drawn.stored + drawn.worked * clock**2) / time


def clocked(cost: Cost, clock: Scalar) -> Cost:
    """A kernel at `clock` times the highest clock: arithmetic takes 1 / f as long, all else as before."""
    rest = jnp.maximum(cost.memory, cost.network)
    slower = jnp.maximum(cost.compute / clock, rest) - jnp.maximum(cost.compute, rest)
    return dataclasses.replace(cost, time=cost.time + slower, compute=cost.compute / clock)


def clocked_kernels(kernels: Kernels, clock: Scalar) -> Kernels:
    """All kernels of a step at `clock` times the highest clock."""
    return {name: clocked(cost, clock) for name, cost in kernels.items()}


def clocked_time(kernels: Kernels, time: Scalar, clock: Scalar, stretch: Scalar | float = 1.0) -> Scalar:
    """The time of a step at a clock, `time` of it at the highest [s]: what is not its kernels' stays.

    **Arguments:** `stretch`: how much longer the kernels really take than theirs says, where `time` was measured [1].
    """
    return time + stretch * (_kernel_time(clocked_kernels(kernels, clock)) - _kernel_time(kernels))


def capped_clock(device: Device, law: PowerLaw, kernels: Kernels, time_at: TimeAt, limit: Scalar) -> Scalar:
    """The highest clock, over the one without a limit, at which a step draws at most `limit` watts [1].

    Bisection, and one step of Newton's method from there, which carries the derivative (implicit function theorem).
    1 where the step draws no more anyway; `LEAST_CLOCK` where even that draws more.

    **Arguments:** `kernels`: of the step at the highest clock; `time_at`: time of the step at a clock [s].
    """
    parts = drawn(device, law, work_of(kernels, time_at(as_float(1.0))))

    def excess(clock: Scalar) -> Scalar:
        return power_at(parts, clock, time_at(clock)) - limit

    def halve(_: int, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = 0.5 * (low + high)
        over = excess(middle) > 0.0
        return jnp.where(over, low, middle), jnp.where(over, middle, high)

    least, most = as_float(LEAST_CLOCK), as_float(1.0)
    found, _ = jax.lax.stop_gradient(jax.lax.fori_loop(0, BISECTIONS, halve, (least, most)))
    slope = jax.lax.stop_gradient(jax.grad(excess)(found))
    free = excess(most) <= 0.0
    inside = ~free & (excess(least) < 0.0) & (slope > 0.0)
    root = jnp.clip(found - excess(found) / jnp.where(inside, slope, 1.0), least, most)
    return jnp.where(inside, root, jnp.where(free, most, least))


def step_power(device: Device, law: PowerLaw, kernels: Kernels, time_at: TimeAt, clock: Scalar) -> Scalar:
    """What one device draws on average over a step at a clock [W]; all else as in `capped_clock`."""
    return power_at(drawn(device, law, work_of(kernels, time_at(as_float(1.0)))), clock, time_at(clock))


def mean_power(prefill: Scalar, decode: Scalar, prefills: Scalar, decodes: Scalar) -> Scalar:
    """What one device draws on average over a generation of requests [W]: `prefill` and `decode`, what it draws in
    them [W], weighted by how long it spends in `prefills` and `decodes` [s]."""
    return (prefill * prefills + decode * decodes) / (prefills + decodes)


def _kernel_time(kernels: Kernels) -> Scalar:
    return add_up(kernels, lambda cost: cost.time)
