"""The answer for one kernel - time, interval, roofline, limiter - and for a table of them, chunk by chunk."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from calibration.datasets.groups import Groups
from calibration.datasets.schema import KernelTable
from calibration.intervals import growth
from calibration.kernels.asked import Shape
from calibration.kernels.demand import STREAMS
from calibration.kernels.family import FittedFamily
from calibration.kernels.inputs import shapes, taken
from calibration.kernels.mapped import BLOCK, ROW, WHOLE, compiled, on_host
from calibration.kernels.model import KernelModel
from calibration.kernels.point import Kind, Point, describe, load_kinds, settled
from calibration.kernels.remarks import FAR, OVERFLOWING, PREFIX, REMARKED, UNUSABLE, of_device
from jaxperf.core.compiler_options import JOINTLY

MICRO = 1e6
LIMITERS = ("compute", "memory", "latency", "")
TIERS = ("measured", "transfer", "adapted", "roofline", "")
MEASURED, TRANSFER, ADAPTED, ROOFLINE, _ = range(len(TIERS))


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
    interval inside what was measured, `transfer`, that on devices never measured [log 1]; its `tier`, and the `remarks`
    that hold for all its rows."""

    levels: Mapping[str, Int[Array | np.ndarray, "*groups"]]
    width: Float[Array | np.ndarray, "*groups"]
    transfer: Float[Array | np.ndarray, "*groups"]
    tier: Int[Array | np.ndarray, "*groups"]
    remarks: Int[Array | np.ndarray, "*groups"]


class Said(eqx.Module):
    """What a law says of kernels: `time` [us], NaN where the demands are no numbers; plain `roofline` and useful FLOP
    `at_peak` of the matrix units, 0 of kernels that stream [us]; `excess`: how far they lie outside what was measured,
    in standard deviations; `limiter`; whether FLOP and bytes are `finite`."""

    time: Float[Array, "*rows"]
    roofline: Float[Array, "*rows"]
    at_peak: Float[Array, "*rows"]
    excess: Float[Array, "*rows"]
    limiter: Int[Array, "*rows"]
    finite: Bool[Array, "*rows"]


def said(
    family: str, model: KernelModel | None, names: Sequence[str], point: Point, levels: Mapping[str, Array]
) -> Said:
    """By a fitted model whose features are `names`; without one the plain roofline, a bound rather than an estimate."""
    finite, roofline = jnp.isfinite(point.flops) & jnp.isfinite(point.moved), MICRO * point.roofline
    if model is None:
        time, excess = roofline, jnp.zeros_like(roofline)
        limiter = jnp.where(point.compute > point.memory, 0, 1)
    else:
        x = point.inputs(names, levels)
        core, memory, floor = model.law.parts(x)
        time, excess = MICRO * jnp.exp(model(x)), model.correction.excess(x)
        limiter = jnp.where(core >= jnp.maximum(memory, floor), 0, jnp.where(memory >= floor, 1, 2))
    at_peak = jnp.zeros_like(roofline) if family in STREAMS else MICRO * point.ideal
    return Said(jnp.where(point.usable, time, jnp.nan), roofline, at_peak, excess, limiter, finite)


def told(family: str, bound: bool, said: Said, trust: Trust, x: Shape) -> Answer:
    """What is said, with its interval and how far to trust it.

    What was not measured on the device is not faster than its peak; what was may be, where a board's clock rises above
    the one of its datasheet (7 % on an L40S and an RTX 3090). Cached tokens were measured nowhere: behind them an
    interval is no narrower than on a device never measured.

    **Arguments:** `bound`: the time is a lower bound; leaves of `trust` and `x` broadcast against those of `said`.
    """
    cached = _prefix(family, x) > 0.0
    width = jnp.maximum(trust.width * growth(said.excess), jnp.where(cached, trust.transfer, 0.0))
    stretch = jnp.exp(width)
    least = jnp.where(cached | (trust.tier == TRANSFER), said.at_peak, 0.0)
    time = jnp.maximum(said.time, least)
    there = ~jnp.isnan(time)
    remarks = trust.remarks
    if not bound:
        remarks += _bit(FAR, said.excess > 1.0) + _bit(PREFIX, cached)
    why = jnp.where(said.finite, UNUSABLE, OVERFLOWING)
    codes = (said.limiter, len(LIMITERS) - 1), (trust.tier, len(TIERS) - 1), (remarks, why)
    known = (jnp.where(there, code, absent).astype(REMARKED) for code, absent in codes)
    lower = time if bound else jnp.maximum(time / stretch, least)
    return Answer(time, lower, time * stretch, jnp.where(there, said.roofline, jnp.nan), *known)


def _bit(bit: int, there: Array) -> Array:
    return jnp.where(there, bit, 0)


def _prefix(family: str, x: Shape) -> Array:
    """Tokens cached before a kernel's own; zero for a kernel that knows of none."""
    return x["kv_len"] - x["q_len"] if family == "mla_prefill" else x.get("prefix", jnp.zeros(()))


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
    rows, number = len(table), jnp.result_type(float)
    found = Answer(*np.empty((4, rows), number), *np.empty((3, rows), REMARKED))
    kinds, every = load_kinds(table.take(groups.first), directories), shapes(table)
    of_law = np.asarray(trust.tier) == TRANSFER
    also = of_device(table.take(groups.first), kinds, of_law, directories)
    trust = dataclasses.replace(trust, remarks=trust.remarks + also)
    names = () if fitted is None else fitted.features
    # What no kernel of the table does is no part of the program that is run first.
    done = [name for name, each in kinds.ways.items() if np.any(each)]

    def fill(chunk: tuple[KernelModel | None, np.ndarray, np.ndarray]) -> None:
        model, group, at = chunk
        own = jax.tree.map(lambda leaf: leaf[group], trust)
        kind, shape = kinds.rows(group), taken(every, at)
        settling = dataclasses.replace(kind, ways={name: kind.ways[name] for name in done})
        programs = _programs(groups.few, table.family, names, model is None)
        shape = {**shape, **programs.settle(settling, shape)}
        block = programs.tell(programs.say(model, kind, own.levels, shape), own, shape)
        places = at.ravel()  # NumPy has a quick way for one axis alone
        for column, part in zip(jax.tree.leaves(found), jax.tree.leaves(block), strict=True):
            column[places] = np.asarray(part).ravel()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, _chunks(groups, None if fitted is None else fitted.model, trust)))
    return found


def _chunks(
    groups: Groups, model: KernelModel | None, trust: Trust
) -> Iterator[tuple[KernelModel | None, np.ndarray, np.ndarray]]:
    """The chunks of all rows, with the model that answers them: a network is not run where no share is left of it."""
    if model is None or float(model.correction.share) > 0.0:
        yield from ((model, *chunk) for chunk in groups.chunks())
        return
    known = np.asarray(trust.levels["device"]) < len(model.correction.heads["device"]) - 1
    for answering, wanted in ((model, known), (model.uncorrected(), ~known)):
        if wanted.any():
            yield from ((answering, *chunk) for chunk in groups.chunks(wanted))


@dataclasses.dataclass(frozen=True)
class Programs:
    """What is run for the kernels of some blocks: what a block shares [C], shapes [C, B] with what is settled of them.

    XLA computes an operation anew in every loop that reads it. So what many read is the result of a program before
    theirs: `settle` (kinds, shapes), `say` (model, kinds, levels, shapes), `tell` (what is said, trust, shapes).
    """

    settle: Callable[..., Shape]
    say: Callable[..., Said]
    tell: Callable[..., Answer]


ALONG = {"settle": (BLOCK, ROW), "say": (WHOLE, BLOCK, BLOCK, ROW), "tell": (ROW, BLOCK, ROW)}


@functools.cache
def _programs(few: bool, family: str, names: tuple[str, ...], bound: bool) -> Programs:
    """Of `few` rows on the host, else compiled to run as fast as can be."""

    def say(model: KernelModel | None, kind: Kind, levels: Mapping[str, Array], x: Shape) -> Said:
        return said(family, model, names, describe(family, kind, x), levels)

    points = {"settle": functools.partial(settled, family), "say": say, "tell": functools.partial(told, family, bound)}
    return Programs(
        **{
            name: on_host(point, ALONG[name]) if few else compiled(point, ALONG[name], JOINTLY)
            for name, point in points.items()
        }
    )
