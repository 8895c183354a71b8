"""The machines of a co-design: a base case, and values that fields of its levels may take."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.map_constraints import with_meshes
from jaxperf.io.timeloop import is_yaml, load_json
from jaxperf.io.timeloop_case import Case
from jaxperf.io.timeloop_fields import amount, count
from jaxperf.io.timeloop_yaml import load_yaml, yaml_machine
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.codesign import multiplied, resized
from jaxperf.loopnest.codesign_energy import DEEPEST
from jaxperf.loopnest.constraints import Constraints, LevelConstraints, check_constraints

MESHES = ("mesh_x", "mesh_y")
FIELDS = {
    "size": count,
    "mesh_x": count,
    "mesh_y": count,
    "read_bandwidth": amount,
    "write_bandwidth": amount,
    "shared_bandwidth": amount,
}
MOST = 128  # machines; all their mappings are tried on all of them
WORD_BITS = "Word bits"
SMALL = 1024.0  # below, the line for SRAM is nearly flat [byte]


class Axis(NamedTuple):
    """A field of `FIELDS` of a level, and the values it may take."""

    level: str
    field: str
    values: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.level}.{self.field}"


class Design(NamedTuple):
    """One machine. `values`: of the free fields by name, `LEVEL.field`; `constraints`: of its mappings."""

    values: dict[str, float]
    architecture: Architecture
    constraints: Constraints


def read_axes(entries: Sequence[str], levels: Sequence[str]) -> list[Axis]:
    """Axes from texts such as `buffer.size=1024,2048`.

    **Raises:** `InputError` for an unknown level or field, one given twice, a value out of range or given twice, or
    more than `MOST` machines.
    """
    axes: list[Axis] = []
    for entry in entries:
        axis = _axis(entry, levels)
        if axis.name in [each.name for each in axes]:
            raise InputError(f"--free: {axis.name} is given twice; give it once, with all its values.")
        axes.append(axis)
    if not axes:
        raise InputError("--free is missing; write for example --free LEVEL.size=1024,2048.")
    machines = math.prod(len(axis.values) for axis in axes)
    if machines > MOST:
        raise InputError(f"--free: the values make {machines:,} machines; at most {MOST} are compared at once.")
    return axes


def _axis(entry: str, levels: Sequence[str]) -> Axis:
    name, sign, text = (piece.strip() for piece in entry.partition("="))
    level, dot, field = name.rpartition(".")
    if not sign or not dot:
        raise InputError(f"--free: '{entry}' must read like LEVEL.size=1024,2048.")
    _known("--free", "level", level, levels)
    _known("--free", f"field of {level}", field, FIELDS)
    values = tuple(FIELDS[field](value.strip(), f"--free: {name}") for value in text.split(","))
    if len(set(values)) < len(values):
        raise InputError(f"--free: {name} has a value twice; give each once.")
    return Axis(level, field, values)


def read_laws(option: str, entries: Sequence[str], levels: Sequence[str], laws: Collection[str]) -> dict[str, str]:
    """Laws by level from texts such as `pe_spad=regfile`. Raises `InputError` for what does not exist."""
    found: dict[str, str] = {}
    for entry in entries:
        level, sign, law = (piece.strip() for piece in entry.partition("="))
        if not sign:
            raise InputError(f"{option}: '{entry}' must read like LEVEL=sram.")
        _known(option, "level", level, levels)
        _known(option, "law", law, laws)
        if level in found:
            raise InputError(f"{option}: {level} is given twice; give it once.")
        found[level] = law
    return found


def _known(option: str, what: str, name: str, names: Any) -> None:
    if name not in names:
        hint = did_you_mean(name, names)
        raise InputError(f"{option}: '{name}' is no {what}; there are {', '.join(names)}.{hint}")


def word_bytes(path: Path, level: str, wanted: str = "energy of another size") -> float:
    """Bytes of a word of a level of a case's file. Raises `InputError` where the file does not say what is `wanted`."""
    levels = yaml_machine(load_yaml(path), str(path))[0] if is_yaml(path) else load_json(path)["levels"]
    specs = levels[level]["specs"]
    if specs.get(WORD_BITS) in (None, "-"):
        raise InputError(f"{path}: {level}: {WORD_BITS} is missing; the {wanted} needs it.")
    return count(specs[WORD_BITS], f"{path}: {level}: {WORD_BITS}") / 8.0


def build_designs(
    case: Case, path: Path, constraints: Constraints, axes: Sequence[Axis], laws: dict[str, str]
) -> list[Design]:
    """All combinations of the axes' values, the last axis fastest.

    **Arguments:** `case`, `constraints`: of `constrained`; `path`: of the case, for the width of its words; `laws`:
    of `read_laws`, `sram` for the rest.
    **Raises:** `InputError` for a level whose size is free but not known, for a law of a level that is not free or not
    known for a size, or for instances that would not be whole.
    """
    sized = [axis.level for axis in axes if axis.field == "size"]
    for level in laws:
        if level not in sized:
            raise InputError(f"--energy: the size of {level} is not free; name it in --free or leave the law away.")
    kinds = {level: laws.get(level, "sram") for level in sized}
    words = {level: word_bytes(path, level) for level, law in kinds.items() if law != "fixed"}
    for level in words:
        known = float(case.architecture.levels[case.levels.index(level)].size)
        _check_sizes(path, case, level, [known, *_sizes(axes, level)], kinds[level])
    return [
        _design(case, constraints, {axis.name: value for axis, value in zip(axes, row, strict=True)}, kinds, words)
        for row in itertools.product(*(axis.values for axis in axes))
    ]


def law_notes(path: Path, axes: Sequence[Axis], laws: dict[str, str]) -> list[str]:
    """What is said of levels so small that the line for SRAM hardly tells their sizes apart."""
    return [
        f"{axis.level}: the energy line of sram is nearly flat below 1 KB, where sizes differ by more than it says"
        for axis in axes
        if axis.field == "size" and laws.get(axis.level, "sram") == "sram"
        if min(axis.values) * word_bytes(path, axis.level) < SMALL
    ]


def _sizes(axes: Sequence[Axis], level: str) -> tuple[float, ...]:
    return next(axis.values for axis in axes if (axis.level, axis.field) == (level, "size"))


def _check_sizes(path: Path, case: Case, level: str, sizes: Sequence[float], law: str) -> None:
    """Raises `InputError` for a level whose size is not known, or one that its law does not reach."""
    block = float(case.architecture.levels[case.levels.index(level)].block)
    if not math.isfinite(sizes[0]):
        raise InputError(f"{path}: {level} has no size; the energy of another follows from it (or --energy fixed).")
    deepest = max(size / block for size in sizes)
    if law == "regfile" and deepest > DEEPEST:
        raise InputError(f"--energy: {level} is up to {deepest:g} accesses deep; regfile is known up to {DEEPEST:g}.")


def _design(
    case: Case, constraints: Constraints, values: dict[str, float], laws: dict[str, str], words: dict[str, float]
) -> Design:
    machine, limits = case.architecture, dict(constraints)
    for name, value in values.items():
        level, _, field = name.rpartition(".")
        index = case.levels.index(level)
        if field in MESHES:
            before = limits.get(level, LevelConstraints())
            machine = multiplied(machine, index, value, getattr(before, field))
            limits[level] = dataclasses.replace(before, **{field: value})
            continue
        old = machine.levels[index]
        if field == "size":
            new = resized(old, value, words.get(level, 1.0), laws[level])
        else:
            new = dataclasses.replace(old, **{field: value})
        machine = dataclasses.replace(machine, levels=(*machine.levels[:index], new, *machine.levels[index + 1 :]))
    check_constraints(limits, case.levels, case.names, "--free")
    _check_instances(case, machine, values)
    return Design(values, with_meshes(machine, case.levels, limits), limits)


def _check_instances(case: Case, machine: Architecture, values: dict[str, float]) -> None:
    counts = {case.unit: machine.macs} | dict(
        zip(case.levels, (level.instances for level in machine.levels), strict=True)
    )
    for name, instances in counts.items():
        if float(instances) != int(instances):
            shown = ", ".join(f"{key}={value:g}" for key, value in values.items())
            raise InputError(f"--free: with {shown} there would be {float(instances):g} {name}; it must be an integer.")
