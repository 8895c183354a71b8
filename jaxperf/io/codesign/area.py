"""The silicon of a co-design: the areas of its machines from a process node and what every level is made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hwspecs import parse_quantity
from hwspecs.errors import InputError
from jaxperf.io.codesign.free import read_laws
from jaxperf.io.codesign.machines import Design, word_bytes
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.area import AREA_LAWS, NM, NODES, mac_area
from jaxperf.loopnest.redesign import Knob

BITS_PER_BYTE = 8.0
MOST_BITS = 1024.0


class Silicon(NamedTuple):
    """`node` of the process [m]; `laws`: of `AREA_LAWS` by level; bits of the operands of a unit's `multiplier` and of
    its `adder` [1]."""

    node: float
    laws: dict[str, str]
    multiplier: float
    adder: float


def read_silicon(
    technology: str | None, entries: Sequence[str], bits: str | None, levels: Sequence[str]
) -> Silicon | None:
    """From texts such as `16nm`, `pe_spad=registers` and `8,16`; None where no area is asked for.

    **Raises:** `InputError` for what does not exist or is missing.
    """
    if technology is None:
        if entries or bits is not None:
            raise InputError("--area and --mac-bits need --technology, such as --technology 16nm.")
        return None
    node = read_node("--technology", technology, NODES, "areas")
    return Silicon(node, read_laws("--area", entries, levels, AREA_LAWS), *_mac_bits(bits))


def read_node(option: str, text: str, known: tuple[float, float], what: str) -> float:
    """A process from a text such as `16nm` [m]; raises `InputError` outside of those that `what` is `known` for [m]."""
    try:
        node = parse_quantity(text, "m")
    except InputError as error:
        raise InputError(f"{option}: {error}") from None
    if not known[0] <= node <= known[1]:
        raise InputError(f"{option} is {text}; {what} are known from {known[0] * NM:g} to {known[1] * NM:g} nm.")
    return node


def _mac_bits(text: str | None) -> tuple[float, float]:
    try:
        multiplier, adder = (float(piece) for piece in (text or "").split(","))
    except ValueError:
        raise InputError(
            "--mac-bits must be the bits of a unit's multiplier and of its adder, such as --mac-bits 8,16."
        ) from None
    if not all(1.0 <= bits <= MOST_BITS and bits.is_integer() for bits in (multiplier, adder)):
        raise InputError(f"--mac-bits is {text}; both must be integers from 1 to {MOST_BITS:g}.")
    return multiplier, adder


def with_areas(designs: Sequence[Design], silicon: Silicon | None, path: Path, levels: Sequence[str]) -> list[Design]:
    """The machines with the areas of their levels and units; a level without a size is not on the die. Without
    `silicon` they stay as they are.

    **Arguments:** `path`: of the case, for the width of its words.
    **Raises:** `InputError` for a law of a level without a size, or a width that the file does not say.
    """
    if silicon is None:
        return [*designs]
    laws = level_laws(designs[0].architecture, silicon, levels)
    bits = {name: _word_bits(path, name) for name, law in laws.items() if law != "none"}
    return [
        design._replace(architecture=_with_areas(design.architecture, silicon, levels, laws, bits))
        for design in designs
    ]


def knobs_with_areas(
    knobs: Sequence[Knob], silicon: Silicon | None, path: Path, levels: Sequence[str]
) -> tuple[Knob, ...]:
    """Free sizes with the area of a word, which every law takes as often as there are words."""
    if silicon is None:
        return tuple(knobs)
    return tuple(
        dataclasses.replace(knob, area=_word_area(silicon, path, levels[knob.level])) if knob.field == "size" else knob
        for knob in knobs
    )


def _word_area(silicon: Silicon, path: Path, level: str) -> float:
    law = silicon.laws.get(level, "sram")
    return 0.0 if law == "none" else AREA_LAWS[law](_word_bits(path, level), silicon.node)


def _word_bits(path: Path, level: str) -> float:
    return word_bytes(path, level, "area") * BITS_PER_BYTE


def level_laws(machine: Architecture, silicon: Silicon, levels: Sequence[str]) -> dict[str, str]:
    """Of every level; raises `InputError` for one of a level without a size."""
    sized = [math.isfinite(float(level.size)) for level in machine.levels]
    for name, known in zip(levels, sized, strict=True):
        if not known and silicon.laws.get(name, "none") != "none":
            raise InputError(f"--area: {name} has no size, so no area; leave it away or write {name}=none.")
    return {
        name: silicon.laws.get(name, "sram") if known else "none" for name, known in zip(levels, sized, strict=True)
    }


def _with_areas(
    machine: Architecture, silicon: Silicon, names: Sequence[str], laws: dict[str, str], bits: dict[str, float]
) -> Architecture:
    """`laws` and `bits` of a word [1] by level."""
    found = [
        dataclasses.replace(level, area=AREA_LAWS[laws[name]](float(level.size) * bits.get(name, 0.0), silicon.node))
        for name, level in zip(names, machine.levels, strict=True)
    ]
    unit = mac_area(silicon.multiplier, silicon.adder, silicon.node)
    return dataclasses.replace(machine, levels=tuple(found), mac_area=unit)
