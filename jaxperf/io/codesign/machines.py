"""The machines of a co-design: a base case, and values that fields of its levels may take."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.codesign.free import Axis
from jaxperf.io.timeloop.case import Case
from jaxperf.io.timeloop.fields import count
from jaxperf.io.timeloop.json_case import is_yaml, load_json
from jaxperf.io.timeloop.machine import WORD_BITS
from jaxperf.io.timeloop.yaml_case import load_yaml, yaml_machine
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.codesign.energy import DEEPEST
from jaxperf.loopnest.constraints import Constraints, LevelConstraints, check_constraints
from jaxperf.loopnest.redesign import MESHES, Knob, redesigned

SMALL = 1024.0  # below, the line for SRAM is nearly flat [byte]


class Design(NamedTuple):
    """One machine. `values`: of the free fields by name, `LEVEL.field`; `constraints`: of its mappings."""

    values: dict[str, float]
    architecture: Architecture
    constraints: Constraints


def word_bytes(path: Path, level: str, wanted: str = "energy of another size") -> float:
    """Bytes of a word of a level of a case's file. Raises `InputError` where the file does not say what is `wanted`."""
    levels = yaml_machine(load_yaml(path), str(path))[0] if is_yaml(path) else load_json(path)["levels"]
    specs = levels[level]["specs"]
    if specs.get(WORD_BITS) in (None, "-"):
        raise InputError(f"{path}: {level}: {WORD_BITS} is missing; the {wanted} needs it.")
    return count(specs[WORD_BITS], f"{path}: {level}: {WORD_BITS}") / 8.0


def build_knobs(case: Case, path: Path, axes: Sequence[Axis], laws: dict[str, str]) -> tuple[Knob, ...]:
    """What the axes turn.

    **Arguments:** `case`: of `constrained`; `path`: of the case, for the width of its words; `laws`: of `read_laws`,
    `sram` for the rest.
    **Raises:** `InputError` for a level whose size is free but not known, or for a law of a level that is not free or
    not known for a size.
    """
    sized = [axis.level for axis in axes if axis.field == "size"]
    for level in laws:
        if level not in sized:
            raise InputError(f"--energy: the size of {level} is not free; name it in --free or leave the law away.")
    return tuple(
        _sized(case, path, axis, laws.get(axis.level, "sram"))
        if axis.field == "size"
        else Knob(case.levels.index(axis.level), axis.field)
        for axis in axes
    )


def _sized(case: Case, path: Path, axis: Axis, law: str) -> Knob:
    """Raises `InputError` for a level whose size is not known, or one that its law does not reach."""
    index = case.levels.index(axis.level)
    if law == "fixed":
        return Knob(index, axis.field)
    word, level = word_bytes(path, axis.level), case.architecture.levels[index]
    if not math.isfinite(float(level.size)):
        raise InputError(f"{path}: {axis.level} has no size; that of another follows from it (or --energy fixed).")
    deepest = max(float(level.size), *axis.values) / float(level.block)
    if law == "regfile" and deepest > DEEPEST:
        raise InputError(
            f"--energy: {axis.level} is up to {deepest:g} accesses deep; regfile is known up to {DEEPEST:g}."
        )
    return Knob(index, axis.field, law, word)


def build_designs(case: Case, constraints: Constraints, axes: Sequence[Axis], knobs: Sequence[Knob]) -> list[Design]:
    """All combinations of the axes' values, the last axis fastest; arguments and errors as of `design_of`."""
    return [
        design_of(case, constraints, axes, knobs, row) for row in itertools.product(*(axis.values for axis in axes))
    ]


def law_notes(axes: Sequence[Axis], knobs: Sequence[Knob]) -> list[str]:
    """What is said of levels so small that the line for SRAM hardly tells their sizes apart."""
    return [
        f"{axis.level}: the energy line of sram is nearly flat below 1 KB, where sizes differ by more than it says"
        for axis, knob in zip(axes, knobs, strict=True)
        if knob.law == "sram" and min(axis.values) * float(knob.word) < SMALL
    ]


def design_of(
    case: Case, constraints: Constraints, axes: Sequence[Axis], knobs: Sequence[Knob], values: Sequence[float]
) -> Design:
    """The machine with a value for each axis.

    **Arguments:** `case`, `constraints`: of `constrained`; `knobs`: of `build_knobs`.
    **Raises:** `InputError` for instances that would not be whole.
    """
    limits = dict(constraints)
    for axis, value in zip(axes, values, strict=True):
        if axis.field in MESHES:
            before = limits.get(axis.level, LevelConstraints())
            limits[axis.level] = dataclasses.replace(before, **{axis.field: value})
    check_constraints(limits, case.levels, case.names, "--free")
    machine = redesigned(case.architecture, knobs, [as_float(value) for value in values])
    named = {axis.name: value for axis, value in zip(axes, values, strict=True)}
    _check_instances(case, machine, named)
    return Design(named, machine, limits)


def _check_instances(case: Case, machine: Architecture, values: dict[str, float]) -> None:
    counts = {case.unit: machine.macs} | dict(
        zip(case.levels, (level.instances for level in machine.levels), strict=True)
    )
    for name, instances in counts.items():
        if float(instances) != int(instances):
            shown = ", ".join(f"{key}={value:g}" for key, value in values.items())
            raise InputError(f"--free: with {shown} there would be {float(instances):g} {name}; it must be an integer.")
