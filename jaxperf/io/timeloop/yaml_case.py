"""A case of Timeloop in version 0.4 of its YAML: `architecture`, `problem`, `mapping` and, for energies, an `ERT`.

The four may stand in one file in any order. Architectures are a flat list of nodes from the outermost; attributes are
numbers, no expressions. Mappings list temporal and spatial factors and the data spaces of each level.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.architecture import read_nodes
from jaxperf.io.timeloop.case import Case
from jaxperf.io.timeloop.fields import (
    amount,
    check_spelling,
    count,
    list_of,
    object_of,
    text_of,
    underscored_keys,
    words_if_any,
)
from jaxperf.io.timeloop.machine import Machine, read_machine
from jaxperf.io.timeloop.nest import Block, read_mapping, read_problem
from jaxperf.io.timeloop.sparse import KEY
from jaxperf.io.yaml_text import UniqueKeys, check_finite
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.mapping import Mapping
from jaxperf.models.checks import show

TABLE = "ERT"
NODES = ("Component", "Container")
KINDS = ("temporal", "spatial", "dataspace", "bypass", "datatype")
PARTS = ("problem", "architecture", "mapping", TABLE, KEY)
ENTRY = ("target", "type", "factors", "permutation", "split", "keep", "bypass")


class _Loader(UniqueKeys):
    """YAML whose tagged nodes are mappings that remember their tag, under the key `!`."""


def _tagged(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    if tag not in NODES or not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        hint = did_you_mean(tag, NODES)
        raise InputError(f"line {line}: !{tag} is not supported; nodes are !{' and !'.join(NODES)}.{hint}")
    return {"!": tag, **{str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}}


_Loader.add_multi_constructor("!", _tagged)


def load_yaml(
    path: str | Path, expected: str = "a case has architecture, problem, mapping and ERT"
) -> Dictionary[str, Any]:
    """The object that a YAML file holds. Raises `InputError` naming file, and line or what is `expected`."""
    source = str(path)
    try:
        data = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)  # noqa: S506 -- a safe loader
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}.") from None
    except InputError as error:
        raise InputError(f"{source}, {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, thousands of digits
        raise InputError(f"{source} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(data, Dictionary):
        raise InputError(f"{source} holds {show(data)}; {expected}.")
    check_finite(data, source)
    return data


def read_yaml_case(data: Dictionary[str, Any], source: str) -> Case:
    """A case from what its YAML holds. Raises `InputError` naming file and field."""
    check_spelling(underscored_keys(data), PARTS, source)
    problem, names = read_problem(underscored(object_of(data, "problem", source)), source)
    nodes = read_nodes(object_of(data, "architecture", source), source)
    machine = read_machine({"levels": nodes.levels, TABLE: _energies(data, nodes.levels, source)}, source, TABLE)
    if machine.unit != nodes.unit:
        raise InputError(f"{source}: {TABLE}: {machine.unit} computes, but the innermost node is {nodes.unit}.")
    blocks = _blocks(list_of(data, "mapping", source), nodes.order, machine, names.operands, source)
    factors, levels = read_mapping(blocks, names, source)
    architecture = Architecture(tuple(Level(**machine.levels[name]) for name in levels), **machine.units)
    notes = () if TABLE in data else ("no ERT is given: energies are zero",)
    return Case(problem, architecture, Mapping(*factors), names, levels, machine.unit, "head", notes)


def yaml_machine(data: Dictionary[str, Any], source: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Levels with their specs, and pJ by action of each, as `read_yaml_case` takes them."""
    levels = read_nodes(object_of(data, "architecture", source), source).levels
    return levels, _energies(data, levels, source)


def underscored(value: Any) -> Any:
    """Keys such as `data-spaces`, as older files spell them, with underscores."""
    if isinstance(value, Dictionary):
        return {key: underscored(each) for key, each in underscored_keys(value).items()}
    return [underscored(each) for each in value] if isinstance(value, list) else value


def _energies(data: Dictionary[str, Any], levels: Dictionary[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """pJ by action of each level, from the tables of an ERT; zero where there is no ERT."""
    found: dict[str, dict[str, Any]] = {}
    if TABLE in data:
        for table in list_of(object_of(data, TABLE, source), "tables", f"{source}: {TABLE}"):
            name = _own_name(text_of(table, "name", f"{source}: {TABLE}"))
            where = f"{source}: {TABLE}: {name}"
            actions = list_of(table, "actions", where)
            found[name] = {text_of(each, "name", where): each.get("energy") for each in actions}
    else:
        storage, unit = {"read": 0.0, "write": 0.0}, {"compute": 0.0}
        found = {name: unit if specs["computes"] else storage for name, specs in levels.items()}
    return found


def _own_name(path: str) -> str:
    """The last part of a name such as `system.PE[0..3].mac[1..4]`, without how many there are."""
    return re.sub(r"\[[^\]]*\]", "", path).rsplit(".", 1)[-1]


def _blocks(
    entries: Sequence[Any], order: Sequence[str], machine: Machine, operands: Sequence[str], source: str
) -> list[Block]:
    """Blocks from the outermost: of every level of the machine in its order, its temporal and its spatial loops."""
    loops: dict[str, list[tuple[str, float, str]]] = {name: [] for name in order}
    kept = {name: list(operands) for name in order if name in machine.levels}
    for number, entry in enumerate(entries, 1):
        where = f"{source}: mapping, entry {number}"
        if not isinstance(entry, Dictionary):
            raise InputError(f"{where} is {show(entry)}; it must be an object with target and type.")
        check_spelling(entry, ENTRY, where)
        target, kind = text_of(entry, "target", where), text_of(entry, "type", where)
        if target not in loops:
            raise InputError(f"{where}: target {target} is no level.{did_you_mean(target, loops)}")
        if kind not in KINDS:
            raise InputError(f"{where}: type {kind} is not one of {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}")
        if kind in ("temporal", "spatial"):
            loops[target] += _loops(entry, kind, where)
        elif target not in kept:
            raise InputError(f"{where}: {target} stores nothing.{did_you_mean(target, kept)}")
        else:
            kept[target] = _kept(entry, operands, where)
    return [Block(name, loops[name], kept.get(name, ()), stores=name in kept) for name in order]


def _loops(entry: Dictionary[str, Any], kind: str, where: str) -> list[tuple[str, float, str]]:
    """The loops of one entry, outermost first; of spatial ones the first `split` of the order run along X."""
    factors = dict(_factor(each, where) for each in words_if_any(entry, "factors", where))
    order = words_if_any(entry, "permutation", where) or list(factors)
    order = [*order, *(name for name in factors if name not in order)]
    split = int(amount(entry.get("split", len(order)), f"{where}: split"))
    kinds = ["t" if kind == "temporal" else "x" if place < split else "y" for place in range(len(order))]
    return [(name, factors.get(name, 1.0), own) for name, own in zip(order[::-1], kinds[::-1], strict=True)]


def _factor(text: str, where: str) -> tuple[str, float]:
    name, sign, bound = text.partition("=")
    if not sign:
        raise InputError(f"{where}: factor {show(text)} must read like P=16.")
    return name.strip(), count(bound.strip(), f"{where}: factor of {name.strip()}")


def _kept(entry: Dictionary[str, Any], operands: Sequence[str], where: str) -> list[str]:
    """Operands that a level keeps: those named, or all but those that bypass."""
    keep, bypass = (words_if_any(entry, key, where) for key in ("keep", "bypass"))
    for name in (*keep, *bypass):
        if name not in operands:
            raise InputError(f"{where}: {name} is no data space.{did_you_mean(name, operands)}")
    return [name for name in operands if name in keep or (not keep and name not in bypass)]
