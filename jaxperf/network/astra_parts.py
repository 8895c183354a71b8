"""What each rank does with a chunk in ASTRA-sim, where ranks or ways differ: the double binary tree, and far peers.

The tree (after Sanders, Speck, Träff 2009): even chunks use one rooted at the last rank, odd chunks its mirror image
rooted at rank 0, each with the other ranks as a perfect binary tree under the root. Whatever collective is asked for
along a dimension with this algorithm, the simulator runs the all-reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxperf.network.astra_events import Delay, Part, Receive, Send
from jaxperf.network.astra_setup import Settings
from jaxperf.network.astra_steps import Step


@dataclass(frozen=True)
class Family:
    """The place of one rank in a tree; `None` where it has no parent."""

    parent: int | None
    children: tuple[int, ...]


def tree_parts(ranks: int, chunks: Sequence[int], settings: Settings) -> list[list[Part]]:
    """`parts[rank][chunk]` of the double binary tree, for chunks of the given sizes [byte]."""
    trees = [families(ranks, root_last) for root_last in (True, False)]
    return [
        [tree_part(trees[index % 2][rank], size, settings) for index, size in enumerate(chunks)]
        for rank in range(ranks)
    ]


def families(ranks: int, root_last: bool) -> list[Family]:
    """Every rank's place in a tree numbered in order: the root is the last or the first, one perfect tree below it."""
    places: dict[int, Family] = {}

    def place(first: int, count: int, parent: int) -> int:
        middle, half = first + count // 2, count // 2
        below = tuple(place(start, half, middle) for start in (first, middle + 1)) if half else ()
        places[middle] = Family(parent, below)
        return middle

    root, first = (ranks - 1, 0) if root_last else (0, 1)
    places[root] = Family(None, (place(first, ranks - 1, root),))
    return [places[rank] for rank in range(ranks)]


def tree_part(family: Family, size: int, settings: Settings) -> Part:
    """What one rank does with one chunk: sums travel up to the root, the result down to the leaves.

    A rank between root and leaf also pays a reduction for the result it only passes on: the simulator's own habit.
    """
    plain = Delay(settings.endpoint_delay)
    add = Delay(settings.endpoint_delay + settings.reduction(size))
    if family.children:
        yield Receive(family.children)
        yield add
    else:
        yield plain
    if family.parent is not None:
        yield Send(family.parent, size)
        yield Receive((family.parent,))
        yield add if family.children else plain
    for child in family.children:
        yield Send(child, size)


def exchange_parts(ranks: int, chunks: Sequence[Sequence[Step]], settings: Settings) -> list[list[Part]]:
    """`parts[rank][chunk]` of algorithms that exchange with one far peer or all peers in each of their steps."""
    return [[exchange_part(rank, ranks, steps, settings) for steps in chunks] for rank in range(ranks)]


def exchange_part(rank: int, ranks: int, steps: Sequence[Step], settings: Settings) -> Part:
    """All peers in order of their distance (direct), or the rank that differs in one bit (halving-doubling)."""
    yield Delay(settings.endpoint_delay)
    for step in steps:
        if step.peers > 1:
            to = [(rank + distance) % ranks for distance in range(1, ranks)]
            sources = tuple((rank - distance) % ranks for distance in range(1, ranks))
        else:
            to, sources = [rank ^ step.distance], (rank ^ step.distance,)
        for peer in to:
            yield Send(peer, step.size)
        yield Receive(sources)
        yield Delay(settings.endpoint_delay + step.reduction)
