"""Random mappings of a convolution on the Eyeriss-like machine of Timeloop's exercises.

A row has `dims`, `stride`, the `factors` of seven levels from the innermost (in the order of `dims`) and the orders of
the loops at the two outermost. The order at the inner levels is not given: the machine allows no loops there whose
order would matter.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.timeloop.batch import Point
from jaxperf.io.timeloop.fields import count, list_of, object_of
from jaxperf.io.timeloop.machine import Machine, read_machine
from jaxperf.io.timeloop.nest import Block, read_mapping
from jaxperf.loopnest.problem import build_structure
from jaxperf.models.checks import show

# Levels from the innermost: name, what it keeps, kind of its loops, column of their order.
LEVELS = (
    ("psum_spad", ("Outputs",), "t", None),
    ("weights_spad", ("Weights",), "t", None),
    ("ifmap_spad", ("Inputs",), "t", None),
    ("inter_PE_spatial", (), "y", None),
    ("inter_PE_column_spatial", (), "x", None),
    ("shared_glb", ("Inputs", "Outputs"), "t", "perm_glb_inner_to_outer"),
    ("DRAM", ("Weights", "Inputs", "Outputs"), "t", "perm_dram_inner_to_outer"),
)
STORAGE = tuple(name for name, kept, _, _ in LEVELS if kept)
DIMENSIONS = "RSPQCM"
_AXES = {
    "Weights": [[("C", "")], [("M", "")], [("R", "")], [("S", "")]],
    "Inputs": [[("C", "")], [("R", ""), ("P", "stride")], [("S", ""), ("Q", "stride")]],
    "Outputs": [[("M", "")], [("Q", "")], [("P", "")]],
}
NAMES, _OPERANDS = build_structure(DIMENSIONS, _AXES, ["Outputs"], ["stride"])


@functools.cache
def eyeriss_like() -> Machine:
    """The machine of the exercises, as shipped."""
    text = resources.files("jaxperf.loopnest").joinpath("machines/eyeriss_like.json").read_text(encoding="utf-8")
    return read_machine(json.loads(text), "eyeriss_like.json")


def parse_random(row: dict[str, Any]) -> Point:
    """One row as numbers. Raises `InputError` naming the column."""
    machine = eyeriss_like()
    bounds = object_of(row, "dims", "row")
    order = [str(name) for name in bounds]
    if sorted(order) != sorted(DIMENSIONS):
        raise InputError(f"dims has {', '.join(order)}; it must have {', '.join(DIMENSIONS)}.")
    table = list_of(row, "factors", "row")
    if len(table) != len(LEVELS) or any(not isinstance(each, list) or len(each) != len(order) for each in table):
        raise InputError(f"factors is {show(table)}; it must have {len(LEVELS)} levels of {len(order)} factors.")
    blocks = [
        Block(name, _loops(dict(zip(order, own, strict=True)), kind, row, column), kept, stores=bool(kept))
        for own, (name, kept, kind, column) in zip(table, LEVELS, strict=True)
    ]
    factors, _ = read_mapping(blocks[::-1], NAMES, "factors")
    return Point(
        bounds=[count(bounds[name], f"dims: {name}") for name in DIMENSIONS],
        coefficients=[1.0, count(row.get("stride", 1), "stride")],
        operands=_OPERANDS,
        factors=factors,
        machine=machine.units,
        levels=tuple(machine.levels[name] for name in STORAGE),
    )


def _loops(
    factors: dict[str, Any], kind: str, row: dict[str, Any], column: str | None
) -> Sequence[tuple[str, float, str]]:
    """The loops of a level, outermost first."""
    inner_first = list(DIMENSIONS) if column is None else [str(name) for name in list_of(row, column, "row")]
    if sorted(inner_first) != sorted(DIMENSIONS):
        raise InputError(f"{column} is {', '.join(inner_first)}; it must be an order of {', '.join(DIMENSIONS)}.")
    return [(name, factors[name], kind) for name in reversed(inner_first)]
