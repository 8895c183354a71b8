"""Why a mapping cannot run on a machine: bits beside NaN, and sentences for people."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxperf.core.feasible import reason_bits
from jaxperf.core.numerics import Scalar, as_float, floor_div
from jaxperf.loopnest.accesses import LevelAccesses
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.mapping import Mapping, Nest, fan_out, product
from jaxperf.loopnest.problem import Problem


class Reason(enum.IntFlag):
    """Bits of the `reason` of a mapping; 0 means that it can run."""

    FACTORS = 1
    CAPACITY = 2
    FAN_OUT = 4
    BANDWIDTH = 8


SENTENCES = {
    Reason.FACTORS: "the factors of a loop do not multiply to its bound",
    Reason.CAPACITY: "the tiles that a level keeps do not fit into it",
    Reason.FAN_OUT: "more instances are used than the machine has",
    Reason.BANDWIDTH: "a level has to move words but has no bandwidth",
}


def infeasible(
    problem: Problem, architecture: Architecture, mapping: Mapping, nest: Nest, counted: list[LevelAccesses]
) -> Int[Array, ""]:
    """Bits of what does not fit; see `Reason`."""
    pairs = list(zip(architecture.levels, counted, strict=True))
    taken = list(zip(architecture.levels, needed(architecture, mapping, counted), strict=True))
    whole = [tile == problem.bounds[dimension] for dimension, tile in enumerate(nest.tile[-1])]
    used = [fan_out(nest, range(level, len(nest.spatial))) for level in range(len(pairs) + 1)]
    spread = [
        (outside > level.instances) | (columns > level.fan_x) | (rows > level.fan_y) | (columns * rows > children)
        for outside, children, (level, (_, columns, rows)) in zip(
            used[1:], children_of(architecture), taken, strict=True
        )
    ]
    checks = {
        Reason.FACTORS: ~functools.reduce(jnp.logical_and, whole),
        Reason.CAPACITY: any_of([size > level.size for level, (size, _, _) in taken]),
        Reason.FAN_OUT: any_of([*spread, used[0] > architecture.macs]),
        Reason.BANDWIDTH: any_of([_starved(level, each) for level, each in pairs]),
    }
    return reason_bits(checks)


def children_of(architecture: Architecture) -> list[Scalar]:
    """Children of one instance of each level, from how many there are of both, one at least [1]."""
    inside = [architecture.macs, *(level.instances for level in architecture.levels[:-1])]
    return [
        jnp.maximum(floor_div(there, level.instances), 1.0)
        for there, level in zip(inside, architecture.levels, strict=True)
    ]


def held(counted: LevelAccesses) -> Scalar:
    """Words of all the tiles that one instance keeps at a time [word]."""
    tiles = [each.tile for each in counted if each is not None]
    return functools.reduce(jnp.add, tiles, as_float(0.0))


def needed(
    architecture: Architecture, mapping: Mapping, counted: Sequence[LevelAccesses]
) -> list[tuple[Scalar, Scalar, Scalar]]:
    """Of each level the size that its tiles take [word], and the children of an instance along X and along Y [1]."""
    dimensions = range(mapping.spatial_x.shape[1])
    return [
        (
            held(found) * level.buffering,
            product(mapping.spatial_x[index, d] for d in dimensions),
            product(mapping.spatial_y[index, d] for d in dimensions),
        )
        for index, (level, found) in enumerate(zip(architecture.levels, counted, strict=True))
    ]


def _starved(level: Level, counted: LevelAccesses) -> Bool[Array, ""]:
    """Whether words have to pass where no bandwidth is."""
    reads = any_of([each.reads > 0.0 for each in counted if each is not None])
    writes = any_of([each.fills + each.updates > 0.0 for each in counted if each is not None])
    return (
        (reads & (level.read_bandwidth <= 0.0))
        | (writes & (level.write_bandwidth <= 0.0))
        | ((reads | writes) & (level.shared_bandwidth <= 0.0))
    )


def any_of(checks: Sequence[Bool[Array, ""]]) -> Bool[Array, ""]:
    return functools.reduce(jnp.logical_or, checks, jnp.asarray(False))


def sentences(bits: int) -> list[str]:
    """The plain-word reasons of a bit mask."""
    return [text for reason, text in SENTENCES.items() if int(bits) & reason]
