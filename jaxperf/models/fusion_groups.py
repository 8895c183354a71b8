"""Chains of pointwise operations, and norms and softmaxes with what is pointwise around them, as one kernel each.

The kernel reads each tensor from outside once and writes those that are read outside; its backward pass reads the
gradients of what was written and the same inputs, and writes their gradients. Sums over other axes (of biases and
weights of norms, of statistics of a batch) stay kernels of their own.
"""

from __future__ import annotations

import dataclasses

from jaxperf.models.fusion_contract import contracted, elements, kernels, readers
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.workloads.tape import ITEMSIZES

POINTWISE = frozenset(("elementwise", "dropout"))
ROWS = frozenset(("norm", "softmax", "mean"))
APART = frozenset(("batch statistics", "moments", "norm weight gradient", "bias gradient"))
LEAST_RATIO = 0.25  # a kernel that writes less than this of what it reads sums over an axis


def fuse_elementwise(graph: Graph) -> Graph:
    """Pointwise operations that feed each other, with the views between them, become one kernel."""
    return _fused(graph, POINTWISE)


def fuse_rows(graph: Graph) -> Graph:
    """As `fuse_elementwise`, with norms, softmaxes and means of rows: residual + norm, scale + mask + softmax."""
    return _fused(graph, POINTWISE | ROWS)


def _fused(graph: Graph, kinds: frozenset[str]) -> Graph:
    after = readers(graph)
    changed: dict[int, Node] = {}
    groups = []
    for members in _groups(graph, kinds, after):
        if sum(len(kernels(graph.nodes[place].forward)) > 0 for place in members) > 1:
            made = _Group(graph, members, after)
            groups.append((members, made.node()))
            made.spare_sums(changed)
    return contracted(graph, groups, changed) if groups else graph


def _groups(graph: Graph, kinds: frozenset[str], after: list[list[int]]) -> list[set[int]]:
    """Sets of nodes that can each become one: grown along the edges, as long as no path leaves and comes back."""
    cluster: dict[int, set[int]] = {}
    for place, node in enumerate(graph.nodes):
        joins = node.kind == "view" and not kernels((*node.forward, *node.backward))
        if node.kind not in kinds and not joins:
            continue
        members = {place}
        for name in node.before:
            found = cluster.get(graph.place[name])
            if found is None or found <= members or graph.nodes[graph.place[name]].repeats != node.repeats:
                continue
            if not _comes_back(members | found, after, cluster):
                members |= found
        if joins and len(members) == 1:
            continue  # a view does not begin a kernel
        for each in members:
            cluster[each] = members
    return [group for group in {id(group): group for group in cluster.values()}.values() if len(group) > 1]


def _comes_back(members: set[int], after: list[list[int]], cluster: dict[int, set[int]]) -> bool:
    """Whether a path leaves the members and reads into them again, other groups taken as one node each."""
    last, seen = max(members), set(members)
    waiting = [place for each in members for place in after[each] if place not in members]
    while waiting:
        place = waiting.pop()
        if place in seen or place > last:
            continue
        for each in cluster.get(place, {place}) - members:
            seen.add(each)
            if members.intersection(after[each]):
                return True
            waiting += after[each]
    return False


class _Group:
    """Nodes that become one kernel."""

    def __init__(self, graph: Graph, members: set[int], after: list[list[int]]) -> None:
        self.graph, self.members = graph, members
        self.nodes = [graph.nodes[place] for place in sorted(members)]
        self.dtype = next(op.dtype for node in self.nodes for op in kernels(node.forward))
        places = {graph.place[name] for node in self.nodes for name in node.before} - members
        self.outside = {place: self._reads(place, after) for place in sorted(places)}
        self.written = {self._root(place) for place in members if not after[place] or set(after[place]) - members}
        self.written &= members

    def _reads(self, place: int, after: list[list[int]]) -> int:
        return len(self.members.intersection(after[place]))

    def _root(self, place: int) -> int:
        """The node whose memory a view shows."""
        node = self.graph.nodes[place]
        while place in self.members and node.kind == "view" and node.before:
            place = self.graph.place[node.before[0]]
            node = self.graph.nodes[place]
        return place

    def node(self) -> Node:
        """The one node."""
        first, last = self.nodes[0], self.nodes[-1]
        read = sum(elements(self.graph.nodes[place], self.dtype) for place in self.outside)
        read += sum(node.parameter_bytes for node in self.nodes) / ITEMSIZES[self.dtype]
        written = sum(elements(self.graph.nodes[place], self.dtype) for place in self.written)
        backward = [op for node in reversed(self.nodes) for op in kernels(node.backward)]
        return Node(
            f"{first.name}~{last.name.rpartition('.')[2]}",
            "fused",
            forward=self._one([op for node in self.nodes for op in kernels(node.forward)], read, written),
            backward=self._one(backward, read + written, read),
            accumulate=tuple(op for node in self.nodes for op in node.accumulate),
            output_bytes=sum(self.graph.nodes[place].output_bytes for place in self.written),
            parameter_bytes=sum(node.parameter_bytes for node in self.nodes),
            repeats=first.repeats,
        )

    def _one(self, ops: list[Op], read: float, written: float) -> tuple[Op, ...]:
        """One kernel for those that go over the same elements, which never moves more than they did."""
        inside = [op for op in ops if not _sums(op)]
        if len(inside) < 2:
            return tuple(ops)
        moved_in, moved_out = (sum(op.count * _moved(op)[side] for op in inside) for side in (0, 1))
        shape = {"elements_in": min(read, moved_in), "elements_out": min(written, moved_out)}
        rows = max(op.shape["rows"] for op in inside)
        one = Op("elementwise", shape | {"rows": rows}, dtype=self.dtype, note="fused")
        return (*(op for op in ops if _sums(op)), one)

    def spare_sums(self, changed: dict[int, Node]) -> None:
        """Where the group reads one tensor several times, its gradients are summed inside: fewer sums outside."""
        for place, reads in self.outside.items():
            node = changed.get(place, self.graph.nodes[place])
            first = node.backward[0] if node.backward else None
            if reads > 1 and first is not None and first.note == "sum" and node.repeats == self.nodes[0].repeats:
                left = max(first.count - (reads - 1), 0.0)
                kept = (dataclasses.replace(first, count=left),) if left else ()
                changed[place] = dataclasses.replace(node, backward=(*kept, *node.backward[1:]))


def _sums(op: Op) -> bool:
    read, written = _moved(op)
    return op.note in APART or (op.note == "sum" and written < LEAST_RATIO * read)


def _moved(op: Op) -> tuple[float, float]:
    """Elements read and written by one of the operation."""
    if op.family in ("norm", "softmax"):
        n = op.shape["rows"] * op.shape["columns"]
        return n, n
    return op.shape["elements_in"], op.shape["elements_out"]
