"""The energies of a case moved to another process, before machines are made of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hwspecs.errors import InputError
from jaxperf.io.codesign.area import Silicon, level_laws, read_node
from jaxperf.io.codesign.machines import word_bytes
from jaxperf.io.codesign.search import Task
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.energy_node import LEVEL_FACTORS, NODES, mac_factor


def read_case_node(text: str | None, silicon: Silicon | None) -> float | None:
    """The process of the case's energies from a text such as `45nm` [m]; None where they stay as they are.

    **Raises:** `InputError` for what is no process that is known, or with none to move to.
    """
    if text is None:
        return None
    if silicon is None:
        raise InputError("--case-node needs --technology, such as --technology 16nm: where the energies move to.")
    return read_node("--case-node", text, NODES, "energies")


def moved_energies(task: Task, silicon: Silicon, before: float, path: Path) -> Task:
    """The task with the dynamic energies of its machine moved from the process `before` [m] to that of `silicon`;
    leakage and wires stay.

    **Arguments:** `path`: of the case, for the width of its words.
    """
    case = task.cases[0]
    machine = _moved(case.architecture, case.levels, silicon, before, path)
    return task._replace(cases=[dataclasses.replace(each, architecture=machine) for each in task.cases])


def _moved(machine: Architecture, names: tuple[str, ...], silicon: Silicon, before: float, path: Path) -> Architecture:
    laws = level_laws(machine, silicon, names)
    levels = []
    for name, level in zip(names, machine.levels, strict=True):
        capacity = 0.0 if laws[name] == "none" else float(level.size) * word_bytes(path, name, "energy")
        levels.append(_times(level, LEVEL_FACTORS[laws[name]](capacity, silicon.node, before)))
    unit = float(machine.mac_energy) * mac_factor(silicon.node, before)
    return dataclasses.replace(machine, levels=tuple(levels), mac_energy=unit)


def _times(level: Level, factor: float) -> Level:
    changed = {name: float(getattr(level, name)) * factor for name in ("read_energy", "write_energy", "update_energy")}
    return dataclasses.replace(level, **changed)
