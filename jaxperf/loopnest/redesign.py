"""A machine with other sizes, meshes or bandwidths than it has; every number may be traced, so that slopes pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.codesign.energy import LAWS

MESHES = {"mesh_x": "fan_x", "mesh_y": "fan_y"}  # what people call them, and the field of a `Level`
BANDWIDTHS = ("read_bandwidth", "write_bandwidth", "shared_bandwidth")


class Knob(eqx.Module):
    """A field of a level that may change: `size`, one of `MESHES` or of `BANDWIDTHS`. Of a size: `word` [byte]; `area`
    of a word [m2], NaN where it is not known; `law`: of `LAWS`."""

    level: int = eqx.field(static=True)
    field: str = eqx.field(static=True)
    law: str = eqx.field(static=True, default="fixed")
    word: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    area: Float[Array, ""] = eqx.field(converter=as_float, default=math.nan)


def redesigned(machine: Architecture, knobs: Sequence[Knob], values: Sequence[Scalar]) -> Architecture:
    """The machine with `values` in the fields of `knobs`: size [word], children along a direction [1], or bandwidth
    [word/cycle]; all that is inside of a mesh multiplies with it."""
    for knob, value in zip(knobs, values, strict=True):
        old = machine.levels[knob.level]
        if knob.field == "size":
            new = dataclasses.replace(resized(old, value, knob.word, knob.law), area=knob.area * value)
        elif knob.field in MESHES:
            name = MESHES[knob.field]
            machine = multiplied(machine, knob.level, value, getattr(old, name))
            new = dataclasses.replace(old, **{name: value})
        else:
            new = dataclasses.replace(old, **{knob.field: value})
        levels = (*machine.levels[: knob.level], new, *machine.levels[knob.level + 1 :])
        machine = dataclasses.replace(machine, levels=levels)
    return machine


def resized(level: Level, size: Scalar, word: Scalar, law: str) -> Level:
    """The level with another size [word], words of `word` [byte]: dynamic energies follow `law` of `LAWS` from what
    the level has, and every cell leaks alike. The area is no longer known."""
    energy = LAWS[law]
    ratio = energy(size * word, size / level.block) / energy(level.size * word, level.size / level.block)
    leaked = 1.0 if law == "fixed" else size / level.size
    return dataclasses.replace(
        level,
        size=size,
        read_energy=level.read_energy * ratio,
        write_energy=level.write_energy * ratio,
        update_energy=level.update_energy * ratio,
        leakage=level.leakage * leaked,
        area=math.nan,
    )


def multiplied(machine: Architecture, level: int, after: Scalar, before: Scalar) -> Architecture:
    """The machine with `after` children of a level for every `before`, and so of all that is inside of them [1]."""
    inner = tuple(
        dataclasses.replace(each, instances=each.instances * after / before) for each in machine.levels[:level]
    )
    return dataclasses.replace(machine, levels=inner + machine.levels[level:], macs=machine.macs * after / before)
