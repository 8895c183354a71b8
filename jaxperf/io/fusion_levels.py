"""Which steps become one kernel: chains of elementwise work, broadcasts and reductions, as XLA fuses them.

Every step has a level that grows with the kernels before it; steps join where one reads the other on the same level, so
that no chain can wait for a kernel that waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from jaxperf.io.program import Program, Step


@dataclass(frozen=True)
class Root:
    """What a value is read from: the value a kernel wrote (None for a constant made on the way), and how many bytes of
    it are read [byte]."""

    name: str | None
    nbytes: float


def joined(
    program: Program, kernels: list[Step], roots: Mapping[str, Root], streams: set[str]
) -> tuple[tuple[Step, ...], ...]:
    """Chains by union-find over the edges that can be fused and whose ends have one level, and over siblings; in the
    order of their ends."""
    edges = _edges(program, kernels, roots, streams)
    level = _levels(kernels, edges)
    _sink(program, kernels, edges, roots, streams, level)
    leader = {step.name: step.name for step in kernels}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for edge in edges:
        if edge.fits and level[edge.source] == level[edge.reader]:
            leader[find(edge.reader)] = find(edge.source)
    for first, other in _siblings(program, kernels, roots, streams, level):
        leader[find(other)] = find(first)
    groups: dict[str, list[Step]] = defaultdict(list)
    for step in kernels:
        groups[find(step.name)].append(step)
    place = {step.name: position for position, step in enumerate(kernels)}
    return tuple(map(tuple, sorted(groups.values(), key=lambda group: place[group[-1].name])))


@dataclass(frozen=True)
class _Edge:
    source: str
    reader: str
    fits: bool


def _edges(program: Program, kernels: list[Step], roots: Mapping[str, Root], streams: set[str]) -> list[_Edge]:
    """Which step reads which, in the order of the readers."""
    maker = {name: step for step in kernels for name in step.outputs}
    found = []
    for step in kernels:
        for name in dict.fromkeys(roots[name].name for name in step.inputs):
            source = maker.get(name or "")
            if source is not None:
                found.append(_Edge(source.name, step.name, _fits(program, source, step, name or "", streams)))
    return found


def _levels(kernels: list[Step], edges: list[_Edge]) -> dict[str, int]:
    """The least level of each step: that of what it reads, one more across an edge that cannot be fused. Any levels
    that grow so keep the graph of chains acyclic when equal ones are joined."""
    level = {step.name: 0 for step in kernels}
    for edge in edges:
        level[edge.reader] = max(level[edge.reader], level[edge.source] + (0 if edge.fits else 1))
    return level


def _sink(
    program: Program,
    kernels: list[Step],
    edges: list[_Edge],
    roots: Mapping[str, Root],
    streams: set[str],
    level: dict[str, int],
) -> None:
    """Raise the levels of elementwise steps to those of their readers: a compiler computes them where they are read,
    which saves writing them. What leaves less than it reads, such as a reduction or a mask, stays."""
    free = _from_nothing(kernels, roots, streams)
    latest: dict[str, int] = {}
    outputs = set(program.outputs)
    incoming: dict[str, list[_Edge]] = defaultdict(list)
    for edge in edges:
        incoming[edge.reader].append(edge)
    for step in reversed(kernels):
        largest = max((roots[name].nbytes for name in step.inputs if roots[name].name not in free), default=0.0)
        shrinks = largest > max(program.values[name].nbytes for name in step.outputs)
        if step.name in streams and step.name in latest and not shrinks and outputs.isdisjoint(step.outputs):
            level[step.name] = latest[step.name]
        for edge in incoming[step.name]:
            allowed = level[step.name] - (0 if edge.fits else 1)
            latest[edge.source] = min(latest.get(edge.source, allowed), allowed)


def _siblings(
    program: Program, kernels: list[Step], roots: Mapping[str, Root], streams: set[str], level: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Pairs of one level whose largest input is the same value: one kernel reads it for both. No path can lead from one
    to the other through a kernel, as levels would have grown on it."""
    first: dict[tuple[str, int, tuple[str, ...]], str] = {}
    pairs = []
    for step in kernels:
        read = sorted({name for each in step.inputs if (name := roots[each].name) is not None})
        largest = max(read, key=lambda name: program.values[name].nbytes, default=None)
        if step.name in streams and largest is not None and program.values[largest].size > 1:
            found = first.setdefault((largest, level[step.name], step.scope), step.name)
            pairs += [(found, step.name)] if found != step.name else []
    return pairs


def _from_nothing(kernels: list[Step], roots: Mapping[str, Root], streams: set[str]) -> set[str | None]:
    """Values computed from constants alone, such as a causal mask: computing them again reads nothing."""
    found: set[str | None] = {None}
    for step in kernels:
        if step.name in streams and all(roots[name].name in found for name in step.inputs):
            found.update(step.outputs)
    return found


def _fits(program: Program, source: Step, reader: Step, value: str, streams: set[str]) -> bool:
    """Whether a step can be computed where it is read. Single numbers join only among themselves: what reads the
    result of a whole reduction has to wait for it."""
    if source.name not in streams or reader.name not in streams or source.scope != reader.scope:
        return False
    return program.values[value].size > 1 or all(program.values[name].size <= 1 for name in reader.outputs)
