"""Constraints on mappings from a JSON file, a shipped one by name, or what a machine's instances alone imply."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import floor_div
from jaxperf.io.timeloop.fields import count, list_of, object_of
from jaxperf.io.timeloop.json_case import load_json
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.constraints import FIELDS, KINDS, Constraints, LevelConstraints
from jaxperf.models.checks import show

LISTS = (*KINDS, "order", "keep")
MESHES = ("mesh_x", "mesh_y")
SHIPPED = resources.files("jaxperf.io") / "constraints"


def shipped_constraints() -> list[str]:
    """Names of the machines whose constraints come with the program."""
    return sorted(each.name.removesuffix(".json") for each in SHIPPED.iterdir())


def load_constraints(given: str, default: Constraints | None = None) -> Constraints:
    """Constraints by the name of a shipped machine, or from a JSON file.

    **Arguments:** `default`: levels that are not named are as there, so is a mesh that is not stated.
    **Raises:** `InputError` for an unknown name, a file that cannot be read, or a field that is wrong.
    """
    names = shipped_constraints()
    if given in names:
        return read_constraints(load_json(str(SHIPPED / f"{given}.json")), given, default)
    if not Path(given).exists():
        hint = did_you_mean(given, names)
        raise InputError(f"--constraints: '{given}' is no file, nor one of {', '.join(names)}.{hint}")
    return read_constraints(load_json(given), given, default)


def read_constraints(data: Any, source: str, default: Constraints | None = None) -> Constraints:
    """Constraints by level from what a file holds under `levels`; `default`: as of `load_constraints`."""
    if not isinstance(data, Dictionary):
        raise InputError(f"{source} holds {show(data)}; constraints are an object with levels.")
    levels = object_of(data, "levels", source)
    known = default or {}
    given = {
        level: _level(object_of(levels, level, source), known.get(level, LevelConstraints()), f"{source}: {level}")
        for level in levels
    }
    return {**known, **given}


def _level(data: Dictionary[str, Any], default: LevelConstraints, where: str) -> LevelConstraints:
    for name in data:
        if name not in FIELDS:
            raise InputError(
                f"{where}: '{name}' is no constraint; there are {', '.join(FIELDS)}.{did_you_mean(name, FIELDS)}"
            )
    found: dict[str, Any] = {name: _names(data, name, where) for name in LISTS if name in data}
    meshes = {name: count(data[name], f"{where}: {name}") for name in MESHES if name in data}
    found |= meshes or {name: getattr(default, name) for name in MESHES}
    if "factors" in data:
        factors = object_of(data, "factors", where)
        found["factors"] = {kind: _factors(factors, kind, f"{where}: factors") for kind in factors}
    return LevelConstraints(**found)


def _names(data: Dictionary[str, Any], name: str, where: str) -> tuple[str, ...]:
    return tuple(map(str, list_of(data, name, where)))


def _factors(data: Dictionary[str, Any], kind: str, where: str) -> dict[str, float]:
    given = object_of(data, kind, where)
    return {name: count(value, f"{where}: {kind}: {name}") for name, value in given.items()}


def open_constraints(architecture: Architecture, levels: Sequence[str]) -> Constraints:
    """Every loop anywhere; the children of a level, as many as there are instances of it, in one row."""
    found, children = {}, architecture.macs
    for name, level in zip(levels, architecture.levels, strict=True):
        found[name] = LevelConstraints(mesh_x=float(floor_div(children, level.instances)))
        children = level.instances
    return found


def machine_constraints(given: str | None, architecture: Architecture, levels: Sequence[str]) -> Constraints:
    """Constraints of a name or a file, or without one what the instances of the machine allow.

    **Raises:** `InputError` as `load_constraints`, and for a mesh that has not the children of an instance.
    """
    default = open_constraints(architecture, levels)
    if not given:
        return default
    found = load_constraints(given, default)
    for name, limits in default.items():
        children, mesh = limits.mesh_x, found[name]
        if mesh.mesh_x * mesh.mesh_y != children:
            raise InputError(
                f"{given}: {name}: mesh_x {mesh.mesh_x:g} times mesh_y {mesh.mesh_y:g} must be {children:g}, the "
                "children of one of its instances; leave both away for one row."
            )
    return found


def with_meshes(architecture: Architecture, levels: Sequence[str], constraints: Constraints) -> Architecture:
    """The machine with the meshes of its constraints."""
    limits = [constraints.get(name, LevelConstraints()) for name in levels]
    return dataclasses.replace(
        architecture,
        levels=tuple(
            dataclasses.replace(level, fan_x=limit.mesh_x, fan_y=limit.mesh_y)
            for level, limit in zip(architecture.levels, limits, strict=True)
        ),
    )
