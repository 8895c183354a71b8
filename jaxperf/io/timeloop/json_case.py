"""A case of Timeloop in, as JSON: `problem`, `mapping_outer_to_inner`, the `specs` of each level and its energies.

Energies are those of Accelergy's energy reference table (ERT), in pJ per access of a block; "-" is no limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError, did_you_mean, nearest
from jaxperf.io.json_text import parse_unique
from jaxperf.io.timeloop.case import Case
from jaxperf.io.timeloop.fields import ALIKE, check_spelling, count, list_of, object_of, text_of, words_if_any
from jaxperf.io.timeloop.machine import COUNTS, TABLE, Machine, read_machine
from jaxperf.io.timeloop.nest import Block, read_mapping, read_problem
from jaxperf.io.timeloop.sparse import KEY
from jaxperf.io.timeloop.yaml_case import load_yaml, read_yaml_case, underscored
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.mapping import Mapping
from jaxperf.models.checks import show

MAPPING = "mapping_outer_to_inner"
PARTS = ("problem", "levels", TABLE, MAPPING, KEY)
BLOCK = ("level", "keep", "loops")


def load_json(path: str | Path) -> Any:
    """What a JSON file holds. Raises `InputError` for one that cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid JSON: {error}.") from None
    return parse_unique(text, str(path))


def load_case(path: str | Path) -> Case:
    """The case that a JSON or YAML file holds, without its zeros. Raises `InputError` naming file and field."""
    data, case = _loaded(path)
    return dataclasses.replace(case, notes=_dense_notes(data, str(path)) + case.notes)


def load_machine(path: str | Path) -> Case:
    """`load_case` for a machine that runs other nests than the case's, of whose zeros nothing is said."""
    data, case = _loaded(path)
    return dataclasses.replace(case, notes=_directive_notes(data) + case.notes)


def _loaded(path: str | Path) -> tuple[Dictionary[str, Any], Case]:
    """What a file holds, and its case without a word about zeros."""
    if is_yaml(path):
        data = load_yaml(path)
        return underscored(data), read_yaml_case(data, str(path))
    data = load_json(path)
    return data, read_dense_case(data, str(path))


def is_yaml(path: str | Path) -> bool:
    return Path(path).suffix.lower() in (".yaml", ".yml")


def read_case(data: Any, source: str) -> Case:
    """A case from what its file holds, without its zeros; results beside it are not looked at.

    **Raises:** `InputError` naming file and field.
    """
    case = read_dense_case(data, source)
    return dataclasses.replace(case, notes=_dense_notes(data, source) + case.notes)


def _dense_notes(data: Dictionary[str, Any], source: str) -> tuple[str, ...]:
    return _directive_notes(data) or zeros_ignored(data["problem"], source)


def _directive_notes(data: Dictionary[str, Any]) -> tuple[str, ...]:
    nodes = data.get("architecture", {}).get("nodes", ())  # of YAML, whose components may hold their own
    if any(KEY in each for each in (data, *nodes)):
        return (f"the search is dense: the directives of {KEY} are not used",)
    return ()


def read_dense_case(data: Any, source: str) -> Case:
    """`read_case`, without a word about densities."""
    if not isinstance(data, Dictionary):
        raise InputError(f"{source} holds {show(data)}; a case is an object with problem and {MAPPING}.")
    check_spelling(data, PARTS, source)
    problem, names = read_problem(object_of(data, "problem", source), source)
    machine = read_machine(data, source)
    blocks = [_block(each, machine, source) for each in list_of(data, MAPPING, source)]
    unnamed = _unnamed_levels(blocks, machine, source)
    factors, levels = read_mapping(blocks, names, source)
    architecture = Architecture(tuple(Level(**machine.levels[name]) for name in levels), **machine.units)
    notes = (*_unnamed_notes(unnamed), *_assumed_notes(data["levels"], levels))
    return Case(problem, architecture, Mapping(*factors), names, levels, machine.unit, "2024", notes)


def _block(each: Any, machine: Machine, source: str) -> Block:
    if not isinstance(each, Dictionary):
        raise InputError(f"{source}: {MAPPING} holds {show(each)}; it must be a list of objects with level and loops.")
    level = text_of(each, "level", f"{source}: {MAPPING}")
    check_spelling(each, BLOCK, f"{source}: mapping of {level}")
    kept = words_if_any(each, "keep", f"{source}: mapping of {level}")
    if kept and level not in machine.levels:
        raise InputError(f"{source}: {MAPPING}: level {level} has no specs.{did_you_mean(level, machine.levels)}")
    if level == machine.unit:
        raise InputError(f"{source}: {MAPPING}: {level} computes; it can hold no loops.")
    loops = [_loop(loop, f"{source}: mapping of {level}") for loop in list_of(each, "loops", f"{source}: {level}")]
    return Block(level, loops, kept, stores=level in machine.levels)


def _unnamed_levels(blocks: Sequence[Block], machine: Machine, source: str) -> list[str]:
    """Storage levels that no block names. Raises `InputError` for a block without specs that may be meant for one."""
    named = {block.level for block in blocks}
    unnamed = [level for level in machine.levels if level not in named]
    for block in blocks:
        meant = [] if block.stores else nearest(block.level, unnamed, count=1, cutoff=ALIKE)
        if meant:
            raise InputError(f"{source}: {MAPPING}: level {block.level} has no specs. Did you mean {meant[0]}?")
    return unnamed


def _loop(loop: Any, where: str) -> tuple[str, float, str]:
    if not isinstance(loop, Sequence) or isinstance(loop, str) or len(loop) != 3:
        raise InputError(f"{where}: loop {show(loop)} is no [dimension, bound, t | x | y].")
    return str(loop[0]), count(loop[1], f"{where}: bound of {loop[0]}"), str(loop[2]).casefold()


def zeros_ignored(problem: Dictionary[str, Any], source: str) -> tuple[str, ...]:
    """What is said where densities are given and nothing makes use of them."""
    names = ", ".join(words_if_any(problem["instance"], "densities", f"{source}: problem.instance"))
    if not names:
        return ()
    return (f"densities of {names} are given but no gating, skipping or format: computed as dense",)


def _unnamed_notes(unnamed: Sequence[str]) -> tuple[str, ...]:
    names = ", ".join(unnamed)
    return (f"{names}: has specs but the mapping does not name it; left out",) if unnamed else ()


def _assumed_notes(described: Dictionary[str, Any], levels: Sequence[str]) -> tuple[str, ...]:
    missing = [name for name in levels if COUNTS["block"] not in described[name]["specs"]]
    return (f"{', '.join(missing)}: no block size is given, one word is assumed",) if missing else ()
