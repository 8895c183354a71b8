"""Every layer of a network mapped on every machine of a co-design."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jaxperf.io.codesign import Design
from jaxperf.io.map_case import constrained
from jaxperf.io.map_network import Layer, layer_case
from jaxperf.io.timeloop_case import Case
from jaxperf.loopnest.codesign import Totals, network_totals, shared_costs
from jaxperf.loopnest.codesign_search import leading_mappings
from jaxperf.loopnest.constraints import Constraints
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import build_space, prime_factors


class Task(NamedTuple):
    """`cases`: the base machine with each layer; `names`: of a layer, `counts`: how often it runs [1]; `width`: as of
    `build_space`; `constraints`: of the base machine."""

    cases: list[Case]
    names: list[str]
    counts: list[int]
    width: int
    constraints: Constraints


class Searched(NamedTuple):
    """A machine. `mappings`: the leading ones of each layer; `rejected`: how many of each layer each reason refused
    [1]."""

    design: Design
    mappings: list[Mapping]
    rejected: list[dict[Reason, int]]


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


def search_design(design: Design, task: Task, objective: str, seed: int, generations: int) -> Searched:
    """The leading mappings of each layer on one machine."""
    found = []
    for case in task.cases:
        space = build_space(case.problem, case.names, case.levels, case.mapping.kept, design.constraints, task.width)
        found.append(leading_mappings(case.problem, design.architecture, space, objective, seed, generations))
    mappings, rejected = zip(*found, strict=True)
    return Searched(design, list(mappings), list(rejected))


def compare(searched: Sequence[Searched], task: Task, objective: str) -> Totals:
    """What the network costs on every machine with the best of all mappings."""
    machines = [each.design.architecture for each in searched]
    costs = [
        shared_costs(case.problem, machines, [each.mappings[layer] for each in searched], objective)
        for layer, case in enumerate(task.cases)
    ]
    return network_totals(costs, task.counts)
