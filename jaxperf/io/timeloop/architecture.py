"""The architecture of a Timeloop case in YAML: a flat list of containers and components from the outermost."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from typing import Any, NamedTuple

from hwspecs.errors import InputError
from jaxperf.io.timeloop.fields import (
    amount,
    check_said_otherwise,
    check_spelling,
    count,
    list_of,
    object_if_any,
    text_of,
    underscored_keys,
)
from jaxperf.io.timeloop.machine import LEAKS
from jaxperf.io.timeloop.sparse import KEY
from jaxperf.models.checks import show

COUNTS = ("depth", "width", "datawidth", "entries", "sizeKB", "block_size", "cluster_size", "multiple_buffering")
# Timeloop's other names of these.
SYNONYMS = {
    "word_bits": "datawidth",
    "word_width": "datawidth",
    "memory_depth": "depth",
    "data_storage_depth": "depth",
    "memory_width": "width",
    "data_storage_width": "width",
    "n_words": "block_size",
}
BANDWIDTHS = ("read_bandwidth", "write_bandwidth", "shared_bandwidth")
SPECS = {"cluster_size": "Cluster size", "multiple_buffering": "Multiple buffering", "datawidth": "Word bits"}
# What a level has for metadata may be nothing at all.
METADATA = {
    "metadata_datawidth": "Metadata word bits",
    "metadata_word_bits": "Metadata word bits",
    "metadata_storage_width": "Metadata storage width",
    "metadata_storage_depth": "Metadata storage depth",
}
ATTRIBUTES = (*COUNTS, *SYNONYMS, *BANDWIDTHS, *METADATA)
NODE = ("name", "class", "spatial", "attributes", KEY)
MESH = ("meshX", "meshY")


class Nodes(NamedTuple):
    """`order`: names from the outermost, without the unit that computes; `levels`: specs as the reference files spell
    them, and whether the level computes; `unit`: the innermost node."""

    order: tuple[str, ...]
    levels: dict[str, dict[str, Any]]
    unit: str


def read_nodes(architecture: Dictionary[str, Any], source: str) -> Nodes:
    """The nodes of an architecture.

    **Raises:** `InputError` naming node and attribute for what is not supported: nested nodes, expressions.
    """
    instances, order, levels = 1.0, [], {}
    nodes = list_of(architecture, "nodes", f"{source}: architecture")
    for place, node in enumerate(nodes, 1):
        if not isinstance(node, Dictionary) or "!" not in node:
            raise InputError(f"{source}: architecture: a node is {show(node)}; it must be !Component or !Container.")
        name = text_of(node, "name", f"{source}: architecture")
        where = f"{source}: architecture: {name}"
        if name in order:
            raise InputError(f"{where}: the name is used twice.")
        check_spelling(underscored_keys(node), NODE, where)
        mesh = object_if_any(node, "spatial", where)
        check_spelling(mesh, MESH, f"{where}: spatial")
        for side in MESH:
            instances *= count(mesh.get(side, 1), f"{where}: {side}")
        order.append(name)
        if node["!"] == "Component":
            computes = place == len(nodes)  # of units only their number is used
            stored = {} if computes else attribute_specs(object_if_any(node, "attributes", where), where)
            levels[name] = {"specs": {"Instances": instances, **stored}, "computes": computes}
    if not levels or order[-1] not in levels:
        raise InputError(f"{source}: architecture: the innermost node must be the component that computes.")
    return Nodes(tuple(order[:-1]), levels, order[-1])


def attribute_specs(attributes: Dictionary[str, Any], where: str) -> dict[str, Any]:
    """Specs from attributes; sizes in words of `datawidth` bits, a block is what fits into `width` bits.

    **Raises:** `InputError` naming the attribute for what is no number, misspelled, stated twice and differently, or
    counted in bits of words of which no width is stated.
    """
    given = underscored_keys(attributes)
    check_spelling(given, ATTRIBUTES, where)
    check_said_otherwise(given, LEAKS, where)
    numbers = _numbers(given, where)
    block = _block(numbers, where)
    specs: dict[str, Any] = {"Block size": block, **_size(numbers, block, where)}
    specs |= {spelled: numbers[key] for key, spelled in SPECS.items() if key in numbers}
    specs |= {spelled: amount(given[key], f"{where}: {key}") for key, spelled in METADATA.items() if key in given}
    return specs | {_spelled(key): given[key] for key in BANDWIDTHS if key in given}


def _numbers(given: Dictionary[str, Any], where: str) -> dict[str, float]:
    """The counts that attributes state, by the first of their names."""
    found: dict[str, float] = {}
    named: dict[str, str] = {}
    for name in (*COUNTS, *SYNONYMS):
        if name in given:
            key = SYNONYMS.get(name, name)
            number = _number(given[name], f"{where}: {name}")
            if found.setdefault(key, number) != number:
                raise InputError(
                    f"{where}: {named[key]} is {found[key]:g} and {name}, another name of it, {number:g}; state one."
                )
            named.setdefault(key, name)
    return found


def _block(numbers: Dictionary[str, float], where: str) -> float:
    """Words of a block: as stated, or as many as lie side by side."""
    if "block_size" in numbers or "width" not in numbers:
        return numbers.get("block_size", 1.0)
    return numbers["width"] // _bits(numbers, "width", where)


def _size(numbers: Dictionary[str, float], block: float, where: str) -> dict[str, float]:
    """The size in words, where one is stated."""
    sizes: dict[str, float] = {}
    if "entries" in numbers:
        sizes["entries"] = numbers["entries"]
    if "depth" in numbers:
        sizes["depth"] = numbers["depth"] * block * numbers.get("cluster_size", 1.0)
    if "sizeKB" in numbers:
        sizes["sizeKB"] = numbers["sizeKB"] * 1024.0 * 8.0 // _bits(numbers, "sizeKB", where)
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{size:g} by {key}" for key, size in sizes.items())
        raise InputError(f"{where}: its words are {said}; state one of these.")
    return {"Size": sizes.popitem()[1]} if sizes else {}


def _bits(numbers: Dictionary[str, float], needing: str, where: str) -> float:
    if "datawidth" not in numbers:
        raise InputError(f"{where}: {needing} needs datawidth, the bits of a word.")
    return numbers["datawidth"]


def _spelled(key: str) -> str:
    return key.replace("_", " ").capitalize()


def _number(value: Any, where: str) -> float:
    if isinstance(value, str):
        raise InputError(f"{where} is {show(value)}; expressions are not supported, write the number.")
    return count(value, where)
