"""The answer for one kernel - time, interval, roofline, limiter - and for a table of them, chunk by chunk."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from calibration.datasets.groups import Groups
from calibration.datasets.schema import KernelTable
from calibration.intervals import growth
from calibration.kernels.asked import Shape
from calibration.kernels.family import FittedFamily
from calibration.kernels.inputs import shapes
from calibration.kernels.model import KernelModel
from calibration.kernels.point import Kind, Point, describe, load_kinds
from jaxperf.core.numerics import Scalar

MICRO = 1e6
Code = Array | np.ndarray
LIMITERS = ("compute", "memory", "latency", "")
TIERS = ("measured", "transfer", "adapted", "roofline", "")
MEASURED, TRANSFER, ADAPTED, ROOFLINE, _ = range(len(TIERS))
# What is not measured about a row, in the order in which it is told; a row's remarks are a sum of their bits.
REMARKS = (
    "no known number format: bf16 assumed",
    "shape outside what was measured",
    "this kernel and version never measured",
    "framework never measured: generic",
    "format never measured: generic",
    "device never measured",
    "cached prefix: extrapolated",
    "the device has no units for this format: multiplied in another",
)
NO_FORMAT, FAR, STACK, FRAMEWORK, FORMAT, DEVICE, PREFIX, STAND_IN = (1 << bit for bit in range(len(REMARKS)))
UNUSABLE = 2 * STAND_IN  # of a row without a prediction: this or the next, no sum of bits
OVERFLOWING = UNUSABLE + 1
MULTIPLYING = ("gemm", "bmm", "moe", "convolution")  # families whose kernels multiply in the format of their weights


class Answer(eqx.Module):
    """`predicted` with its 90 % interval `lower` to `upper`, and the plain `roofline` [us], all NaN where the demands
    are no numbers; `limiter` and `tier`: indices into `LIMITERS` and `TIERS`; `remarks`: bits of `REMARKS`, or
    `OVERFLOWING`."""

    predicted: Float[Array | np.ndarray, "*rows"]
    lower: Float[Array | np.ndarray, "*rows"]
    upper: Float[Array | np.ndarray, "*rows"]
    roofline: Float[Array | np.ndarray, "*rows"]
    limiter: Int[Array | np.ndarray, "*rows"]
    tier: Int[Array | np.ndarray, "*rows"]
    remarks: Int[Array | np.ndarray, "*rows"]


class Trust(eqx.Module):
    """What parameters know of a group of rows: index of its name at each level; `width`, the half-width of the 90 %
    interval inside what was measured [log 1]; its `tier`, and the `remarks` that hold for all its rows."""

    levels: Mapping[str, Int[Array | np.ndarray, "*groups"]]
    width: Float[Array | np.ndarray, "*groups"]
    tier: Int[Array | np.ndarray, "*groups"]
    remarks: Int[Array | np.ndarray, "*groups"]


def fitted_answer(model: KernelModel, names: Sequence[str], point: Point, trust: Trust, prefix: Scalar) -> Answer:
    """By a fitted model whose features are `names`; `prefix`: tokens cached before the kernel's own."""
    x = point.inputs(names, {level: jnp.asarray(at) for level, at in trust.levels.items()})
    core, memory, floor = model.law.parts(x)
    excess = model.correction.excess(x)
    time = MICRO * jnp.exp(jnp.where(point.usable, model(x), jnp.nan))
    stretch = jnp.exp(trust.width * growth(excess))
    limiter = jnp.where(core >= jnp.maximum(memory, floor), 0, jnp.where(memory >= floor, 1, 2))
    remarks = trust.remarks + _bit(FAR, excess > 1.0) + _bit(PREFIX, prefix > 0.0)
    return _answer((time, time / stretch, time * stretch), point, limiter, trust.tier, remarks)


def roofline_answer(point: Point, trust: Trust) -> Answer:
    """Without parameters of the family: the plain roofline, a lower bound rather than an estimate."""
    time = MICRO * jnp.where(point.usable, point.roofline, jnp.nan)
    limiter = jnp.where(point.compute > point.memory, 0, 1)
    times = time, time, time * jnp.exp(trust.width)
    return _answer(times, point, limiter, trust.tier, trust.remarks)


def _answer(times: tuple[Scalar, Scalar, Scalar], point: Point, limiter: Code, tier: Code, remarks: Code) -> Answer:
    """`times` are NaN where a kernel has no prediction; all else follows from them, as XLA looks at the demands and
    the features anew for each result that asks."""
    told = ~jnp.isnan(times[0])
    why = jnp.where(jnp.isfinite(point.flops) & jnp.isfinite(point.moved), UNUSABLE, OVERFLOWING)
    codes = (limiter, len(LIMITERS) - 1), (tier, len(TIERS) - 1), (remarks, why)
    known = (jnp.where(told, code, absent).astype(jnp.uint16) for code, absent in codes)
    return Answer(*times, jnp.where(told, MICRO * point.roofline, jnp.nan), *known)


def _bit(bit: int, there: Array) -> Array:
    return jnp.where(there, bit, 0)


def answers(
    table: KernelTable,
    groups: Groups,
    fitted: FittedFamily | None,
    trust: Trust,
    directories: Sequence[str | Path] = (),
) -> Answer:
    """The answers of all rows of a table [R], whose family has a law; on every core.

    **Arguments:** `fitted`: `None` for the plain roofline; `trust`: of each group [G].
    """
    rows = len(table)
    found = Answer(*np.empty((4, rows)), *np.empty((3, rows), np.uint16))
    kinds = load_kinds(table.take(groups.first), directories)
    if table.family in MULTIPLYING:
        trust = dataclasses.replace(trust, remarks=trust.remarks + STAND_IN * _replaced(kinds))
    model, names = (None, ()) if fitted is None else (fitted.model, fitted.features)

    def fill(chunk: tuple[np.ndarray, np.ndarray]) -> None:
        group, at = chunk
        own = jax.tree.map(lambda leaf: leaf[group], trust)
        block = _chunk(table.family, names, model, kinds.rows(group), own, shapes(table, at))
        for whole, part in zip(jax.tree.leaves(found), jax.tree.leaves(block), strict=True):
            whole[at] = part

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, groups.chunks()))
    return found


def _replaced(kinds: Kind) -> np.ndarray:
    """1 for the groups whose device lacks the format of their weights and multiplies in a stand-in, else 0 [G]."""
    compute = np.asarray(kinds.formats.weights.compute)
    native = np.asarray(kinds.hardware.device.native)[np.arange(len(compute)), compute]
    return (native == 0.0).astype(int)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _chunk(
    family: str, names: tuple[str, ...], model: KernelModel | None, kinds: Kind, trust: Trust, shape: Shape
) -> Answer:
    """Kernels of some blocks: what a block shares [C], shapes [C, B]."""

    def kernel(kind: Kind, trust: Trust, x: Shape) -> Answer:
        point = describe(family, kind, x)
        if model is None:
            return roofline_answer(point, trust)
        return fitted_answer(model, names, point, trust, _prefix(family, x))

    return jax.vmap(jax.vmap(kernel, in_axes=(None, None, 0)))(kinds, trust, shape)


def _prefix(family: str, x: Shape) -> Scalar:
    """Tokens cached before a kernel's own; zero for a kernel that knows of none."""
    return x["kv_len"] - x["q_len"] if family == "mla_prefill" else x.get("prefix", jnp.zeros(()))
