"""The architecture of a Timeloop case in YAML: a flat list of containers and components from the outermost."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from typing import Any, NamedTuple

from hwspecs.errors import InputError
from jaxperf.io.timeloop.fields import amount, check_spelling, count, list_of, object_if_any, text_of
from jaxperf.models.checks import show

ATTRIBUTES = ("depth", "width", "datawidth", "sizeKB", "block_size", "cluster_size", "multiple_buffering")
BANDWIDTHS = ("read_bandwidth", "write_bandwidth", "shared_bandwidth")
SPECS = {"cluster_size": "Cluster size", "multiple_buffering": "Multiple buffering", "datawidth": "Word bits"}
# What a level has for metadata may be nothing at all.
METADATA = {
    "metadata_datawidth": "Metadata word bits",
    "metadata_word_bits": "Metadata word bits",
    "metadata_storage_width": "Metadata storage width",
    "metadata_storage_depth": "Metadata storage depth",
}
# Sparseloop's, spelled nearly as what is read.
UNUSED = ("data_storage_width", "data_storage_depth")
NODE = ("name", "class", "spatial", "attributes")
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
    for node in list_of(architecture, "nodes", f"{source}: architecture"):
        if not isinstance(node, Dictionary) or "!" not in node:
            raise InputError(f"{source}: architecture: a node is {show(node)}; it must be !Component or !Container.")
        name = text_of(node, "name", f"{source}: architecture")
        where = f"{source}: architecture: {name}"
        if name in order:
            raise InputError(f"{where}: the name is used twice.")
        check_spelling(node, NODE, where)
        mesh = object_if_any(node, "spatial", where)
        check_spelling(mesh, MESH, f"{where}: spatial")
        for side in MESH:
            instances *= count(mesh.get(side, 1), f"{where}: {side}")
        order.append(name)
        if node["!"] == "Component":
            levels[name] = {"specs": _specs(node, instances, where), "computes": False}
    if not levels or order[-1] not in levels:
        raise InputError(f"{source}: architecture: the innermost node must be the component that computes.")
    levels[order[-1]]["computes"] = True
    return Nodes(tuple(order[:-1]), levels, order[-1])


def _specs(node: Dictionary[str, Any], instances: float, where: str) -> dict[str, Any]:
    """Specs of a component."""
    given = object_if_any(node, "attributes", where)
    return {"Instances": instances, **attribute_specs(given, where)}


def attribute_specs(attributes: Dictionary[str, Any], where: str) -> dict[str, Any]:
    """Specs from attributes; sizes in words of `datawidth` bits, a block is what fits into `width` bits."""
    given = {str(key).replace("-", "_"): value for key, value in attributes.items()}
    check_spelling(given, (*ATTRIBUTES, *BANDWIDTHS, *METADATA, *UNUSED), where)
    numbers = {key: _number(given[key], f"{where}: {key}") for key in ATTRIBUTES if key in given}
    bits = numbers.get("datawidth", 1.0)
    block = numbers.get("block_size", numbers.get("width", bits) // bits)
    specs: dict[str, Any] = {"Block size": block}
    if "sizeKB" in numbers:
        specs["Size"] = numbers["sizeKB"] * 1024.0 * 8.0 // bits
    elif "depth" in numbers:
        specs["Size"] = numbers["depth"] * block * numbers.get("cluster_size", 1.0)
    specs |= {spelled: numbers[key] for key, spelled in SPECS.items() if key in numbers}
    specs |= {spelled: amount(given[key], f"{where}: {key}") for key, spelled in METADATA.items() if key in given}
    return specs | {_spelled(key): given[key] for key in BANDWIDTHS if key in given}


def _spelled(key: str) -> str:
    return key.replace("_", " ").capitalize()


def _number(value: Any, where: str) -> float:
    if isinstance(value, str):
        raise InputError(f"{where} is {show(value)}; expressions are not supported, write the number.")
    return count(value, where)
