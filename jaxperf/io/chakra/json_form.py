"""A Chakra execution trace as JSON, in the two forms that are about.

The messages one after the other as Protocol Buffers spell them in JSON (`chakra_jsonizer`): GlobalMetadata, then
nodes, names in camel or snake case, 64-bit integers as texts. Or the feeder's form: one object whose `workload_graph`
lists nodes with `Id`, `Name`, `NodeType` and their attributes beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.chakra.messages import NODE_TYPES, NodeMessage
from jaxperf.models.checks import show

_CAPITAL = re.compile(r"(?<=[a-z0-9])[A-Z]")
_DIGITS = re.compile(r"-?[0-9]{1,20}")  # of a 64-bit integer as a text
_INTEGERS = ("id", "start_time_micros", "duration_micros")
_LISTS = ("ctrl_deps", "data_deps")
_NO_VALUE = ("name", "docString", "doc_string")  # of an attribute; what else it holds is its value
_FEEDER = {"nodetype": "type", "node_type": "type", "runtime": "duration_micros"}
_KNOWN = {each.name for each in fields(NodeMessage)}


def decode_json(text: str, source: str) -> list[NodeMessage]:
    """The nodes of a trace in JSON.

    **Raises:** `InputError` naming file, line and node for anything that is no such trace.
    """
    found = list(_objects(text, source))
    graph = found[0].get("workload_graph") if len(found) == 1 else None
    if graph is not None:
        if not isinstance(graph, list):
            raise InputError(f"{source}: workload_graph is {show(graph)}; it must be a list of nodes.")
        return [_feeder_node(record, f"{source}, node {index}") for index, record in enumerate(graph, 1)]
    if found and "id" in found[0] and "type" in found[0]:
        raise InputError(f"{source} does not start with GlobalMetadata; it is no Chakra trace.")
    return [_node(record, f"{source}, node {index}") for index, record in enumerate(found[1:], 1)]


def _objects(text: str, source: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while (at := _skip_space(text, at)) < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:  # no JSON, an integer of thousands of digits, nested too deep
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            raise InputError(f"{source}, line {line}: not valid JSON; it is truncated or no Chakra trace.") from None
        if not isinstance(value, dict):
            raise InputError(f"{source}, line {text.count(chr(10), 0, at) + 1}: {show(value)} where an object belongs.")
        yield value
        at = end


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _snake(name: str) -> str:
    return _CAPITAL.sub(lambda match: "_" + match.group(), name).lower()


def _node(record: Mapping[str, Any], where: str) -> NodeMessage:
    named = {_snake(key): value for key, value in record.items()}
    inputs = named.get("inputs")
    message = _message(named, where)
    message.inputs = str(inputs.get("values", "")) if isinstance(inputs, Mapping) else ""
    for each in _list_of(named, "attr", where):
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise InputError(f"{where}: an attribute is {show(each)}; it must be an object with a name.")
        message.attr[each["name"]] = next((_value(*item) for item in each.items() if item[0] not in _NO_VALUE), None)
    return message


def _feeder_node(record: Any, where: str) -> NodeMessage:
    if not isinstance(record, Mapping):
        raise InputError(f"{where} is {show(record)}; it must be an object with fields.")
    named = {_FEEDER.get(_snake(key), _snake(key)): value for key, value in record.items()}
    message = _message(named, where)
    message.attr = {key: value for key, value in named.items() if key not in _KNOWN}
    return message


def _message(named: Mapping[str, Any], where: str) -> NodeMessage:
    """The plain fields of a node."""
    message = NodeMessage(name=str(named.get("name", "")), type=_type(named.get("type", 0), where))
    for key in _INTEGERS:
        setattr(message, key, _integer(named.get(key, 0), key, where))
    for key in _LISTS:
        setattr(message, key, [_integer(each, key, where) for each in _list_of(named, key, where)])
    return message


def _type(value: Any, where: str) -> str:
    found = NODE_TYPES[value] if type(value) is int and 0 <= value < len(NODE_TYPES) else str(value)
    if found not in NODE_TYPES:
        raise InputError(f"{where}: node type {show(value)} is unknown.{did_you_mean(found, NODE_TYPES)}")
    return found


def _list_of(named: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = named.get(key, [])
    if not isinstance(value, list):
        raise InputError(f"{where}: {key} is {show(value)}; it must be a list.")
    return value


def _integer(value: Any, key: str, where: str) -> int:
    """A 64-bit integer, which JSON messages write as a text."""
    found = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if type(found) is not int or not 0 <= found < 2**64:
        raise InputError(f"{where}: {key} is {show(value)}; it must be an integer from 0 to 2^64 - 1.")
    return found


def _value(key: str, value: Any) -> Any:
    """An attribute's value; what is an integer by its key comes as one."""
    if isinstance(value, Mapping):
        found = value.get("values", [])
        return found if isinstance(found, list) else value
    is_number = "int" in key or "fixed" in key
    return int(value) if is_number and isinstance(value, str) and _DIGITS.fullmatch(value) else value
