"""Mappings stated by what data a cluster of units holds: MAESTRO's directives, and the time its schedule takes.

Kwon et al., "Understanding Reuse, Performance, and Hardware Cost of DNN Dataflows: A Data-Centric Approach", MICRO
2019. A directive moves `size` indices of a loop by `offset`, in time or from one sub-cluster to the next; the first is
the slowest. Clusters nest. Here everything is a whole number on the host: how often a loop runs follows from the sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.problem import Operand


class Move(NamedTuple):
    """A directive: every step covers `size` more indices of a dimension [1], on another sub-cluster if `spatial`."""

    dimension: int
    size: int
    spatial: bool


class Cluster(NamedTuple):
    """`moves`: the slowest first, one of each dimension at most; `children`: sub-clusters, or units [1]."""

    moves: tuple[Move, ...]
    children: int


class Dataflow(NamedTuple):
    """`bounds` and `operands`: as of a `Problem`; `coefficients`: its own, as whole numbers; `clusters`: the outermost
    first."""

    bounds: tuple[int, ...]
    operands: tuple[Operand, ...]
    coefficients: tuple[int, ...]
    clusters: tuple[Cluster, ...]


class Wires(NamedTuple):
    """Between a cluster and its children. `bandwidth` [word/cycle]; `latency` of the first word [cycle]."""

    bandwidth: int
    latency: int


class Phase(NamedTuple):
    """Steps of a loop that are alike. `often`: so many [1]; `first`: whether the loop starts; `size`: indices that a
    child covers, `active`: children at work [1]."""

    often: int
    first: bool
    size: int
    active: int


def quotient(a: int, b: int) -> int:
    """a / b rounded up, of whole numbers."""
    return -(-a // b)


def dataflow_mapping(flow: Dataflow) -> tuple[Mapping, tuple[int, ...]]:
    """The mapping on a level for the units, one for each cluster but the outermost, and a backing store.

    Every level keeps every operand: what a cluster holds is in the stores of its units. Where a size does not divide
    what it covers, the last step is taken to be as long as the others.

    **Returns:** the mapping, and the bounds that its factors multiply to [1].
    """
    shape = (len(flow.clusters) + 1, len(flow.bounds))
    temporal, spatial, rank = np.ones(shape), np.ones(shape), np.zeros(shape)
    tile = list(flow.bounds)
    for level, cluster in zip(range(len(flow.clusters), 0, -1), flow.clusters, strict=True):
        listed = [move.dimension for move in cluster.moves]
        inwards = [*listed, *(d for d in range(shape[1]) if d not in listed)]
        rank[level] = [shape[1] - 1 - inwards.index(d) for d in range(shape[1])]
        for d, size, spatially in cluster.moves:
            places = quotient(tile[d], size)
            spread = min(places, cluster.children) if spatially else 1
            spatial[level, d], temporal[level, d] = spread, quotient(places, spread)
            tile[d] = min(tile[d], size)
    temporal[0], rank[0] = tile, np.arange(shape[1])
    kept = ((True,) * len(flow.operands),) * shape[0]
    covered = tuple(int(each) for each in (temporal * spatial).prod(axis=0))
    return Mapping(temporal, spatial, np.ones(shape), rank, kept), covered


def schedule_time(flow: Dataflow, wires: Wires) -> int:
    """Cycles of the whole nest on MAESTRO's schedule [cycle].

    A step of a cluster overlaps the run of its children, t, with the words of the next, in and out, over its wires:
    sum over steps of max(t, in, out), of the first t + in. A unit takes one operation a cycle. Words that several
    children want are sent once, except that neighbours do not share the rim of their windows.
    """

    @functools.cache
    def run(depth: int, tile: tuple[int, ...]) -> int:
        if depth == len(flow.clusters):
            return math.prod(tile)
        total, cluster = 0, flow.clusters[depth]
        for case in itertools.product(
            *(phases(move, tile[move.dimension], cluster.children) for move in cluster.moves)
        ):
            held = list(tile)
            for move, phase in zip(cluster.moves, case, strict=True):
                held[move.dimension] = phase.size
            inside = run(depth + 1, tuple(held))
            entering, leaving = (_travel(words, wires) for words in traffic(flow, cluster, case, tile, held))
            starts = all(phase.first for phase in case)
            step = inside + entering if starts else max(inside, entering, leaving)
            total += step * math.prod(phase.often for phase in case)
        return total

    return run(0, flow.bounds)


def phases(move: Move, covered: int, children: int) -> list[Phase]:
    """The steps of a loop over `covered` indices: the first, those like it, and a last one that has less to do [1]."""
    size, places = min(move.size, covered), quotient(covered, move.size)
    abreast = min(places, children) if move.spatial else 1
    steps = quotient(places, abreast)
    before = (steps - 1) * abreast
    last = Phase(1, steps == 1, min(size, covered - before * size), places - before)
    whole = [Phase(1, True, size, abreast), Phase(steps - 2, False, size, abreast)]
    return [phase for phase in whole[: steps - 1] if phase.often] + [last]


def traffic(
    flow: Dataflow, cluster: Cluster, case: Sequence[Phase], tile: Sequence[int], held: Sequence[int]
) -> tuple[int, int]:
    """Words that enter for a step, and results that leave after it [word].

    The innermost loop that does not start advances, and those inside of it start anew. Windows that it slides alone
    keep their overlap; all else that it or they index is sent again.
    """
    steps = list(zip(cluster.moves, case, strict=True))
    running = [index for index, (_, phase) in enumerate(steps) if not phase.first]
    advances = cluster.moves[running[-1]] if running else None
    inside = cluster.moves[running[-1] + 1 :] if running else cluster.moves
    again = {move.dimension for move in inside if len(phases(move, tile[move.dimension], cluster.children)) > 1}
    spread = {move.dimension: phase.active for move, phase in steps if move.spatial}
    entering = leaving = 0
    for operand in flow.operands:
        copies = math.prod(active for d, active in spread.items() if d in operand.relevant)
        words = copies * math.prod(_extent(flow, axis, held) for axis in operand.axes)
        if operand.written:
            leaving += words
        elif not running or again & operand.relevant:
            entering += words
        elif advances is not None and advances.dimension in operand.relevant:
            entering += words if advances.spatial else copies * _slid(flow, operand, advances.dimension, held)
    return entering, leaving


def _slid(flow: Dataflow, operand: Operand, dimension: int, held: Sequence[int]) -> int:
    """Words of a tile that were not in it before the loop of a dimension advanced in time [word]."""
    sides = []
    for axis in operand.axes:
        side = _extent(flow, axis, held)
        steps = [flow.coefficients[c] * held[d] for d, c in axis if d == dimension]
        sides.append(min(side, *steps) if steps else side)
    return math.prod(sides)


def _extent(flow: Dataflow, axis: Sequence[tuple[int, int]], held: Sequence[int]) -> int:
    return sum(flow.coefficients[c] * (held[d] - 1) for d, c in axis) + 1


def _travel(words: int, wires: Wires) -> int:
    """The head of a message takes the latency, and every further cycle brings as much as the wires carry [cycle]."""
    return max(wires.latency + quotient(words, wires.bandwidth) - 1, 0)
