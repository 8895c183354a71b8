"""A device with some facts of another one changed: its specification, and the file that states the changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hwspecs.parts import part_paths
from hwspecs.quantity import format_quantity
from hwspecs.schema import DeviceSpec
from hwspecs.values import Source, Value

DIGITS = 12  # of a quantity: what is read back is what was computed
Changes = Mapping[str, float | Mapping[str, float]]


def variant(
    base: DeviceSpec, name: str, changes: Changes, notes: Mapping[str, str], key: str, source: Source
) -> DeviceSpec:
    """The device of that name which differs from `base` in `changes`.

    **Arguments:** `changes`: field -> number in SI units, or part -> number of `peak_flops` and `node`; `notes`: the
    formula of each field, as for every derived value; `key`, `source`: where they are from.
    """
    changed: dict[str, Any] = {}
    for field, number in changes.items():
        old = getattr(base, field)
        if not isinstance(number, Mapping):
            changed[field] = _value(old, number, key, notes[field])
            continue
        parts = {part: _value(part_of(old, part), each, key, notes[field]) for part, each in number.items()}
        changed[field] = parts if isinstance(old, Mapping) else old.model_copy(update=parts)
    forgotten = {"usable_memory": None} if "memory_capacity" in changes else {}
    shipped = base.name if base.name in part_paths("devices") else base.base
    facts = {
        "name": name,
        "display_name": name,
        "aliases": (),
        "base": shipped,
        "sources": base.sources | {key: source},
    }
    return base.model_copy(update={**facts, **forgotten, **changed})


def part_of(field: Any, part: str) -> Value:
    """The value of a format of `peak_flops`, or of a fact of `node`."""
    return field[part] if isinstance(field, Mapping) else getattr(field, part)


def _value(old: Value, number: float, key: str, note: str) -> Value:
    return type(old)(quantity=format_quantity(number, old.unit, DIGITS), source=(key,), confidence="derived", note=note)


def variant_toml(base: DeviceSpec, made: DeviceSpec, changes: Changes) -> str:
    """The text of the file of a `variant`, which states what differs from `base` and reads back to the same device."""
    lines = [
        f"name = {_text(made.name)}",
        f"base = {_text(base.name)}",
        f"display_name = {_text(made.display_name)}",
        "",
    ]
    tables = {field: number for field, number in changes.items() if isinstance(number, Mapping)}
    lines += [f"{field} = {_inline(getattr(made, field))}" for field in changes if field not in tables]
    for field, number in tables.items():
        parts = (f"{part} = {_inline(part_of(getattr(made, field), part))}" for part in number)
        lines += ["", f"[{field}]", *parts]
    for key in made.sources.keys() - base.sources.keys():
        source = made.sources[key].model_dump(exclude_none=True)
        lines += ["", f"[sources.{key}]", *(f"{field} = {_text(value)}" for field, value in source.items())]
    return "\n".join(lines) + "\n"


def _inline(value: Value) -> str:
    facts = {"quantity": value.quantity, "source": value.source[0], "confidence": value.confidence, "note": value.note}
    return "{ " + ", ".join(f"{name} = {_text(each)}" for name, each in facts.items()) + " }"


def _text(value: object) -> str:
    """A string or a number of TOML, whose basic strings are written as those of JSON."""
    return json.dumps(value, ensure_ascii=False)
