"""A graph as arrays: the steps in which a framework works through it, and its distinct kernels.

One step is one kernel launch (or `count` equal ones) or the beginning of a node (of several, where only the last of
them has kernels). The forward pass goes through the
nodes in their order, the backward pass in the opposite one, each node's gradients being accumulated after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxperf.core.numerics import as_float
from jaxperf.models.graph import Graph, Node, Op

DENSE = frozenset(("gemm", "bmm", "convolution", "moe", "attention_prefill", "attention_decode"))
FORWARD, BACKWARD, ACCUMULATE = 0, 1, 2  # parts of an iteration


class Steps(eqx.Module):
    """Arrays over steps [S], padded at the end with steps that do nothing.

    `kernel`: index of the distinct kernel, the one after the last meaning none; `count`: equal launches in a row;
    `node`: nodes of the framework that begin here; `part`: forward, backward or accumulate; `repeats`: r > 0 where a
    block ends that is worked through r times, 0 elsewhere. `dense` [K]: 1 for kernels of the matrix units. `before`
    [N, E]: indices of the nodes that each node reads, the one after the last meaning none; `owner` [S]: node of a step;
    `times` [N]: how often a node is executed.
    """

    kernel: Int[Array, " S"]
    count: Float[Array, " S"]
    node: Float[Array, " S"]
    part: Int[Array, " S"]
    repeats: Float[Array, " S"]
    dense: Float[Array, " K"]
    before: Int[Array, "N E"]
    owner: Int[Array, " S"]
    times: Float[Array, " N"]


@dataclass(frozen=True)
class Laid:
    """A graph laid out: `ops` [K], its distinct kernels with a count of 1, and `steps` that refer to them."""

    name: str
    ops: tuple[Op, ...]
    steps: Steps
    unknown: dict[str, int]


@dataclass
class _Step:
    op: Op | None
    count: float
    node: float
    part: int
    owner: int
    repeats: float = 0.0


def lay_out(graph: Graph, multiple: int = 64) -> Laid:
    """The steps of a graph; their number is padded to a multiple, so that alike graphs share one compiled program."""
    forward = _walk(graph.nodes, range(len(graph.nodes)), (("forward", FORWARD),))
    backward: list[_Step] = []
    if any(node.backward or node.accumulate for node in graph.nodes):
        order = range(len(graph.nodes) - 1, -1, -1)
        backward = _walk(graph.nodes, order, (("backward", BACKWARD), ("accumulate", ACCUMULATE)))
    steps = forward + backward
    distinct: dict[tuple[object, ...], int] = {}
    ops = []
    for step in steps:
        if step.op is not None and step.op.key not in distinct:
            distinct[step.op.key] = len(ops)
            ops.append(replace(step.op, count=1.0))
    kernel = [len(ops) if step.op is None else distinct[step.op.key] for step in steps]
    return Laid(graph.name, tuple(ops), _arrays(graph, steps, kernel, ops, multiple), graph.unknown)


def _walk(nodes: Sequence[Node], order: Sequence[int], parts: tuple[tuple[str, int], ...]) -> list[_Step]:
    steps: list[_Step] = []
    names = [name for name, _ in parts]
    order = [at for at in order if nodes[at].kind != "input" or any(getattr(nodes[at], name) for name in names)]
    for at, position in enumerate(order):
        node = nodes[position]
        if steps and steps[-1].op is None and not steps[-1].repeats:
            steps[-1].node += 1.0
        else:
            steps.append(_Step(None, 0.0, 1.0, parts[0][1], position))
        for name, part in parts:
            ops = [op for op in getattr(node, name) if op.family != "none"]
            steps += [_Step(op, op.count, 0.0, part, position) for op in ops]
        following = nodes[order[at + 1]].repeats if at + 1 < len(order) else None
        if following != node.repeats:
            steps[-1].repeats = node.repeats
    return steps


def _arrays(graph: Graph, steps: list[_Step], kernel: list[int], ops: list[Op], multiple: int) -> Steps:
    padding = -len(steps) % multiple
    nodes = len(graph.nodes)

    def padded(values: Sequence[float], fill: float) -> np.ndarray:
        return np.array([*values, *([fill] * padding)])

    edges = max((len(node.before) for node in graph.nodes), default=0) or 1
    before = np.full((nodes, edges), nodes, np.int32)
    for row, node in enumerate(graph.nodes):
        before[row, : len(node.before)] = [graph.place[name] for name in node.before]
    return Steps(
        kernel=jnp.asarray(padded(kernel, len(ops)).astype(np.int32)),
        count=as_float(padded([step.count for step in steps], 0.0)),
        node=as_float(padded([step.node for step in steps], 0.0)),
        part=jnp.asarray(padded([step.part for step in steps], FORWARD).astype(np.int32)),
        repeats=as_float(padded([step.repeats for step in steps], 0.0)),
        dense=as_float([float(op.family in DENSE) for op in ops]),
        before=jnp.asarray(before),
        owner=jnp.asarray(padded([step.owner for step in steps], nodes).astype(np.int32)),
        times=as_float([node.repeats for node in graph.nodes]),
    )


def critical_path(before: Int[Array, "N E"], times: Float[Array, " N"]) -> Float[Array, ""]:
    """Length of the longest chain of dependent nodes [s]: finish_n = t_n + max of finish over the nodes that n reads.

    **Arguments:** `before`: as in `Steps`, nodes in topological order; `times` of the nodes [s].
    """
    nodes = times.shape[0]

    def node(finish: Array, at: tuple[Array, Array, Array]) -> tuple[Array, None]:
        index, reads, time = at
        return finish.at[index].set(jnp.max(finish[reads]) + time), None

    finish, _ = jax.lax.scan(node, jnp.zeros(nodes + 1, times.dtype), (jnp.arange(nodes), before, times))
    return jnp.max(finish)
