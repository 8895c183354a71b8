"""The wire format of Protocol Buffers, as much of it as an execution trace needs, with the byte offset of every fault.

A message is a row of fields; each has a key (number and wire type) and a value. Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hwspecs.errors import InputError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 are groups, which no trace uses
_LONGEST_VARINT = 10  # bytes: 64 bits, 7 in each
_WIDTHS = {FIXED64: 8, FIXED32: 4}


class Field(NamedTuple):
    """One field of a message: its number, wire type, value (an `int` of a varint, else `bytes`), and where in the file
    the value starts [byte]."""

    number: int
    wire: int
    value: Any
    offset: int


def read_messages(body: bytes, source: str) -> Iterator[tuple[int, bytes]]:
    """(offset, body) of each message of a file in which every message follows its length.

    **Raises:** `InputError` naming file and byte for a length that cannot be read or reaches over the end.
    """
    at = 0
    while at < len(body):
        start = at
        length, at = _varint(body, at, 0, source)
        if at + length > len(body):
            left = len(body) - at
            raise InputError(
                f"{source}, byte {start}: a message of {length} bytes starts here and only {left} are left; "
                "the file is truncated or no Chakra trace."
            )
        yield at, body[at : at + length]
        at += length


def read_fields(message: bytes, offset: int, source: str) -> Iterator[Field]:
    """The fields of a message that starts at byte `offset` of the file.

    **Raises:** `InputError` naming file and byte for what is no field.
    """
    at = 0
    while at < len(message):
        start = at
        key, at = _varint(message, at, offset, source)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, end = _varint(message, at, offset, source)
            yield Field(number, wire, value, offset + at)
        else:
            begin, end = _extent(message, at, wire, offset, source)
            if end > len(message) or number == 0:
                raise InputError(f"{source}, byte {offset + start}: field {number} is damaged or cut off.")
            yield Field(number, wire, message[begin:end], offset + begin)
        at = end


def _extent(message: bytes, at: int, wire: int, offset: int, source: str) -> tuple[int, int]:
    """Where the value of a field that is no varint begins and ends."""
    if wire == BYTES:
        length, begin = _varint(message, at, offset, source)
        return begin, begin + length
    if wire not in _WIDTHS:
        raise InputError(f"{source}, byte {offset + at}: wire type {wire} is none of a Chakra trace's.")
    return at, at + _WIDTHS[wire]


def _varint(data: bytes, at: int, offset: int, source: str) -> tuple[int, int]:
    """(the unsigned integer at `at`, where it ends)."""
    value = 0
    for index, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & (2**64 - 1), at + index + 1
    raise InputError(f"{source}, byte {offset + at}: an integer does not end; the file is damaged or no Chakra trace.")


def integers(data: bytes, offset: int, source: str) -> list[int]:
    """A packed list of varints."""
    found, at = [], 0
    while at < len(data):
        value, at = _varint(data, at, offset, source)
        found.append(value)
    return found


def signed(value: int) -> int:
    """An int32 or int64 from its 64-bit two's complement."""
    return value - 2**64 if value >= 2**63 else value


def unzigzag(value: int) -> int:
    """A sint32 or sint64: 0, 1, 2, 3 mean 0, -1, 1, -2."""
    return (value >> 1) ^ -(value & 1)


def unpack(layout: str, data: bytes) -> int | float:
    """One little-endian fixed-width number, `layout` as `struct` has it."""
    return struct.unpack(f"<{layout}", data)[0]


def write_varint(value: int) -> bytes:
    """An unsigned integer, or a negative one as its 64-bit two's complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def write_packed(values: Iterable[int]) -> bytes:
    """Varints one after the other."""
    return b"".join(map(write_varint, values))


def write_field(number: int, value: int | str | bytes, of_oneof: bool = False) -> bytes:
    """A field with a varint, or with bytes after their length; a default is written only as part of a oneof."""
    if not value and not of_oneof:
        return b""
    if isinstance(value, int):
        return write_packed((number << 3 | VARINT, value))
    data = value.encode() if isinstance(value, str) else value
    return write_packed((number << 3 | BYTES, len(data))) + data


def write_message(body: bytes) -> bytes:
    """A message after its length."""
    return write_varint(len(body)) + body
