"""A case with its zeros: what is given about them, in the file or beside it, put together with its dense part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping as Dictionary
from pathlib import Path
from typing import Any, NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.architecture import attribute_specs
from jaxperf.io.timeloop.case import Case
from jaxperf.io.timeloop.fields import check_spelling, object_if_any, object_of
from jaxperf.io.timeloop.json_case import is_yaml, load_json, read_dense_case, zeros_ignored
from jaxperf.io.timeloop.sparse import KEY, Parts, read_optimizations
from jaxperf.io.timeloop.sparse_designs import design_of
from jaxperf.io.timeloop.sparse_levels import WIDTHS, read_densities, sparse_level, stated, unit_energies
from jaxperf.io.timeloop.yaml_case import load_yaml, read_yaml_case, underscored, yaml_machine
from jaxperf.loopnest.sparse.density import Density
from jaxperf.loopnest.sparse.formats import tile_extents
from jaxperf.loopnest.sparse.sparsity import Sparsity
from jaxperf.models.checks import show


class Given(NamedTuple):
    """What a machine does about zeros. `optimizations`: with a list `targets`; `attributes`: of levels, for what the
    case does not say of them; `where`: it stands; `note`: what has to be said about that."""

    optimizations: Dictionary[str, Any]
    attributes: Dictionary[str, Any]
    where: str
    note: tuple[str, ...] = ()


def load_sparse_case(path: str | Path, directives: str | Path | None = None) -> Case:
    """The case of a JSON or YAML file with its zeros, as far as anything is known of what becomes of them.

    **Arguments:** `directives`: a file with `sparse_optimizations`, before those in the case and those of a design that
    comes with the program. **Raises:** `InputError` naming file and field.
    """
    beside = None if directives is None else load_directives(directives)
    if is_yaml(path):
        return _yaml_case(load_yaml(path), str(path), beside)
    return read_sparse_case(load_json(path), str(path), beside)


def load_directives(path: str | Path) -> Given:
    """The directives of a YAML or JSON file, and the attributes of levels beside them, if any."""
    source, expected = str(path), f"directives are an object with {KEY}"
    data = load_yaml(path, expected) if is_yaml(path) else load_json(path)
    if not isinstance(data, Dictionary):
        raise InputError(f"{source} holds {show(data)}; {expected}.")
    check_spelling(underscored(data), (KEY, "targets", "attributes"), source)
    found = data if "targets" in data else object_of(data, KEY, source)
    attributes = object_if_any(data, "attributes", source)
    return Given(underscored(found), attributes, source, (f"directives of {source}",))


def read_sparse_case(data: Any, source: str, beside: Given | None = None) -> Case:
    """A case in JSON with its zeros; see `load_sparse_case`."""
    given = beside or _inside(data, source) or _shipped(data, source)
    if given is None:
        case = read_dense_case(data, source)
        return dataclasses.replace(case, notes=zeros_ignored(data["problem"], source) + case.notes)
    merged = _with_attributes(data, given)
    case = read_dense_case(merged, source)
    specs = {name: level["specs"] for name, level in merged["levels"].items()}
    return _with_zeros(case, given, merged["problem"]["instance"], specs, merged["ert_pJ_per_action"], source)


def _yaml_case(data: Dictionary[str, Any], source: str, beside: Given | None) -> Case:
    case = read_yaml_case(data, source)
    instance = underscored(data["problem"])["instance"]
    given = beside or _inside(underscored(data), source) or _of_nodes(underscored(data), source)
    if given is None:
        return dataclasses.replace(case, notes=zeros_ignored({"instance": instance}, source) + case.notes)
    merged = _with_node_attributes(data, given, source)
    case = read_yaml_case(merged, source)
    levels, energies = yaml_machine(merged, source)
    specs = {name: level["specs"] for name, level in levels.items()}
    return _with_zeros(case, given, instance, specs, energies, source)


def _inside(data: Any, source: str) -> Given | None:
    if not isinstance(data, Dictionary) or not data.get(KEY):
        return None
    return Given(underscored(object_of(data, KEY, source)), {}, f"{source}: {KEY}")


def _of_nodes(data: Dictionary[str, Any], source: str) -> Given | None:
    """The directives that nodes of an architecture hold, each for itself."""
    nodes = data["architecture"]["nodes"]
    targets = [
        {"name": node["name"], **object_of(node, KEY, f"{source}: {node['name']}")} for node in nodes if node.get(KEY)
    ]
    return Given({"targets": targets}, {}, f"{source}: architecture") if targets else None


def _shipped(data: Any, source: str) -> Given | None:
    """The design of the exercise that the case is named after, where it has densities and the design's levels."""
    if not isinstance(data, Dictionary) or not isinstance(data.get("levels"), Dictionary):
        return None
    problem = object_if_any(data, "problem", source)
    if not object_if_any(object_if_any(problem, "instance", source), "densities", source):
        return None
    design = design_of(str(data.get("name", ""))) or design_of(Path(source).name)
    if design is None or not set(design.attributes) <= set(data["levels"]):
        return None
    note = f"directives and widths of the public exercise {design.name}; they are not in the file"
    return Given(design.optimizations, design.attributes, f"exercise {design.name}", (note,))


def _with_attributes(data: Dictionary[str, Any], given: Given) -> dict[str, Any]:
    """The case with specs that it does not state taken from attributes."""
    levels = dict(object_of(data, "levels", given.where))
    for name, attributes in _attributes(given, levels).items():
        where = f"{given.where}: {name}"
        levels[name] = {"specs": {**attribute_specs(attributes, where), **object_of(levels[name], "specs", where)}}
    return {**data, "levels": levels}


def _with_node_attributes(data: Dictionary[str, Any], given: Given, source: str) -> dict[str, Any]:
    """The case in YAML with attributes that its nodes do not state taken from those given."""
    extra = _attributes(given, yaml_machine(data, source)[0])
    nodes = [
        {**node, "attributes": {**extra.get(node["name"].strip(), {}), **(node.get("attributes") or {})}}
        for node in data["architecture"]["nodes"]
    ]
    return {**data, "architecture": {**data["architecture"], "nodes": nodes}}


def _attributes(given: Given, levels: Dictionary[str, Any]) -> dict[str, Dictionary[str, Any]]:
    """The attributes that are given by level. Raises `InputError` for what is no level."""
    for name in given.attributes:
        if name not in levels:
            known = ", ".join(levels)
            raise InputError(
                f"{given.where}: attributes: {name} is no level; there are {known}.{did_you_mean(str(name), levels)}"
            )
    return {name: object_of(given.attributes, name, given.where) for name in given.attributes}


def _with_zeros(
    case: Case,
    given: Given,
    instance: Dictionary[str, Any],
    specs: Dictionary[str, Any],
    energies: Dictionary[str, Any],
    source: str,
) -> Case:
    densities = read_densities(instance, case.names.operands, f"{source}: problem.instance")
    _check_banded(case, densities, f"{source}: problem.instance")
    parts = Parts(case.names, case.levels, case.unit, case.mapping.kept)
    found = read_optimizations(given.optimizations, parts, given.where)
    levels = tuple(sparse_level(specs[name], energies[name], f"{source}: {name}") for name in case.levels)
    sparsity = Sparsity(
        densities,
        levels,
        **unit_energies(energies[case.unit], f"{source}: {case.unit}"),
        formats=found.formats,
        directives=found.directives,
        **found.units,
    )
    notes = (*given.note, *_assumed_widths(case, sparsity, specs), *case.notes)
    return dataclasses.replace(case, sparsity=sparsity, notes=notes)


def _check_banded(case: Case, densities: tuple[Density, ...], where: str) -> None:
    """A band is one of a square matrix. Raises `InputError` naming the operand."""
    for name, operand, density in zip(case.names.operands, case.problem.operands, densities, strict=True):
        sides = {float(each) for each in tile_extents(operand, list(case.problem.bounds), case.problem)}
        if density.kind == "banded" and (len(operand.axes) != 2 or len(sides) != 1):
            raise InputError(f"{where}: density of {name}: banded needs a square matrix; use fixed_structured.")


def _assumed_widths(case: Case, sparsity: Sparsity, specs: Dictionary[str, Any]) -> list[str]:
    """What is said of levels with a format whose widths are not known."""
    named = [name for name, row in zip(case.levels, sparsity.formats, strict=True) if any(row)]
    lacking = {key: ", ".join(name for name in named if not stated(specs[name], key)) for key in WIDTHS.values()}
    said = {
        WIDTHS["word_bits"]: "no width of a word is given, 16 bits are assumed",
        WIDTHS["metadata_bits"]: "no width of metadata is given, what is not a bitmask takes no bits",
        WIDTHS["metadata_width"]: "no width of the metadata's storage is given, metadata costs nothing",
    }
    return [f"{names}: {said[key]}" for key, names in lacking.items() if names]
