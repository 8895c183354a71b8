"""A case of a loop nest with the names people call its parts, and what is said about its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import LevelCost, NestCost, nest_cost
from jaxperf.loopnest.feasible import Reason, children_of, held, needed, sentences
from jaxperf.loopnest.mapping import Mapping, unroll
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.reuse import RULES
from jaxperf.loopnest.sparse.compute import Split
from jaxperf.loopnest.sparse.counts import SparseAccesses
from jaxperf.loopnest.sparse.evaluate import Reason as SparseReason
from jaxperf.loopnest.sparse.evaluate import SparseCost, sparse_nest_cost, sparse_sentences
from jaxperf.loopnest.sparse.fibers import fibers_of
from jaxperf.loopnest.sparse.sparsity import Sparsity

COUNTS = ("reads", "fills", "updates", "reductions")


@dataclass(frozen=True)
class Case:
    """`levels`: names from the innermost; `unit`: of the multiply-accumulate units; `rules`: the version of Timeloop
    that wrote it, a key of `RULES`; `notes`: what of the file was not used, or not in it, as sentences; `sparsity`:
    None where no zero is made use of."""

    problem: Problem
    architecture: Architecture
    mapping: Mapping
    names: Names
    levels: tuple[str, ...]
    unit: str
    rules: str
    notes: tuple[str, ...] = ()
    sparsity: Sparsity | None = None


def evaluate(case: Case, rules: str | None = None) -> dict[str, Any]:
    """The answer of one case as plain data: energies in J, counts of words of one instance.

    **Arguments:** `rules`: another version of Timeloop to follow, a key of `RULES`.
    """
    version = rules or case.rules
    if case.sparsity is not None:
        sparse = sparse_nest_cost(case.problem, case.architecture, case.mapping, case.sparsity, RULES[version])
        record = sparse_record(sparse, case)
        return {**record, **_explained(case, sparse.nest), "timeloop": version}
    cost = nest_cost(case.problem, case.architecture, case.mapping, RULES[version])
    return {**cost_record(cost, case.names, case.levels, case.unit), **_explained(case, cost), "timeloop": version}


def sparse_record(cost: SparseCost, case: Case) -> dict[str, Any]:
    """The record of a nest with zeros: its counts are of all words, those beside them of what becomes of them."""
    record = cost_record(cost.nest, case.names, case.levels, case.unit)
    record["operations"] = _split(cost.operations)
    for name, found in zip(case.levels, cost.accesses, strict=True):
        for operand, each in zip(case.names.operands, found, strict=True):
            if each is not None:
                record["levels"][name]["tensors"][operand] |= _sparse_counts(each)
    return record


def _split(split: Split) -> dict[str, float]:
    return {name: float(count) for name, count in split._asdict().items()}


def _sparse_counts(counts: SparseAccesses) -> dict[str, float]:
    """Words by action and what becomes of them, such as `gated_reads`; units of metadata that are moved."""
    found = {
        f"{name}_{action}": count for action, split in counts.words.items() for name, count in _split(split).items()
    }
    for action, ranks in counts.ranks.items():
        found[f"metadata_{action}"] = sum(float(split.actual) for rank in ranks for split in rank)
    return {**found, "actual_reductions": float(counts.reductions)}


def cost_record(cost: NestCost, names: Names, levels: Sequence[str], unit: str) -> dict[str, Any]:
    """A cost of scalar leaves by name; innermost level first. Nothing limits what cannot run."""
    return {
        "cycles": float(cost.cycles),
        "energy_j": float(cost.energy),
        "utilization": float(cost.utilization),
        "edp_j_cycle": float(cost.edp),
        "area_m2": float(cost.area),
        "limiter": None if int(cost.reason) else [unit, *levels][int(cost.limiter)],
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
    reasons = sentences(bits) + sparse_sentences(bits)
    if bits & Reason.CAPACITY:
        reasons += _over_capacity(case, cost)
    if bits & Reason.FACTORS:
        reasons += _wrong_factors(case)
    if bits & Reason.FAN_OUT:
        reasons += [*_too_many(case, cost), *_too_wide(case, cost)]
    if bits & Reason.BANDWIDTH:
        reasons += _starved(case, cost)
    if bits & SparseReason.RANKS:
        reasons += _short_of_ranks(case)
    return {"feasible": not bits, "reasons": reasons, "notes": list(case.notes)}


def _over_capacity(case: Case, cost: NestCost) -> list[str]:
    found = []
    for name, level, answer in zip(case.levels, case.architecture.levels, cost.levels, strict=True):
        taken, size = float(held(answer.accesses) * level.buffering), float(level.size)
        if taken > size:
            found.append(f"{name}: {taken:,.0f} words are kept where {size:,.0f} fit")
    return found


def _too_many(case: Case, cost: NestCost) -> list[str]:
    """Instances that are used and are not there."""
    machine = case.architecture
    used = [(case.unit, cost.units, machine.macs)]
    used += [
        (name, answer.instances, level.instances)
        for name, level, answer in zip(case.levels, machine.levels, cost.levels, strict=True)
    ]
    return [
        f"{name}: {float(taken):,.0f} instances are used where {float(there):,.0f} are"
        for name, taken, there in used
        if float(taken) > float(there)
    ]


def _too_wide(case: Case, cost: NestCost) -> list[str]:
    """Children of an instance that it does not have, or that do not fit along a side of its mesh."""
    machine = case.architecture
    counted = [answer.accesses for answer in cost.levels]
    spread = needed(machine, case.mapping, counted)
    many = [
        f"{name}: {float(columns * rows):,.0f} children of an instance are used where {float(there):,.0f} are"
        for name, there, (_, columns, rows) in zip(case.levels, children_of(machine), spread, strict=True)
        if float(columns * rows) > float(there)
    ]
    return many + [
        f"{name}: {float(taken):,.0f} children lie along {side} where {float(there):,.0f} fit"
        for name, level, (_, *sides) in zip(case.levels, machine.levels, spread, strict=True)
        for side, taken, there in zip("XY", sides, (level.fan_x, level.fan_y), strict=True)
        if float(taken) > float(there)
    ]


def _starved(case: Case, cost: NestCost) -> list[str]:
    """Words of one instance that have no bandwidth to pass."""
    found = []
    for name, level, answer in zip(case.levels, case.architecture.levels, cost.levels, strict=True):
        kept = [each for each in answer.accesses if each is not None]
        read = sum(float(each.reads) for each in kept)
        written = sum(float(each.fills + each.updates) for each in kept)
        words = {"read": read, "write": written, "shared": read + written}
        found += [
            f"{name}: {moved:,.0f} words of an instance have to pass and the {kind} bandwidth is 0"
            for kind, moved in words.items()
            if moved and float(getattr(level, f"{kind}_bandwidth")) <= 0.0
        ]
    return found


def _wrong_factors(case: Case) -> list[str]:
    mapping = case.mapping
    factors = (mapping.temporal * mapping.spatial_x * mapping.spatial_y).T
    tiles = factors.prod(axis=1)
    return [
        f"{name}: the factors multiply to {float(tile):g}, the bound is {float(bound):g}{_where(own, case.levels)}"
        for name, own, tile, bound in zip(case.names.dimensions, factors, tiles, case.problem.bounds, strict=True)
        if float(tile) != float(bound)
    ]


def _short_of_ranks(case: Case) -> list[str]:
    """Levels and operands whose format leaves loops over."""
    assert case.sparsity is not None  # noqa: S101 -- nothing else has formats
    nest, kept, found = unroll(case.mapping), case.mapping.kept, []
    for index, operand in enumerate(case.problem.operands):
        formats = {level: case.sparsity.formats[level][index] for level, keeps in enumerate(kept) if keeps[index]}
        for level, fibers in fibers_of(operand, formats, case.mapping, nest).items():
            layout = formats[level]
            if layout is not None and bool(fibers.short):
                ranks = " ".join(rank.kind for rank in reversed(layout.ranks))
                found.append(f"{case.levels[level]}: {case.names.operands[index]} has the ranks {ranks}")
    return found


def _where(factors: Sequence[float], levels: Sequence[str]) -> str:
    """The factors that are not one, with their levels, from the outermost."""
    at = [
        f"{float(factor):g} at {level}" for factor, level in zip(factors, levels, strict=True) if float(factor) != 1.0
    ]
    return f": {', '.join(reversed(at))}" if at else ""
