"""The time of a kernel: a physical law with a handful of parameters, and a bounded learned correction of it.

    log t = log(before + floor + (core^p + memory^p)^(1/p)) + d,   d = e B tanh(c / B)

and s U tanh(d / U) in the place of d on a device that was never measured.

before: of kernels that run first, one after the other; core: arithmetic time over its efficiency and that of other
pipelines, or the power limit where that is longer, and a start-up time for each block that the busiest core works
through (added to the floor where a block fills a core, so that nothing hides it); memory: DRAM time over its efficiency
for what misses L2, and L2's own time, one after the other or both at once (a soft maximum); core and memory stretch by
powers of a family's habits (`calibration.kernels.habits`). c is linear in a small network's outputs, its coefficients
the sum of the levels' (`calibration.kernels.levels`); e in [0, 1] takes the correction back where a kernel lies outside
what was measured, and so do s in [0, 1] and U << B on other devices.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from calibration.kernels.levels import levels_of

BOUND = 2.0  # the correction stays within a factor e^2 of the physical law, B
# And within e^0.2 on a device never measured, U: what it learned of others may be theirs alone. Chosen by held-out
# generations (docs/kernel-laws.md, "Share of the learned correction").
FOREIGN_BOUND = 0.2
POWER_SHARPNESS = 4.0  # of what works at the same time: units and their power, device and host
LEAST_SCALE = 0.5  # spread of a feature below which its distances are not measured by it [log2 1]
FARTHEST = 4.0
LAW = ("compute", "memory", "floor")  # parameters of the law that differ between levels
LAW_LEVELS = ("format", "framework", "library", "stack")  # which have any, the most specific last
# What is left of a floor where the next kernel starts while this one ends (programmatic dependent launch): half, by
# TensorRT-LLM's quantizer, 1.3 us on Hopper and 2.7 on Ada, which has none. Beside vLLM's on the same H100 it would be
# 0.69.
CHAINED = math.log(2.0)
Indices = Mapping[str, Int[Array, "*rows"]]


class Inputs(eqx.Module):
    """What the law and the correction read of one kernel; with a leading axis, of a table [R].

    `compute`, `special`, `memory`, `power`, `on_chip`: logarithms of the demands [log s], `special` of the pipelines
    beside the matrix units, `before` of kernels that run before; `footprint`: bytes over L2; `waves`: blocks on the
    busiest core; `alone`: 1 where one block fills a core, so that nothing hides its start, else 0; `clock` and
    `design_clock` (`Hardware`): over the H100's [log 1]; `eager`: 1 where a host launches the kernel each time it is
    timed, `chained`: 1 where it starts while the one before it ends, else 0; `kernels`: how many run one after the
    other [log 1]; `pipelined`, `gddr`, `inline_ecc`: of the device, as in `Hardware`; `features`, and `learned`, those
    that the correction reads (`Point`); `habits` [log 1]; `levels`: index of each level's name, the one after the last
    meaning unknown.
    """

    compute: Float[Array, "*rows"]
    special: Float[Array, "*rows"]
    memory: Float[Array, "*rows"]
    power: Float[Array, "*rows"]
    on_chip: Float[Array, "*rows"]
    footprint: Float[Array, "*rows"]
    waves: Float[Array, "*rows"]
    alone: Float[Array, "*rows"]
    before: Float[Array, "*rows"]
    clock: Float[Array, "*rows"]
    design_clock: Float[Array, "*rows"]
    eager: Float[Array, "*rows"]
    chained: Float[Array, "*rows"]
    kernels: Float[Array, "*rows"]
    pipelined: Float[Array, "*rows"]
    gddr: Float[Array, "*rows"]
    inline_ecc: Float[Array, "*rows"]
    features: Float[Array, "*rows F"]
    learned: Float[Array, "*rows F"]
    habits: Float[Array, "*rows H"]
    levels: Indices


class Law(eqx.Module):
    """Parameters of the physical law, as logarithms.

    `compute`, `special` (also of what runs before), `memory`, `on_chip`: inverse efficiencies; `power`: correction of
    the nominal energy per FLOP at the H100's clock, and `power_clock`, the power of the clock in it; `throttle`: power
    of the slowdown under the limit, 1 where the voltage stays (no logarithm) [1]; `floor`, of each kernel [log s], and
    `floor_clock`, the power of the clock in it; `host`: time for a host to launch an eager kernel [log s], and `ahead`,
    the share of it before the device starts [log 1]; `block`: start of one block at the H100's clock [log s];
    `sharpness`: of the overlap, `on_chip_sharpness`: of that of DRAM and L2; `cache_share`: share of L2 in which a
    repeated kernel finds its operands, and `cache_slope`, how sharply it stops finding them; `gddr` and `inline_ecc`
    add to `memory` where a device has those. `habits` [2, H]: powers of the habits in the arithmetic and in the memory
    time. `offsets[level]` [names + 1, 3] adds to `compute`, `memory` and `floor`, `habit_offsets[level]` [names + 1, 2,
    H] to `habits`, `factors` [cells + 1] to the whole [log 1]; the last row is zero. `factors` are zero but in files of
    parameters that were adapted before adapting was by residuals (`calibration.kernels.local`).
    """

    compute: Float[Array, ""]
    special: Float[Array, ""]
    memory: Float[Array, ""]
    floor: Float[Array, ""]
    power: Float[Array, ""]
    power_clock: Float[Array, ""]
    throttle: Float[Array, ""]
    on_chip: Float[Array, ""]
    on_chip_sharpness: Float[Array, ""]
    sharpness: Float[Array, ""]
    block: Float[Array, ""]
    floor_clock: Float[Array, ""]
    host: Float[Array, ""]
    ahead: Float[Array, ""]
    cache_share: Float[Array, ""]
    cache_slope: Float[Array, ""]
    gddr: Float[Array, ""]
    inline_ecc: Float[Array, ""]
    habits: Float[Array, "2 H"]
    offsets: dict[str, Float[Array, "N 3"]]
    habit_offsets: dict[str, Float[Array, "N 2 H"]]
    factors: Float[Array, " N"]

    def __call__(self, x: Inputs) -> Float[Array, ""]:
        """Logarithm of the time [log s]."""
        core, memory, floor = self.parts(x)
        log_time = _sum(_norm(core, memory, jnp.exp(self.sharpness)), floor)
        log_time = _sum(log_time, x.before + self.special)
        stack = self.offsets["stack"][x.levels["stack"], LAW.index("floor")]  # a host knows no other level
        host = self.host + stack + x.kernels
        called = _norm(_sum(log_time, host + self.ahead), host, POWER_SHARPNESS)
        return jnp.where(x.eager > 0.0, called, log_time)

    def parts(self, x: Inputs) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Logarithms of what is overlapped and added: arithmetic, memory, floor [log s]."""
        shift = sum((self.offsets[level][x.levels[level]] for level in self.offsets), start=jnp.zeros(len(LAW)))
        powers = self.habits + sum(self.habit_offsets[level][x.levels[level]] for level in self.habit_offsets)
        slower = powers @ x.habits
        power = x.power + self.power + self.power_clock * x.design_clock
        products, beside = x.compute + self.compute + shift[0], x.special + self.special
        together = _norm(products, beside, POWER_SHARPNESS)
        compute = jnp.where(x.pipelined > 0.0, together, _sum(products, beside))
        # A lower clock needs less voltage, and an operation then less energy (C V^2): c (p / c)^throttle, not p.
        busy = _norm(compute, compute + self.throttle * (power - compute), POWER_SHARPNESS)
        starts = x.waves + self.block - x.clock
        core = jnp.where(x.alone > 0.0, busy, _sum(busy, starts)) + slower[0]
        missed = -_sum(jnp.exp(self.cache_slope) * (self.cache_share - x.footprint), jnp.zeros(()))
        board = self.gddr * x.gddr + self.inline_ecc * x.inline_ecc
        streamed = x.memory + self.memory + shift[1] + board + missed
        memory = _norm(streamed, x.on_chip + self.on_chip, jnp.exp(self.on_chip_sharpness)) + slower[1]
        floor = self.floor - self.floor_clock * x.clock + shift[2] + x.kernels - x.chained * CHAINED
        floor = jnp.where(x.alone > 0.0, _sum(floor, starts), floor)
        factor = self.factors[x.levels["cell"]]
        return core + factor, memory + factor, floor + factor


class Correction(eqx.Module):
    """The learned correction.

    `center`, `scale`, `lowest`, `highest` [F] standardize the features and say what range was measured; `layers`:
    weights and biases, none of a correction that is zero; `shared` [H] and `heads[level]` [names + 1, H]: coefficients
    of the H outputs and a constant; `share` [1]: the part of the correction, bounded by FOREIGN_BOUND, that a device
    never measured gets.
    """

    center: Float[Array, " F"]
    scale: Float[Array, " F"]
    lowest: Float[Array, " F"]
    highest: Float[Array, " F"]
    layers: list[tuple[Array, Array]]
    shared: Float[Array, " H"]
    heads: dict[str, Float[Array, "N H"]]
    share: Float[Array, ""]

    def basis(self, x: Inputs) -> Float[Array, " H"]:
        """Outputs of the network, each in (-1, 1), and the constant 1."""
        hidden = (x.learned - self.center) / self.scale
        for weights, bias in self.layers:
            hidden = jnp.tanh(hidden @ weights + bias)
        return jnp.concatenate([hidden, jnp.ones_like(hidden[:1])])

    def excess(self, x: Inputs) -> Float[Array, ""]:
        """How far outside the measured range of its features a row lies, in standard deviations, largest feature."""
        return self._outside(x.features)

    @eqx.filter_jit
    def _outside(self, features: Float[Array, " F"]) -> Float[Array, ""]:
        # A feature that hardly varied says little by its spread; a far shape is far enough at FARTHEST.
        scale = jnp.maximum(self.scale, LEAST_SCALE)
        # Feature by feature: XLA fills no vector registers where it reduces a short axis.
        beyond = map(_beyond, features, self.lowest, self.highest, scale)
        return jnp.clip(functools.reduce(jnp.maximum, beyond), 0.0, FARTHEST)

    def __call__(self, x: Inputs) -> Float[Array, ""]:
        """The correction of the logarithm of the time, within +-BOUND."""
        if not self.layers:
            return jnp.zeros(())
        whole = self.whole(x)
        known = x.levels["device"] < len(self.heads["device"]) - 1
        return jnp.where(known, whole, self.share * _bounded(whole, FOREIGN_BOUND))

    def whole(self, x: Inputs) -> Float[Array, ""]:
        """The same as if its device had been measured."""
        heads = self.shared + sum(self.heads[level][x.levels[level]] for level in self.heads)
        return jnp.exp(-self._outside(x.learned)) * _bounded(self.basis(x) @ heads, BOUND)


class KernelModel(eqx.Module):
    """The law and its correction for one family."""

    law: Law
    correction: Correction

    def __call__(self, x: Inputs) -> Float[Array, ""]:
        """Logarithm of the time [log s]."""
        return self.law(x) + self.correction(x)

    def uncorrected(self) -> KernelModel:
        """The law, and what range was measured: what a model with no `share` says of devices never measured."""
        return dataclasses.replace(self, correction=dataclasses.replace(self.correction, layers=[]))


def _bounded(x: Array, bound: float) -> Array:
    return bound * jnp.tanh(x / bound)


def _beyond(feature: Array, lowest: Array, highest: Array, scale: Array) -> Array:
    return jnp.maximum(lowest - feature, feature - highest) / scale


def _norm(a: Array, b: Array, p: Array | float) -> Array:
    """log (e^(pa) + e^(pb))^(1/p): a maximum with a soft corner."""
    return _sum(p * a, p * b) / p


def _sum(a: Array, b: Array) -> Array:
    """log (e^a + e^b) of finite numbers. `jnp.logaddexp` keeps the digits of a small logarithm, which a sum beside the
    larger number does not have, and takes half as long again."""
    return jnp.maximum(a, b) + jnp.log(1.0 + jnp.exp(-jnp.abs(a - b)))


def law_offsets(names: Mapping[str, int]) -> dict[str, Float[Array, "N 3"]]:
    """Zero offsets for the levels of software; how a device differs is left to its datasheet and to the correction."""
    return {level: jnp.zeros((names[level] + 1, len(LAW))) for level in levels_of(names, LAW_LEVELS)}


def law_habits(names: Mapping[str, int], habits: int) -> dict[str, Float[Array, "N 2 H"]]:
    """Zero offsets of the habits' powers: how software uses a device, so of the levels of software."""
    return {level: jnp.zeros((names[level] + 1, 2, habits)) for level in levels_of(names, LAW_LEVELS[1:])}


def no_heads(names: Mapping[str, int], width: int) -> dict[str, Float[Array, "N H"]]:
    """Zero heads for every level."""
    return {level: jnp.zeros((names[level] + 1, width)) for level in levels_of(names)}
