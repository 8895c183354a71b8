"""Timeloop runs of Gemmini mappings as DOSA's data set holds them: columns `prob.*`, `arch.*` and `mapping.mapping`.

A mapping reads `L3[WIO] C16 Q7 - L2[WI] K16X - L1[O] K2 C2X - L0[W] N1`: levels from DRAM to the registers, the
operands each keeps, its loops from the outermost, X for those across the mesh. Hong et al., "DOSA", MICRO 2023.
"""

from __future__ import annotations

import math
import re
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.timeloop.batch import Point
from jaxperf.io.timeloop.fields import count
from jaxperf.io.timeloop.nest import Block, Factors, read_mapping
from jaxperf.loopnest import energy
from jaxperf.loopnest.problem import build_structure
from jaxperf.models.checks import show

LEVELS = ("registers", "accumulator", "scratchpad", "DRAM")  # L0 to L3
UNIT = "mac"
DIMENSIONS = "RSPQCKN"
COEFFICIENTS = ("Wstride", "Hstride", "Wdilation", "Hdilation")
DRAM_BANDWIDTH = 8.0  # words of a byte per cycle
PORTS = 2.0  # one to read, one to write
WORD_BYTES = {"accumulator": 4.0, "scratchpad": 1.0}
_LEVEL = re.compile(r"L(\d)\[([WIO]*)\]((?: +[A-Z]\d+[XY]?)*)")
_LOOP = re.compile(r"([A-Z])(\d+)([XY]?)")

_AXES = {
    "W": [[("C", "")], [("K", "")], [("R", "")], [("S", "")]],
    "I": [
        [("N", "")],
        [("C", "")],
        [("R", "Wdilation"), ("P", "Wstride")],
        [("S", "Hdilation"), ("Q", "Hstride")],
    ],
    "O": [[("N", "")], [("K", "")], [("P", "")], [("Q", "")]],
}
NAMES, _OPERANDS = build_structure(DIMENSIONS, _AXES, ["O"], COEFFICIENTS)


def parse_nest(row: dict[str, Any]) -> tuple[list[float], list[float], Factors]:
    """Bounds, coefficients and mapping of a row. Raises `InputError` naming the column."""
    bounds = [_cell(row, f"prob.{name}") for name in DIMENSIONS]
    coefficients = [1.0, *(_cell(row, f"prob.{name}", 1.0) for name in COEFFICIENTS)]
    factors, levels = read_mapping(_blocks(row.get("mapping.mapping")), NAMES, "mapping.mapping")
    if levels != LEVELS:
        raise InputError(f"mapping.mapping is {show(row['mapping.mapping'])}; it must have the levels L3 to L0.")
    return bounds, coefficients, factors


def parse_gemmini(row: dict[str, Any]) -> Point:
    """One row as numbers. Raises `InputError` naming the column."""
    bounds, coefficients, factors = parse_nest(row)
    machine = {"macs": _cell(row, "arch.pe") * _cell(row, "arch.mac", 1.0), "mac_energy": energy.DOSA_MAC_ENERGY}
    return Point(bounds, coefficients, _OPERANDS, factors, machine, _levels(row))


def _levels(row: dict[str, Any]) -> tuple[dict[str, float], ...]:
    """The levels; where a table leaves them open, every column of the mesh has an accumulator, and memories a word for
    each of `PORTS` a cycle and column, as all 20,000 runs of DOSA's data set do."""
    accumulator, scratchpad = _cell(row, "arch.mem1_entries"), _cell(row, "arch.mem2_entries")
    mesh = _cell(row, "arch.meshX")
    return (
        _level(_cell(row, "arch.pe"), energy.DOSA_REGISTER_ENERGY),
        _level(
            _cell(row, "arch.mem1_instances", mesh),
            energy.dosa_accumulator_energy(accumulator * WORD_BYTES["accumulator"]),
            size=accumulator,
            bandwidth=_cell(row, "arch.mem1_shared_bandwidth", PORTS),
            fan=mesh,
        ),
        _level(
            _cell(row, "arch.mem2_instances", 1.0),
            energy.dosa_scratchpad_energy(scratchpad * WORD_BYTES["scratchpad"]),
            size=scratchpad,
            bandwidth=_cell(row, "arch.mem2_shared_bandwidth", PORTS * mesh),
            fan=mesh,
        ),
        _level(
            1.0,
            energy.DOSA_DRAM_ENERGY * energy.DOSA_DRAM_BLOCK,
            bandwidth=DRAM_BANDWIDTH,
            block=energy.DOSA_DRAM_BLOCK,
        ),
    )


def _level(
    instances: float,
    access: float,
    size: float = math.inf,
    bandwidth: float = math.inf,
    fan: float = math.inf,
    block: float = 1.0,
) -> dict[str, float]:
    """Fields of a `Level` whose accesses all cost the same."""
    every = dict.fromkeys(("read_energy", "write_energy", "update_energy"), access)
    return {"instances": instances, "size": size, "shared_bandwidth": bandwidth, "fan_x": fan, "block": block, **every}


def _blocks(text: Any) -> list[Block]:
    if not isinstance(text, str):
        raise InputError(f"mapping.mapping is {show(text)}; it must be a text such as L3[WIO] C16 - L2[WI] K16X.")
    blocks = []
    for part in text.split(" - "):
        match = _LEVEL.fullmatch(part.strip())
        if match is None or int(match[1]) >= len(LEVELS):
            raise InputError(f"mapping.mapping: '{part.strip()}' is no level such as L2[WI] K16X, from L3 to L0.")
        loops = [(name, float(bound), kind.lower() or "t") for name, bound, kind in _LOOP.findall(match[3])]
        blocks.append(Block(LEVELS[int(match[1])], loops, match[2]))
    return blocks


def _cell(row: dict[str, Any], column: str, default: float | None = None) -> float:
    value = row.get(column)
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    if missing and default is not None:
        return default
    return count(value, column)
