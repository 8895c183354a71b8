"""Contracting nodes of a graph: several become one, all others keep their order."""

from __future__ import annotations

import dataclasses
import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.workloads.tape import ITEMSIZES


def readers(graph: Graph) -> list[list[int]]:
    """Places of the nodes that read each node."""
    after: list[list[int]] = [[] for _ in graph.nodes]
    for place, node in enumerate(graph.nodes):
        for other in node.before:
            after[graph.place[other]].append(place)
    return after


def contracted(graph: Graph, groups: Sequence[tuple[set[int], Node]], changed: Mapping[int, Node]) -> Graph:
    """The graph with each set of nodes in the place of its last one as one node, and some nodes changed.

    The `before` of the new nodes is told here. The groups must not overlap, nor be on a cycle once contracted.
    """
    group_of = {place: index for index, (members, _) in enumerate(groups) for place in members}
    renamed = {graph.nodes[place].name: groups[index][1].name for place, index in group_of.items()}
    nodes: dict[int, Node] = {}
    for place, node in enumerate(graph.nodes):
        if place not in group_of:
            nodes[place] = _reading(changed.get(place, node), [renamed.get(name, name) for name in node.before])
    for members, made in groups:
        names = [renamed.get(name, name) for place in sorted(members) for name in graph.nodes[place].before]
        nodes[max(members)] = _reading(made, [name for name in names if name != made.name])
    return Graph(graph.name, _in_order(nodes))


def _reading(node: Node, names: Iterable[str]) -> Node:
    before = tuple(dict.fromkeys(names))
    return node if before == node.before else dataclasses.replace(node, before=before)


def _in_order(nodes: Mapping[int, Node]) -> tuple[Node, ...]:
    """Topological order that stays as near to the places as it can (Kahn's algorithm with the lowest place first)."""
    place = {node.name: at for at, node in nodes.items()}
    waiting = {at: len(node.before) for at, node in nodes.items()}
    after: dict[int, list[int]] = defaultdict(list)
    for at, node in nodes.items():
        for name in node.before:
            after[place[name]].append(at)
    ready = [at for at, count in waiting.items() if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        at = heapq.heappop(ready)
        found.append(nodes[at])
        for other in after[at]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, other)
    assert len(found) == len(nodes)  # the groups are on no cycle
    return tuple(found)


def elements(node: Node, dtype: str) -> float:
    """Elements of a node's output."""
    return node.output_bytes / ITEMSIZES[dtype]


def kernels(ops: Iterable[Op]) -> list[Op]:
    """The operations that launch something."""
    return [op for op in ops if op.family != "none"]
