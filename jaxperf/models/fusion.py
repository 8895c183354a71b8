"""Rewrites of a graph that a compiler or a fused library makes: the same products, fewer kernels and bytes.

Each is a function from graph to graph; `fused` applies those asked for. What is written between two operations that
become one is not moved any more; what others read is still written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.fusion_attention import flash_attention
from jaxperf.models.fusion_groups import fuse_elementwise, fuse_rows
from jaxperf.models.graph import Graph, Node
from jaxperf.models.workloads.kernels import stream
from jaxperf.models.workloads.optimizers import MOST_ELEMENTS, OPTIMIZERS

__all__ = ["COMPILED", "RULES", "flash_attention", "fuse_elementwise", "fuse_optimizer", "fuse_rows", "fused"]


def fuse_optimizer(graph: Graph) -> Graph:
    """The optimizer's operations as one kernel over lists of tensors, in as many launches as its longest one had."""
    return Graph(graph.name, tuple(_fused_step(node) if node.kind == "optimizer" else node for node in graph.nodes))


def _fused_step(node: Node) -> Node:
    optimizer = OPTIMIZERS[node.name.partition(".")[2]]
    if len(node.backward) == 1:
        return node
    written = sum(op.count * op.shape["elements_out"] for op in node.backward)
    elements = written / sum(out for _, _, out in optimizer.kernels)
    launches = max(min(op.count for op in node.backward), -(-elements // MOST_ELEMENTS))
    read, out = optimizer.fused
    one = stream("fused", read * elements / launches, out * elements / launches)
    one = dataclasses.replace(one, count=float(launches), dtype=node.backward[0].dtype)
    return dataclasses.replace(node, backward=(one,))


RULES: Mapping[str, Callable[[Graph], Graph]] = MappingProxyType(
    {
        "attention": flash_attention,
        "elementwise": fuse_elementwise,
        "rows": fuse_rows,
        "optimizer": fuse_optimizer,
    }
)
COMPILED = ("rows", "optimizer")  # what a compiler does by itself


def fused(graph: Graph, rules: Sequence[str] = COMPILED) -> Graph:
    """The graph after some of `RULES`, in their order there whatever the order given.

    Raises `InputError` naming an unknown rule and the nearest known one.
    """
    for name in rules:
        if name not in RULES:
            raise InputError(f"Unknown fusion rule {name!r}; known: {', '.join(RULES)}.{did_you_mean(name, RULES)}")
    for name, rule in RULES.items():
        graph = rule(graph) if name in rules else graph
    return graph
