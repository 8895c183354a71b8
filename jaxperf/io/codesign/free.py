"""What a co-design leaves free, from texts such as `buffer.size=1024,2048`, or `buffer.size=1024:65536` for slopes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.fields import amount, count
from jaxperf.loopnest.redesign import BANDWIDTHS, MESHES

FIELDS = {"size": count, **dict.fromkeys(MESHES, count), **dict.fromkeys(BANDWIDTHS, amount)}
MOST = 128  # machines; all their mappings are tried on all of them


class Axis(NamedTuple):
    """A field of `FIELDS` of a level and its `values`; of a range the least and the most, in steps of `step`, which is
    0 where any number between will do."""

    level: str
    field: str
    values: tuple[float, ...]
    step: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.level}.{self.field}"


def read_axes(entries: Sequence[str], levels: Sequence[str]) -> list[Axis]:
    """Axes from texts such as `buffer.size=1024,2048`.

    **Raises:** `InputError` for an unknown level or field, one given twice, a value out of range or given twice, or
    more than `MOST` machines.
    """
    axes = [_axis(*piece) for piece in _pieces(entries, levels, "LEVEL.size=1024,2048")]
    machines = math.prod(len(axis.values) for axis in axes)
    if machines > MOST:
        raise InputError(f"--free: the values make {machines:,} machines; at most {MOST} are compared at once.")
    return axes


def read_ranges(entries: Sequence[str], levels: Sequence[str]) -> list[Axis]:
    """Axes from texts such as `buffer.size=1024:65536` or, in steps of 1024 words, `buffer.size=1024:65536:1024`.

    **Raises:** `InputError` as of `read_axes`, and for a range that is empty or begins at 0, or a mesh from 1, which is
    another structure than a mesh of several.
    """
    return [_range(*piece) for piece in _pieces(entries, levels, "LEVEL.size=1024:65536")]


def corners_of(ranges: Sequence[Axis]) -> list[Axis]:
    """Meshes at the first two steps of each range, all else at its least: instances are products of what is free, so
    they are whole in every step where they are in these."""
    return [
        axis._replace(values=(axis.values[0], axis.values[0] + axis.step) if axis.field in MESHES else axis.values[:1])
        for axis in ranges
    ]


def _pieces(entries: Sequence[str], levels: Sequence[str], example: str) -> list[tuple[str, str, str]]:
    """Level, field and what is said of it, of every entry."""
    if not entries:
        raise InputError(f"--free is missing; write for example --free {example}.")
    found: dict[str, tuple[str, str, str]] = {}
    for entry in entries:
        name, sign, text = (piece.strip() for piece in entry.partition("="))
        level, dot, field = name.rpartition(".")
        if not sign or not dot:
            raise InputError(f"--free: '{entry}' must read like {example}.")
        _known("--free", "level", level, levels)
        _known("--free", f"field of {level}", field, FIELDS)
        if name in found:
            raise InputError(f"--free: {name} is given twice; give it once, with all its values.")
        found[name] = level, field, text
    return list(found.values())


def _axis(level: str, field: str, text: str) -> Axis:
    where = f"--free: {level}.{field}"
    if ":" in text:
        raise InputError(f"{where} is {text}; a range goes with --method gradient, a sweep takes values such as 4,8.")
    values = tuple(FIELDS[field](value.strip(), where) for value in text.split(","))
    if len(set(values)) < len(values):
        raise InputError(f"{where} has a value twice; give each once.")
    return Axis(level, field, values)


def _range(level: str, field: str, text: str) -> Axis:
    where, pieces = f"--free: {level}.{field}", text.split(":")
    if len(pieces) not in (2, 3):
        raise InputError(f"{where} is {text}; --method gradient takes a range LOW:HIGH or LOW:HIGH:STEP.")
    low, high, *step = (FIELDS[field](piece.strip(), where) for piece in pieces)
    if not 0.0 < low < high:
        raise InputError(f"{where} is {text}; a range must begin above 0 and end above where it begins.")
    if field in MESHES and low == 1.0:
        raise InputError(f"{where} is {text}; a mesh of 1 is another structure than one of several: begin at 2.")
    if not (step or [1.0])[0] <= high - low:
        raise InputError(f"{where} is {text}; the step must not be longer than the range.")
    return Axis(level, field, (low, high), step[0] if step else float(FIELDS[field] is count))


def read_laws(option: str, entries: Sequence[str], levels: Sequence[str], laws: Collection[str]) -> dict[str, str]:
    """Laws by level from texts such as `pe_spad=regfile`. Raises `InputError` for what does not exist."""
    found: dict[str, str] = {}
    for entry in entries:
        level, sign, law = (piece.strip() for piece in entry.partition("="))
        if not sign:
            raise InputError(f"{option}: '{entry}' must read like LEVEL=sram.")
        _known(option, "level", level, levels)
        _known(option, "law", law, laws)
        if level in found:
            raise InputError(f"{option}: {level} is given twice; give it once.")
        found[level] = law
    return found


def _known(option: str, what: str, name: str, names: Any) -> None:
    if name not in names:
        hint = did_you_mean(name, names)
        raise InputError(f"{option}: '{name}' is no {what}; there are {', '.join(names)}.{hint}")
