"""One call of a primitive, and what it is to a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxperf.io.program import Kind, Value
from jaxperf.models.graph import Op


@dataclass(frozen=True)
class Call:
    """A primitive's name and parameters with the values it reads (literals included) and writes."""

    operation: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Description:
    """The fields of a `Step` that the primitive decides; see there."""

    kind: Kind
    flops: float = 0.0
    ops: tuple[Op, ...] = ()
    read: float | None = None
    written: float | None = None
    in_place: bool = False
    row_wise: tuple[str, float] | None = None


def arithmetic(call: Call, each: float) -> float:
    """`each` operations where floating-point numbers are read or written, none on integers and masks [FLOP]."""
    return each if any(value.is_floating for value in (*call.inputs, *call.outputs)) else 0.0
