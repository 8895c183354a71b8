"""Pipelines whose backward pass comes in two pieces, the gradients of inputs (B) and of weights (W), played pass by
pass in the orders of their authors: what the formulas of ZB-H1, ZB-H2, ZB-V and DualPipe are tested against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

Place = tuple[int, int]  # rank, and which of its stages
Pass = tuple[str, int, int]  # "F", "B" or "W", stage of the rank, micro-batch
Order = list[tuple[Pass, ...]]  # what a rank does; passes of one entry run together and end together
Times = Mapping[str, Sequence[Sequence[float]]]  # of "F", "B" and "W", by rank and stage of the rank


def handcrafted(p: int, m: int, ahead: int) -> tuple[list[Order], list[list[Place]]]:
    """ZB-H1 (`ahead` 1) and ZB-H2 (2) of arXiv:2401.10241, section 2: rank r is `ahead` (p - r) + 1 - `ahead` forward
    passes ahead and `ahead` r gradients of weights behind, so that each holds as many micro-batches."""
    orders = []
    for rank in range(p):
        turn = _Turn(m)
        turn.take("F", 0, ahead * (p - rank) + 1 - ahead)
        for index in range(m):
            turn.take("B", 0)
            turn.take("W", 0, int(index >= ahead * rank))
            turn.take("F", 0)
        turn.take("W", 0, m)
        orders.append(turn.order)
    return orders, [[(rank, 0) for rank in range(p)]]


def vee(p: int, m: int) -> tuple[list[Order], list[list[Place]]]:
    """ZB-V (arXiv:2401.10241, section 6): the second stages run back to the first rank. The last rank fills up first;
    then each has F, B and W of one stage and of the other in turn."""
    orders = []
    for rank in range(p):
        turn = _Turn(m)
        turn.take("F", 0, 2 * (p - rank) - 1)
        for _ in range(rank):
            turn.take("F", 1)
            turn.take("F", 0)
        for _ in range(p - rank):
            turn.each("FBW", 1)
        while turn.left("F", 1):
            turn.each("FBW", 0)
            turn.each("FBW", 1)
        for _ in range(rank):
            turn.take("B", 0)
            turn.take("B", 1)
        while turn.left("B", 0) or turn.left("B", 1):
            turn.each("BW", 0)
            turn.take("B", 1)
        turn.take("W", 1, m)
        turn.take("W", 0, m)
        orders.append(turn.order)
    down, up = [(rank, 0) for rank in range(p)], [(rank, 1) for rank in reversed(range(p))]
    return orders, [down + up]


def two_ways(p: int, m: int) -> tuple[list[Order], list[list[Place]]]:
    """DualPipe (arXiv:2412.19437, figure 5): half of the micro-batches from either end. Stage 0 of a rank is of the way
    that begins nearer to it. A backward pass in one piece ends with its weights, and beside a forward pass with both.
    """
    orders, half = [], p // 2
    for rank in range(p):
        near = min(rank, p - 1 - rank)
        far = half - near - 1
        turn = _Turn(m // 2)
        turn.take("F", 0, 2 * far)
        for _ in range(near + 1):
            turn.take("F", 0)
            turn.take("F", 1)
        for _ in range(far):
            turn.each("BWF", 1)
        for _ in range(m // 2 - p + near + 1):
            turn.together(("F", 0), ("B", 1), ("W", 1))
            turn.together(("F", 1), ("B", 0), ("W", 0))
        for _ in range(far):
            turn.together(("B", 1), ("W", 1))
            turn.together(("F", 1), ("B", 0), ("W", 0))
        for index in range(2 * (near + 1)):  # the second half of them in two pieces
            stage = 1 - index % 2
            if index < near + 1:
                turn.together(("B", stage), ("W", stage))
            else:
                turn.take("B", stage)
        for _ in range(far):
            turn.oldest_weight()
            turn.take("B", 0)
        while turn.oldest_weight():
            pass
        orders.append(turn.order)
    forth = [(rank, 0 if rank < half else 1) for rank in range(p)]
    back = [(rank, 1 if rank < half else 0) for rank in reversed(range(p))]
    return orders, [forth, back]


def play(orders: list[Order], paths: list[list[Place]], times: Times) -> list[tuple[float, float]]:
    """When each rank begins and ends; `paths`: the stages that a micro-batch passes.

    **Raises:** `RuntimeError` where ranks wait for each other for ever.
    """
    before = {place: path[at - 1] if at else None for path in paths for at, place in enumerate(path)}
    behind = {place: path[at + 1] if at + 1 < len(path) else None for path in paths for at, place in enumerate(path)}
    ends: dict[tuple[str, Place, int], float] = {}
    free, starts = [0.0] * len(orders), [math.nan] * len(orders)
    waiting = [list(reversed(order)) for order in orders]

    def needed(one: Pass, rank: int) -> tuple[str, Place, int] | None:
        kind, stage, index = one
        place = rank, stage
        earlier, later = before[place], behind[place]
        if kind == "F":
            return None if earlier is None else ("F", earlier, index)
        if kind == "B" and later is not None:
            return "B", later, index
        return ("F" if kind == "B" else "B"), place, index

    while any(waiting):
        moved = False
        for rank, rest in enumerate(waiting):
            while rest:
                own = {(kind, (rank, stage), index) for kind, stage, index in rest[-1]}
                sources = {need for one in rest[-1] if (need := needed(one, rank)) is not None} - own
                if not sources <= ends.keys():
                    break
                start = max([free[rank], *(ends[source] for source in sources)])
                free[rank] = start + sum(times[kind][rank][stage] for kind, stage, _ in rest.pop())
                ends |= dict.fromkeys(own, free[rank])
                starts[rank] = start if math.isnan(starts[rank]) else starts[rank]
                moved = True
        if not moved:
            raise RuntimeError(f"Ranks wait for each other: {[rest[-1] for rest in waiting if rest]}.")
    return list(zip(starts, free, strict=True))


def most_live(order: Order) -> int:
    """Passes of a stage whose activations a rank holds at most, from their F to their W."""
    live = most = 0
    for entry in order:
        live += sum(kind == "F" for kind, _, _ in entry)
        most = max(most, live)
        live -= sum(kind == "W" for kind, _, _ in entry)
    return most


class _Turn:
    """The order of one rank as it grows, of `count` micro-batches a stage: the next of a kind, none that is missing."""

    def __init__(self, count: int) -> None:
        self.count, self.order = count, []
        self._done: Counter[tuple[str, int]] = Counter()

    def left(self, kind: str, stage: int) -> bool:
        """Whether a pass of that kind can come next: each F of the step, each B of an F, each W of a B."""
        ahead = {"F": self.count, "B": self._done["F", stage], "W": self._done["B", stage]}
        return self._done[kind, stage] < ahead[kind]

    def take(self, kind: str, stage: int, times: int = 1) -> None:
        for _ in range(times):
            self.together((kind, stage))

    def each(self, kinds: str, stage: int) -> None:
        for kind in kinds:
            self.take(kind, stage)

    def together(self, *passes: tuple[str, int]) -> None:
        entry = []
        for kind, stage in passes:
            if self.left(kind, stage):
                entry.append((kind, stage, self._done[kind, stage]))
                self._done[kind, stage] += 1
        if entry:
            self.order.append(tuple(entry))

    def oldest_weight(self) -> bool:
        """The W of the B that has waited longest; whether there was one."""
        pending = [one for entry in self.order for one in entry if one[0] == "B"]
        done = {one[1:] for entry in self.order for one in entry if one[0] == "W"}
        for _, stage, index in pending:
            if (stage, index) not in done:
                self.order.append((("W", stage, index),))
                self._done["W", stage] += 1
                return True
        return False
