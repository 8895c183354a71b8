"""A case of a loop nest with the names people call its parts, and what is said about its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import LevelCost, NestCost, nest_cost
from jaxperf.loopnest.feasible import Reason, held, sentences
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.reuse import RULES

COUNTS = ("reads", "fills", "updates", "reductions")


@dataclass(frozen=True)
class Case:
    """`levels`: names from the innermost; `unit`: of the multiply-accumulate units; `rules`: the version of Timeloop
    that wrote it, a key of `RULES`; `notes`: what of the file was not used, as sentences."""

    problem: Problem
    architecture: Architecture
    mapping: Mapping
    names: Names
    levels: tuple[str, ...]
    unit: str
    rules: str
    notes: tuple[str, ...] = ()


def evaluate(case: Case, rules: str | None = None) -> dict[str, Any]:
    """The answer of one case as plain data: energies in J, counts of words of one instance.

    **Arguments:** `rules`: another version of Timeloop to follow, a key of `RULES`.
    """
    version = rules or case.rules
    cost = nest_cost(case.problem, case.architecture, case.mapping, RULES[version])
    return {**cost_record(cost, case.names, case.levels, case.unit), **_explained(case, cost), "timeloop": version}


def cost_record(cost: NestCost, names: Names, levels: Sequence[str], unit: str) -> dict[str, Any]:
    """A cost of scalar leaves by name; innermost level first."""
    return {
        "cycles": float(cost.cycles),
        "energy_j": float(cost.energy),
        "utilization": float(cost.utilization),
        "edp_j_cycle": float(cost.edp),
        "area_m2": float(cost.area),
        "limiter": [unit, *levels][int(cost.limiter)],
        "macs": float(cost.macs),
        "levels": {
            unit: {"energy_j": float(cost.mac_energy), "instances": float(cost.units), "tensors": {}},
            **{name: _level(level, names) for name, level in zip(levels, cost.levels, strict=True)},
        },
    }


def _level(level: LevelCost, names: Names) -> dict[str, Any]:
    kept = zip(names.operands, level.accesses, level.operand_energy, strict=True)
    return {
        "energy_j": float(level.energy),
        "instances": float(level.instances),
        "cycles": float(level.cycles),
        "tensors": {
            name: {
                "tile": float(each.tile),
                **{count: float(getattr(each, count)) for count in COUNTS},
                "multicast": float(each.multicast),
                "energy_j": float(energy),
            }
            for name, each, energy in kept
            if each is not None
        },
    }


def _explained(case: Case, cost: NestCost) -> dict[str, Any]:
    """Whether it can run, why not, where, and what of the file was not used."""
    bits = int(cost.reason)
    reasons = sentences(bits)
    if bits & Reason.CAPACITY:
        reasons += _over_capacity(case, cost)
    if bits & Reason.FACTORS:
        reasons += _wrong_factors(case)
    return {"feasible": not bits, "reasons": reasons, "notes": list(case.notes)}


def _over_capacity(case: Case, cost: NestCost) -> list[str]:
    found = []
    for name, level, answer in zip(case.levels, case.architecture.levels, cost.levels, strict=True):
        needed, size = float(held(answer.accesses) * level.buffering), float(level.size)
        if needed > size:
            found.append(f"{name}: {needed:,.0f} words are kept where {size:,.0f} fit")
    return found


def _wrong_factors(case: Case) -> list[str]:
    mapping = case.mapping
    tiles = (mapping.temporal * mapping.spatial_x * mapping.spatial_y).prod(axis=0)
    return [
        f"{name}: the factors multiply to {float(tile):g}, the bound is {float(bound):g}"
        for name, tile, bound in zip(case.names.dimensions, tiles, case.problem.bounds, strict=True)
        if float(tile) != float(bound)
    ]
