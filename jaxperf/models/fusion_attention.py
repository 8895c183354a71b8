"""Scores, softmax and values as one kernel that never writes the scores (FlashAttention, arXiv:2205.14135)."""

from __future__ import annotations

from dataclasses import dataclass

from jaxperf.models.fusion_contract import contracted, kernels, readers
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.workloads.attention import BIAS, CAUSAL, FLASH_BACKWARD

BETWEEN = frozenset(("elementwise", "softmax", "dropout", "view"))


@dataclass(frozen=True)
class _Found:
    """Places of the nodes of one attention; products of its scores and values; copies of keys for a head; causal."""

    members: set[int]
    scores: Op
    values: Op
    group: float
    causal: bool


def flash_attention(graph: Graph) -> Graph:
    """Every product of a softmax with values, of rows of keys, becomes one kernel of the family attention_prefill.

    A causal mask is not computed any more: S (S + 1) / 2 of S**2 scores are left, the same FLOP otherwise. Keys and
    values are not copied for the query heads that share them. Attention whose scores get a bias of their own for each
    head, or that sees fewer than half as many keys as it has queries, stays as it is.
    """
    after = readers(graph)
    groups = []
    for place, node in enumerate(graph.nodes):
        found = _attention(graph, after, place, node)
        if found is not None:
            groups.append((found.members, _node(graph, found, place)))
    return contracted(graph, groups, {}) if groups else graph


def _attention(graph: Graph, after: list[list[int]], place: int, node: Node) -> _Found | None:
    """The attention that ends in this product, if one does."""
    if node.kind != "matmul" or len(node.before) != 2:
        return None
    members, softmaxes = {place}, 0
    at = graph.place[node.before[0]]
    while graph.nodes[at].kind in BETWEEN and graph.nodes[at].before:
        inner = graph.nodes[at]
        members.add(at)
        softmaxes += inner.kind == "softmax"
        at = graph.place[inner.before[0]]
    if not softmaxes or graph.nodes[at].kind != "matmul" or len(graph.nodes[at].before) != 2:
        return None
    members.add(at)
    if any(set(after[each]) - members for each in members - {place}):
        return None
    scores, values = graph.nodes[at].forward[0], node.forward[0]
    names = {graph.nodes[each].name.rpartition(".")[2] for each in members}
    causal = CAUSAL in names
    if BIAS in names or scores.shape["k"] != values.shape["n"]:
        return None
    if not causal and scores.shape["n"] < (scores.shape["m"] + 1) / 2:
        return None
    copies = _copies(graph, after, at) | _copies(graph, after, place)
    group = max((_ratio(graph.nodes[each]) for each in copies), default=1.0)
    return _Found(members | copies, scores, values, group, causal)


def _copies(graph: Graph, after: list[list[int]], place: int) -> set[int]:
    """Nodes that copy keys or values for each query head, and the views after them, when nothing else reads them."""
    at = graph.place[graph.nodes[place].before[1]]
    path = set()
    while graph.nodes[at].kind == "view" and len(after[at]) == 1 and graph.nodes[at].before:
        path.add(at)
        at = graph.place[graph.nodes[at].before[0]]
    repeats = graph.nodes[at].name.rpartition(".")[2].startswith("repeat") and len(after[at]) == 1
    return path | {at} if repeats else set()


def _ratio(node: Node) -> float:
    """How often a copy writes what it reads."""
    moved = [op for op in kernels(node.forward) if op.family == "memory"]
    return moved[0].shape["bytes_out"] / moved[0].shape["bytes_in"] if moved else 1.0


def _node(graph: Graph, found: _Found, place: int) -> Node:
    """Query i of S sees `prefix` + i keys: 0 when causal, (S - 1) / 2 for all S, so that the FLOP are exact."""
    x, last = found.scores.shape, graph.nodes[place]
    prefix = x["n"] - x["m"] if found.causal else x["n"] - (x["m"] + 1) / 2
    shape = {"q_len": x["m"], "prefix": prefix, "heads": x["batch"], "kv_heads": x["batch"] / found.group}
    op = Op("attention_prefill", shape | {"head_dim": x["k"]}, dtype=found.scores.dtype, note="attention")
    trained = any(kernels(graph.nodes[each].backward) for each in found.members)
    backward = Op(op.family, op.shape, op.dtype, FLASH_BACKWARD, "attention gradient")
    return Node(
        f"{last.name}~flash",
        "attention",
        forward=(op,),
        backward=(backward,) if trained else (),
        output_bytes=last.output_bytes,
        repeats=last.repeats,
    )
