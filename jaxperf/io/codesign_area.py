"""The silicon of a co-design: the areas of its machines from a process node and what every level is made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hwspecs import parse_quantity
from hwspecs.errors import InputError
from jaxperf.io.codesign import Design, read_laws, word_bytes
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.area import AREA_LAWS, NM, NODES, mac_area

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
    try:
        node = parse_quantity(technology, "m")
    except InputError as error:
        raise InputError(f"--technology: {error}") from None
    if not NODES[0] <= node <= NODES[1]:
        raise InputError(
            f"--technology is {technology}; areas are known from {NODES[0] * NM:g} to {NODES[1] * NM:g} nm."
        )
    return Silicon(node, read_laws("--area", entries, levels, AREA_LAWS), *_mac_bits(bits))


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


def with_areas(designs: Sequence[Design], silicon: Silicon, path: Path, levels: Sequence[str]) -> list[Design]:
    """The machines with the areas of their levels and units; a level without a size is not on the die.

    **Arguments:** `path`: of the case, for the width of its words.
    **Raises:** `InputError` for a law of a level without a size, or a width that the file does not say.
    """
    sized = [math.isfinite(float(level.size)) for level in designs[0].architecture.levels]
    for name, known in zip(levels, sized, strict=True):
        if not known and silicon.laws.get(name, "none") != "none":
            raise InputError(f"--area: {name} has no size, so no area; leave it away or write {name}=none.")
    laws = {
        name: silicon.laws.get(name, "sram") if known else "none" for name, known in zip(levels, sized, strict=True)
    }
    bits = {name: word_bytes(path, name, "area") * BITS_PER_BYTE for name, law in laws.items() if law != "none"}
    return [
        design._replace(architecture=_with_areas(design.architecture, silicon, levels, laws, bits))
        for design in designs
    ]


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
