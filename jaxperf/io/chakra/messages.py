"""The messages of a Chakra execution trace: GlobalMetadata, then one Node after the other.

Field numbers are those of `schema/protobuf/et_def.proto` of MLCommons Chakra (Sridharan et al., arXiv:2305.14516).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.chakra.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Field,
    integers,
    read_fields,
    read_messages,
    signed,
    unpack,
    unzigzag,
    write_field,
    write_message,
    write_packed,
)

NODE_TYPES: Sequence[str] = (
    "INVALID_NODE METADATA_NODE MEM_LOAD_NODE MEM_STORE_NODE COMP_NODE COMM_SEND_NODE COMM_RECV_NODE COMM_COLL_NODE "
    "STORAGE_NODE BATCH_NODE CHECKPOINT_NODE"
).split()
VERSION = "0.0.4"  # of the schema that is written

# Kind of an attribute's value -> (wire type, how it is read); single values have odd field numbers from 3, lists the
# even ones that follow.
_KINDS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "double": (FIXED64, lambda data: unpack("d", data)),
    "float": (FIXED32, lambda data: unpack("f", data)),
    **dict.fromkeys(("int32", "int64"), (VARINT, signed)),
    **dict.fromkeys(("uint32", "uint64"), (VARINT, int)),
    **dict.fromkeys(("sint32", "sint64"), (VARINT, unzigzag)),
    "fixed32": (FIXED32, lambda data: unpack("I", data)),
    "fixed64": (FIXED64, lambda data: unpack("Q", data)),
    "sfixed32": (FIXED32, lambda data: unpack("i", data)),
    "sfixed64": (FIXED64, lambda data: unpack("q", data)),
    "bool": (VARINT, bool),
    "string": (BYTES, lambda data: data.decode()),
    "bytes": (BYTES, bytes),
}
_FIRST = 3
_NUMBERS = {kind: _FIRST + 2 * index for index, kind in enumerate(_KINDS)}
_SINGLE = {number: reader for (kind, reader), number in zip(_KINDS.items(), _NUMBERS.values(), strict=True)}


@dataclass
class NodeMessage:
    """A Node as the file holds it; `inputs` is the text of what it reads; times in whole microseconds."""

    id: int = 0
    name: str = ""
    type: str = NODE_TYPES[0]
    ctrl_deps: list[int] = field(default_factory=list)
    data_deps: list[int] = field(default_factory=list)
    start_time_micros: int = 0
    duration_micros: int = 0
    inputs: str = ""
    attr: dict[str, Any] = field(default_factory=dict)


def decode(body: bytes, source: str) -> list[NodeMessage]:
    """The nodes of a binary trace.

    **Raises:** `InputError` naming file and byte, and the node where it is known, for anything that is no trace.
    """
    nodes: list[NodeMessage] = []
    for index, (offset, message) in enumerate(read_messages(body, source)):
        where = source if index == 0 else f"{source}, node {index}"
        fields = list(read_fields(message, offset, where))
        if index == 0:
            if any(each.wire != BYTES or each.number > 2 for each in fields):
                raise InputError(f"{source} does not start with GlobalMetadata; it is no Chakra trace.")
            continue
        nodes.append(_node(fields, where))
    return nodes


def _node(fields: Iterable[Field], where: str) -> NodeMessage:
    node = NodeMessage()
    for each in fields:
        if each.number in _NODE_FIELDS:
            wires, put = _NODE_FIELDS[each.number]
            if each.wire not in wires:
                raise InputError(f"{where}, byte {each.offset}: field {each.number} has the wire type {each.wire}.")
            put(node, each, where)
    return node


def _text(each: Field, where: str) -> str:
    try:
        return each.value.decode()
    except UnicodeDecodeError:
        raise InputError(f"{where}, byte {each.offset}: field {each.number} is no text.") from None


def _type(each: Field, where: str) -> str:
    if not isinstance(each.value, int) or each.value >= len(NODE_TYPES):
        raise InputError(f"{where}, byte {each.offset}: node type {each.value} is unknown; 0 to {len(NODE_TYPES) - 1}.")
    return NODE_TYPES[each.value]


def _ids(each: Field, where: str) -> list[int]:
    return [each.value] if isinstance(each.value, int) else integers(each.value, each.offset, where)


def _inputs(each: Field, where: str) -> str:
    """`values` of an IOInfo."""
    inner = read_fields(each.value, each.offset, where)
    return next((_text(part, where) for part in inner if part.number == 1 and part.wire == BYTES), "")


def _attribute(each: Field, where: str) -> dict[str, Any]:
    """Name and value of an AttributeProto."""
    name, value = "", None
    for part in read_fields(each.value, each.offset, where):
        if part.number == 1 and part.wire == BYTES:
            name = _text(part, where)
        elif part.number in _SINGLE:
            value = _single(part, *_SINGLE[part.number], where)
        elif part.number - 1 in _SINGLE and part.wire == BYTES:
            value = _list(part, *_SINGLE[part.number - 1], where)
    return {name: value}


def _single(part: Field, wire: int, read: Callable[[Any], Any], where: str) -> Any:
    if part.wire != wire:
        raise InputError(
            f"{where}, byte {part.offset}: an attribute's value has the wire type {part.wire}, not {wire}."
        )
    try:
        return read(part.value)
    except UnicodeDecodeError:
        raise InputError(f"{where}, byte {part.offset}: an attribute's text is damaged.") from None


def _list(part: Field, wire: int, read: Callable[[Any], Any], where: str) -> list[Any]:
    """A repeated value: packed into one field where it has a fixed width or is a varint, else one field each."""
    found: list[Any] = []
    for each in read_fields(part.value, part.offset, where):
        if isinstance(each.value, int) or wire == BYTES or each.wire != BYTES:
            found.append(_single(each, wire, read, where))
        elif wire == VARINT:
            found += [read(value) for value in integers(each.value, each.offset, where)]
        else:
            width = 8 if wire == FIXED64 else 4
            pieces = [each.value[at : at + width] for at in range(0, len(each.value), width)]
            if pieces and len(pieces[-1]) != width:
                raise InputError(f"{where}, byte {each.offset}: a list of numbers is cut off.")
            found += [read(piece) for piece in pieces]
    return found


# Field of a Node -> (its wire types, what it does to the message).
_NODE_FIELDS: Mapping[int, tuple[tuple[int, ...], Callable[[NodeMessage, Field, str], None]]] = {
    1: ((VARINT,), lambda node, each, where: setattr(node, "id", each.value)),
    2: ((BYTES,), lambda node, each, where: setattr(node, "name", _text(each, where))),
    3: ((VARINT,), lambda node, each, where: setattr(node, "type", _type(each, where))),
    4: ((VARINT, BYTES), lambda node, each, where: node.ctrl_deps.extend(_ids(each, where))),
    5: ((VARINT, BYTES), lambda node, each, where: node.data_deps.extend(_ids(each, where))),
    6: ((VARINT,), lambda node, each, where: setattr(node, "start_time_micros", each.value)),
    7: ((VARINT,), lambda node, each, where: setattr(node, "duration_micros", each.value)),
    8: ((BYTES,), lambda node, each, where: setattr(node, "inputs", _inputs(each, where))),
    10: ((BYTES,), lambda node, each, where: node.attr.update(_attribute(each, where))),
}


def encode(nodes: Iterable[NodeMessage]) -> bytes:
    """A binary trace of these nodes; attributes may be truth values, integers, texts and lists of truth values."""
    return b"".join((write_message(write_field(1, VERSION)), *(write_message(_encoded(node)) for node in nodes)))


def _encoded(node: NodeMessage) -> bytes:
    return b"".join(
        (
            write_field(1, node.id),
            write_field(2, node.name),
            write_field(3, NODE_TYPES.index(node.type)),
            *(write_field(number, write_packed(ids)) for number, ids in ((4, node.ctrl_deps), (5, node.data_deps))),
            write_field(6, node.start_time_micros),
            write_field(7, node.duration_micros),
            write_field(8, write_field(1, node.inputs)),
            *(write_field(10, _written(name, value)) for name, value in node.attr.items()),
        )
    )


def _written(name: str, value: Any) -> bytes:
    """An AttributeProto: its name and the one value that its oneof holds."""
    if isinstance(value, list):
        number, data = _NUMBERS["bool"] + 1, write_field(1, write_packed(map(int, value)))
    elif isinstance(value, str):
        number, data = _NUMBERS["string"], value
    else:
        number, data = _NUMBERS["bool" if isinstance(value, bool) else "int64"], int(value)
    return write_field(1, name) + write_field(number, data, of_oneof=True)
