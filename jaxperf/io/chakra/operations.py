"""What the nodes of a Chakra trace mean: a `Trace` from messages, and messages from a `Trace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.chakra.messages import NodeMessage
from jaxperf.io.json_text import parse_json
from jaxperf.models.checks import show
from jaxperf.training.replay.trace import COLLECTIVES, COMMUNICATION, WORLD, Operation, Trace

_MICRO = 1e-6
_KINDS = {
    "COMP_NODE": "compute",
    "MEM_LOAD_NODE": "load",
    "MEM_STORE_NODE": "store",
    "COMM_SEND_NODE": "send",
    "COMM_RECV_NODE": "receive",
    "COMM_COLL_NODE": "collective",
    "METADATA_NODE": "none",
    "INVALID_NODE": "none",
}


def trace_of(messages: Sequence[NodeMessage], rank: int, source: str) -> Trace:
    """The trace that the nodes of a file mean. Raises `InputError` naming the node."""
    groups: dict[str, tuple[int, ...]] = {}
    descriptions: dict[str, str] = {}
    for message in messages:
        if message.type == "METADATA_NODE" and "pg_name" in message.inputs:
            for group in _process_groups(message, source):
                name = group_name(group["pg_name"])
                groups[name] = tuple(group.get("ranks") or ())
                descriptions[name] = str(group.get("pg_desc", ""))
    groups = {name: ranks for name, ranks in groups.items() if ranks}  # a group without ranks is of all
    operations = tuple(_operation(message, source) for message in messages)
    return Trace(rank, operations, groups, descriptions, source)


def _process_groups(message: NodeMessage, source: str) -> list[dict[str, Any]]:
    """The list of process groups that PyTorch writes, as JSON in a text in a list, into a node of its trace."""
    text = message.inputs
    where = f"{source}: node {message.id}: the list of process groups"
    found = parse_json(text[text.find("[{") : text.rfind("}]") + 2].replace('\\"', '"'), where)
    if not isinstance(found, list) or not all(isinstance(group, Mapping) for group in found):
        raise InputError(f"{where} holds {show(found)}; it must be a list of objects.")
    for group in found:
        check_ranks(group.get("ranks") or [0], f"{source}: process group '{group.get('pg_name')}'")
    return [group for group in found if "pg_name" in group]


def check_ranks(ranks: Any, where: str) -> None:
    if not isinstance(ranks, list) or not ranks or any(type(each) is not int or each < 0 for each in ranks):
        raise InputError(f"{where} has the ranks {show(ranks)}; give a list of integers from 0.")
    if len(set(ranks)) != len(ranks):
        raise InputError(f"{where} names a rank twice.")


def group_name(name: Any) -> str:
    """ASTRA-sim and PyTorch call the group of all ranks "0" or leave its name out."""
    return WORLD if str(name) in ("", "0") else str(name)


def _operation(message: NodeMessage, source: str) -> Operation:
    where = f"{source}: node {message.id}" + (f" '{message.name}'" if message.name else "")
    if message.type not in _KINDS:
        raise InputError(f"{where} is a {message.type}; storage, batches and checkpoints are not replayed.")
    attributes = message.attr
    kind = _KINDS[message.type]
    kind = "host" if kind == "compute" and attributes.get("is_cpu_op") in (True, 1) else kind
    fields: dict[str, Any] = {
        "id": message.id,
        "name": message.name,
        "kind": kind,
        "after": tuple(dict.fromkeys((*message.ctrl_deps, *message.data_deps))),
        "duration": message.duration_micros * _MICRO,
    }
    if kind in COMMUNICATION:
        fields |= _collective(attributes, where) if kind == "collective" else _message(attributes, kind, where)
        if "comm_size" not in attributes and fields.get("collective") != "barrier":
            nearest = did_you_mean("comm_size", list(attributes))
            raise InputError(f"{where} has no comm_size, the bytes of the message.{nearest}")
        fields |= {"size": _number(attributes, "comm_size", where), "group": group_name(attributes.get("pg_name", ""))}
    elif kind != "none":
        fields |= {"flops": _number(attributes, "num_ops", where)}
        fields |= {"bytes_moved": _number(attributes, "tensor_size", where)}
    return Operation(**fields)


def _message(attributes: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    """Fields of a send or receive: the other rank, and the tag."""
    peer = "comm_dst" if kind == "send" else "comm_src"
    if peer not in attributes:
        raise InputError(f"{where} has no {peer}, the other rank of the message.")
    return {"peer": int(_number(attributes, peer, where)), "tag": int(_number(attributes, "comm_tag", where))}


def _collective(attributes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Fields of a collective: which, and along which dimensions."""
    what = attributes.get("comm_type")
    if type(what) is int and 0 <= what < len(COLLECTIVES):
        what = COLLECTIVES[what]
    if not isinstance(what, str) or what.lower() not in COLLECTIVES:
        raise InputError(f"{where}: comm_type is {show(what)}; it must be 0 to {len(COLLECTIVES) - 1} or a name.")
    involved = attributes.get("involved_dim", [])
    if not isinstance(involved, list):
        raise InputError(f"{where}: involved_dim is {show(involved)}; it must be a list of truth values.")
    return {"collective": what.lower(), "dimensions": tuple(bool(each) for each in involved)}


def _number(attributes: Mapping[str, Any], name: str, where: str) -> float:
    value = attributes.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        raise InputError(f"{where}: {name} is {show(value)}; it must be a number from 0.")
    return float(value)


def message_of(operation: Operation) -> NodeMessage:
    """The node that `trace_of` reads as this operation, its duration in whole microseconds."""
    types = {kind: name for name, kind in _KINDS.items()} | {"host": "COMP_NODE", "none": "METADATA_NODE"}
    attributes: dict[str, Any] = {"is_cpu_op": operation.kind == "host"}
    if operation.kind in COMMUNICATION:
        attributes |= {"comm_size": int(operation.size), "pg_name": operation.group}
    elif operation.kind != "none":
        attributes |= {"num_ops": int(operation.flops), "tensor_size": int(operation.bytes_moved)}
    if operation.kind == "collective":
        attributes["comm_type"] = COLLECTIVES.index(operation.collective)
        attributes |= {"involved_dim": list(operation.dimensions)} if operation.dimensions else {}
    elif operation.kind in COMMUNICATION:
        peer = "comm_dst" if operation.kind == "send" else "comm_src"
        attributes |= {peer: operation.peer, "comm_tag": operation.tag}
    return NodeMessage(
        id=operation.id,
        name=operation.name,
        type=types[operation.kind],
        data_deps=list(operation.after),
        duration_micros=round(operation.duration / _MICRO),
        attr=attributes,
    )
