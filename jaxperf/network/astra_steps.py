"""The message schedules of ASTRA-sim's symmetric collective algorithms: what every rank sends in each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ALGORITHMS = ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
Reduction = Callable[[int], int]


@dataclass(frozen=True)
class Step:
    """One exchange: `peers` messages of `size` bytes leave at once, the farthest to the rank `distance` places on;
    when as many have come in, the local reduction takes `reduction` ns."""

    size: int
    reduction: int
    peers: int = 1
    distance: int = 1


@dataclass(frozen=True)
class Phase:
    """What one chunk does along one dimension, given by its index."""

    dimension: int
    steps: tuple[Step, ...]


def steps_of(algorithm: str, collective: str, ranks: int, data: int, reduction: Reduction) -> tuple[Step, ...]:
    """Steps of a collective over `ranks` of a chunk of `data` bytes (of an all-gather: the shard of one rank)."""
    if algorithm == "halvingDoubling":
        return _halving_doubling(collective, ranks, data, reduction)
    message = data if collective == "all_gather" else data // ranks
    reduces = collective in ("all_reduce", "reduce_scatter")
    if algorithm == "direct":
        add = Step(message, reduction(message) if reduces else 0, ranks - 1, ranks // 2)
        copy = Step(message, 0, ranks - 1, ranks // 2)
        return (add, copy) if collective == "all_reduce" else (add,)
    add, copy = Step(message, reduction(message)), Step(message, 0)
    adding = ranks - 1 if reduces else 0
    return (add,) * adding + (copy,) * (step_count(algorithm, collective, ranks) - adding)


def step_count(algorithm: str, collective: str, ranks: int) -> int:
    """How many steps one chunk takes along a dimension; a tree is counted by its ranks."""
    passes = 2 if collective == "all_reduce" else 1
    if algorithm == "direct":
        return passes
    if algorithm == "halvingDoubling":
        return passes * (ranks.bit_length() - 1)
    if algorithm == "doubleBinaryTree":
        return ranks
    return ranks * (ranks - 1) // 2 if collective == "all_to_all" else passes * (ranks - 1)


def _halving_doubling(collective: str, ranks: int, data: int, reduction: Reduction) -> tuple[Step, ...]:
    """Recursive halving to scatter, doubling to gather (Thakur, Rabenseifner, Gropp 2005).

    The simulator charges the reduction of a received half at the size of the next message, and not at all after the
    last halving; the replica keeps that.
    """
    levels = ranks.bit_length() - 1
    if collective == "all_gather":
        return tuple(Step(data << level, 0, distance=ranks >> (level + 1)) for level in range(levels))
    sizes = [data >> (level + 1) for level in range(levels)]
    reductions = [reduction(size) for size in sizes[1:]] + [0]
    halving = tuple(Step(sizes[i], reductions[i], distance=1 << i) for i in range(levels))
    if collective == "reduce_scatter":
        return halving
    return halving + tuple(Step(step.size, 0, distance=step.distance) for step in reversed(halving))
