"""The search for a mapping of a chain on the machine of a case, and what it says, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.map_case import Asked, mapping_blocks
from jaxperf.io.map_constraints import machine_constraints, with_meshes
from jaxperf.io.timeloop.case import Case, cost_record
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.constraints import Constraints, LevelConstraints, check_constraints
from jaxperf.loopnest.evaluate import LevelCost
from jaxperf.loopnest.feasible import SENTENCES, held
from jaxperf.loopnest.fused.chain import STEPS, Chain, ChainNames
from jaxperf.loopnest.fused.evaluate import SENTENCES as CHAIN_SENTENCES
from jaxperf.loopnest.fused.evaluate import ChainCost
from jaxperf.loopnest.fused.mapping import Fusion, chain_kept, stage_mapping
from jaxperf.loopnest.fused.search import ChainFound, find_chain_mapping
from jaxperf.loopnest.fused.space import build_chain_space
from jaxperf.loopnest.mapper import Effort, Report
from jaxperf.loopnest.problem import Names

ORDERED = f"{STEPS} are operations of the units on one point, such as of a softmax, one after the other"


class Task(NamedTuple):
    """A chain on a machine. `levels`: names from the innermost; `unit`: of the multiply-accumulate units; `notes`: of
    the machine's case."""

    chain: Chain
    names: ChainNames
    architecture: Architecture
    levels: tuple[str, ...]
    unit: str
    limits: Constraints
    notes: tuple[str, ...] = ()


def chain_task(chain: Chain, names: ChainNames, case: Case, given: str | None) -> Task:
    """A chain on the machine of a case, whose nest is not used.

    **Arguments:** `given`: constraints as of `machine_constraints`; by default anything the instances allow.
    **Raises:** `InputError` for constraints of other levels, loops or arrays, or with fixed factors.
    """
    limits = machine_constraints(given, case.architecture, case.levels)
    dimensions = tuple(dict.fromkeys(name for nest in names.nests for name in nest.dimensions))
    check_constraints(limits, case.levels, Names(dimensions, names.tensors), given or "case")
    for level, limit in limits.items():
        if limit.factors:
            raise InputError(f"{given}: {level}: factors cannot be fixed for a chain; leave them away.")
    architecture = with_meshes(case.architecture, case.levels, limits)
    return Task(chain, names, architecture, case.levels, case.unit, limits, case.notes)


def alternating_notes(task: Task, fusion: Fusion, found: ChainFound) -> list[str]:
    """What is said where stages take turns at levels inside of the shared one that do not hold the tiles of all."""
    if found.cost is None or found.mapping is None or fusion.pipelined:
        return []
    if float(found.mapping.shared.temporal[fusion.level + 1 :].prod()) == 1.0:
        return []  # every stage has one turn
    small = [
        name
        for index, name in enumerate(task.levels[: fusion.level])
        if sum(float(held(stage.levels[index].accesses)) for stage in found.cost.stages)
        * float(task.architecture.levels[index].buffering)
        > float(task.architecture.levels[index].size)
    ]
    return [
        f"{name}: the stages take turns and their tiles do not fit together; what a turn evicts is not counted again"
        for name in small
    ]


def fusion_of(task: Task, level: str | None, pipelined: bool) -> Fusion:
    """Where intermediate arrays are kept: a level by name, else the outermost inside of the backing store.

    **Raises:** `InputError` for an unknown level, or a pipeline of more stages than there are parts for.
    """
    name = task.levels[-2:][0] if level is None else level
    if name not in task.levels:
        known = ", ".join(task.levels)
        raise InputError(f"--fuse: '{name}' is no level; there are {known}.{did_you_mean(name, task.levels)}")
    fusion = Fusion(task.levels.index(name), pipelined)
    if pipelined:
        _check_parts(task, fusion)
    return fusion


def _check_parts(task: Task, fusion: Fusion) -> None:
    """Raises `InputError` where an instance of the shared level has fewer of what is inside than there are stages,
    each of which has its own in a pipeline."""
    stages, shared = len(task.chain.problems), float(task.architecture.levels[fusion.level].instances)
    inside = {task.unit: task.architecture.macs}
    inside |= {
        name: task.architecture.levels[index].instances for index, name in enumerate(task.levels[: fusion.level])
    }
    for name, instances in inside.items():
        if float(instances) < stages * shared:
            raise InputError(
                f"--pipelined: {stages} stages need an instance of {name} each, and one of {task.levels[fusion.level]} "
                f"has {float(instances) / shared:g}; name a level further out with --fuse, or leave --pipelined away."
            )


def best_chain(task: Task, fusion: Fusion, asked: Asked, report: Report | None = None) -> dict[str, Any]:
    """The answer of a search as plain data; `feasible` is False where nothing can run."""
    keep = [task.limits.get(level, LevelConstraints()).keep for level in task.levels]
    kept = chain_kept(task.chain.links, task.names, task.levels, keep, fusion.level)
    space = build_chain_space(task.chain, task.names, task.levels, kept, task.limits, fusion)
    effort = Effort(asked.generations)
    found = find_chain_mapping(
        task.chain, task.architecture, space, fusion, asked.objective, asked.seed, effort, report
    )
    sentences = {**SENTENCES, **CHAIN_SENTENCES}
    return {
        "level": task.levels[fusion.level],
        "pipelined": fusion.pipelined,
        "feasible": found.cost is not None,
        **({} if found.cost is None else _record(task, fusion, found, found.cost)),
        "evaluations": found.evaluations,
        "rejected": [{"reason": sentences[why], "mappings": number} for why, number in found.rejected.items()],
        "interrupted": found.interrupted,
        "notes": [
            *([ORDERED] if any(STEPS in nest.dimensions for nest in task.names.nests) else []),
            *task.notes,
            *alternating_notes(task, fusion, found),
        ],
    }


def _record(task: Task, fusion: Fusion, found: ChainFound, cost: ChainCost) -> dict[str, Any]:
    """What the chain costs, by level and by stage."""
    energies = dict(zip(task.levels, cost.level_energy, strict=True))
    held = dict(zip(task.levels[fusion.level :], cost.held, strict=True))
    return {
        "cycles": float(cost.cycles),
        "energy_j": float(cost.energy),
        "utilization": float(cost.utilization),
        "edp_j_cycle": float(cost.edp),
        "macs": float(cost.macs),
        "limiter": [task.unit, *task.levels][int(cost.limiter)] if fusion.pipelined else None,
        "shared": _shared_loops(task, fusion, found),
        "levels": {
            task.unit: {"energy_j": float(cost.mac_energy), "words": 0.0},
            **{
                name: {
                    "energy_j": float(energies[name]),
                    "words": sum(_words(stage.levels[row]) for stage in cost.stages),
                    **({"held": float(held[name])} if name in held else {}),
                }
                for row, name in enumerate(task.levels)
            },
        },
        "stages": {
            name: {
                **cost_record(stage, task.names.nests[number], task.levels, task.unit),
                "mapping": mapping_blocks(_stage_case(task, fusion, found, number)),
            }
            for number, (name, stage) in enumerate(zip(task.names.stages, cost.stages, strict=True))
        },
    }


def _words(level: LevelCost) -> float:
    """Words that all instances of a level read and write [word]."""
    moved = [each.reads + each.fills + each.updates for each in level.accesses if each is not None]
    return float(level.instances) * sum(map(float, moved))


def _stage_case(task: Task, fusion: Fusion, found: ChainFound, stage: int) -> Case:
    """One stage as a case of its own."""
    assert found.mapping is not None  # noqa: S101 -- only of what was found
    mapping = stage_mapping(task.chain.links, found.mapping, fusion.level, stage)
    problem, names = task.chain.problems[stage], task.names.nests[stage]
    return Case(problem, task.architecture, mapping, names, task.levels, task.unit, "head")


def _shared_loops(task: Task, fusion: Fusion, found: ChainFound) -> list[dict[str, Any]]:
    """Loops that all stages share, outermost level first."""
    outside = mapping_blocks(_stage_case(task, fusion, found, 0))[: len(task.levels) - 1 - fusion.level]
    return [
        {"level": each["level"], "loops": [loop for loop in each["loops"] if loop[0] in task.names.shared]}
        for each in outside
    ]


def chain_rows(answers: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each operand of each level of each stage of the answers by name."""
    return [
        {"mapping": name, "stage": stage, "level": level, "tensor": tensor, "instances": found["instances"], **counts}
        for name, answer in answers
        for stage, cost in answer.get("stages", {}).items()
        for level, found in cost["levels"].items()
        for tensor, counts in found["tensors"].items()
    ]
