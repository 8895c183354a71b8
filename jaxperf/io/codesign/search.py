"""Every layer of a network mapped on every machine of a co-design."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxperf.io.codesign.area import Silicon, with_areas
from jaxperf.io.codesign.free import Axis
from jaxperf.io.codesign.machines import Design, build_designs
from jaxperf.io.map_case import constrained
from jaxperf.io.map_network import Layer, layer_case
from jaxperf.io.timeloop.case import Case
from jaxperf.loopnest.codesign.machines import Totals, network_totals, shared_costs
from jaxperf.loopnest.codesign.search import leading_mappings
from jaxperf.loopnest.constraints import Constraints
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.genomes import Genome
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import MapSpace, build_space, prime_factors
from jaxperf.loopnest.redesign import Knob
from jaxperf.loopnest.search import CHILDREN


class Budgets(NamedTuple):
    """`clock` of the machines [Hz], for their mean power; the most `power` [W] and `area` [m2]; None for no matter."""

    clock: float | None = None
    power: float | None = None
    area: float | None = None


class Task(NamedTuple):
    """`cases`: the base machine with each layer; `names`: of a layer, `counts`: how often it runs [1]; `width`: as of
    `build_space`; `constraints`: of the base machine."""

    cases: list[Case]
    names: list[str]
    counts: list[int]
    width: int
    constraints: Constraints


class Question(NamedTuple):
    """`axes`: what is free, `knobs`: what they turn; `path`: of the base; `silicon`: None where no area is asked for;
    `limits`: budgets; `machines`: mapped at most; `objective`, `seed`, `generations`: of the search for mappings."""

    task: Task
    axes: Sequence[Axis]
    knobs: Sequence[Knob]
    path: Path
    silicon: Silicon | None
    limits: Budgets
    machines: int
    objective: str
    seed: int
    generations: int


class Searched(NamedTuple):
    """A machine. `mappings`: the leading ones of each layer, `genomes`: in its map space; `rejected`: how many of each
    layer each reason refused; `evaluations`: mappings that were scored for it [1]."""

    design: Design
    mappings: list[Mapping]
    genomes: list[Genome]
    rejected: list[dict[Reason, int]]
    evaluations: int


def build_task(case: Case, layers: Sequence[Layer], given: str | None) -> Task:
    """Layers on a base machine under constraints, as `constrained` takes them.

    **Raises:** `InputError` for operands, levels or loops that do not go together.
    """
    cases, constraints = [], {}
    for layer in layers:
        own, constraints = constrained(layer_case(case, layer), given)
        cases.append(own)
    width = max(len(prime_factors(int(bound))) for layer in layers for bound in layer.problem.bounds)
    names, counts = [layer.names[0] for layer in layers], [len(layer.names) for layer in layers]
    return Task(cases, names, counts, width, constraints)


def swept_machines(asked: Question) -> Iterator[Searched]:
    """Every machine of the grid as it is mapped."""
    for design in grid_of(asked):
        yield search_design(design, asked)


def grid_of(asked: Question) -> list[Design]:
    """All combinations of the axes' values. Raises `InputError` for instances that would not be whole."""
    task = asked.task
    designs = build_designs(task.cases[0], task.constraints, asked.axes, asked.knobs)
    return with_areas(designs, asked.silicon, asked.path, task.cases[0].levels)


def search_design(design: Design, asked: Question) -> Searched:
    """The leading mappings of each layer on one machine."""
    task, how = asked.task, (asked.objective, asked.seed, asked.generations)
    found = [
        leading_mappings(case.problem, design.architecture, space, *how)
        for case, space in zip(task.cases, layer_spaces(task, design.constraints), strict=True)
    ]
    mappings, genomes, rejected = map(list, zip(*found, strict=True))
    return Searched(design, mappings, genomes, rejected, len(task.cases) * asked.generations * CHILDREN)


def layer_spaces(task: Task, constraints: Constraints) -> list[MapSpace]:
    """The map space of each layer."""
    return [
        build_space(case.problem, case.names, case.levels, case.mapping.kept, constraints, task.width)
        for case in task.cases
    ]


def compare(searched: Sequence[Searched], task: Task, objective: str) -> Totals:
    """What the network costs on every machine with the best of all mappings."""
    machines = [each.design.architecture for each in searched]
    costs = [
        shared_costs(case.problem, machines, [each.mappings[layer] for each in searched], objective)
        for layer, case in enumerate(task.cases)
    ]
    return network_totals(costs, task.counts)
