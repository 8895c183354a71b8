"""An execution trace as one rank recorded it: operations, what each waits for, and who takes part in its messages.

Built by the readers of `jaxperf.io` or by hand; validated where it is built, so that what replays it can rely on it.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hwspecs.errors import InputError

COMMUNICATION = ("collective", "send", "receive")
WORK = ("compute", "load", "store")  # of the device
COLLECTIVES: Sequence[str] = (  # in the order of Chakra's enumeration
    "all_reduce reduce all_gather gather scatter broadcast all_to_all reduce_scatter reduce_scatter_block barrier"
).split()
WORLD = ""  # the name of the group of all ranks


@dataclass(frozen=True)
class Operation:
    """One operation of one rank.

    `kind`: "host", "none", or one of `COMMUNICATION` or `WORK`;
    `after`: ids of the operations it waits for; `duration`: as recorded, 0 where nothing was [s]; `flops` [FLOP];
    `bytes_moved`: of device memory [byte]; `collective`: one of `COLLECTIVES`; `size`: of the message [byte], which is
    one rank's shard for an all-gather and one rank's whole buffer for every other collective; `group`: the name of the
    ranks that take part; `dimensions`: which dimensions of the topology take part, where a trace says it that way;
    `peer`: the other rank of a send or receive; `tag`: tells messages between the same two ranks apart.
    """

    id: int
    name: str
    kind: str
    after: tuple[int, ...] = ()
    duration: float = 0.0
    flops: float = 0.0
    bytes_moved: float = 0.0
    collective: str = ""
    size: float = 0.0
    group: str = WORLD
    dimensions: tuple[bool, ...] = ()
    peer: int = -1
    tag: int = 0


@dataclass(frozen=True)
class Trace:
    """What one rank did. `groups`: ranks of each group by its name; `descriptions`: what a group is for, by its name;
    `source`: the file, for messages.

    **Raises:** `InputError` naming the nodes for ids that are given twice, dependencies on nodes that are not there,
    and nodes that wait for one another in a circle.
    """

    rank: int
    operations: tuple[Operation, ...]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    source: str = "trace"

    def __post_init__(self) -> None:
        if not self.operations:
            raise InputError(f"{self.source} holds no nodes.")
        positions = self.positions
        for position, each in enumerate(self.operations):
            if positions[each.id] != position:
                raise InputError(f"{self.source}: two nodes have the id {each.id}.")
            for before in each.after:
                if before not in positions:
                    raise InputError(
                        f"{self.source}: {node_words(each)} waits for node {before}, which is not in the trace."
                    )
        circle = find_circle([[positions[before] for before in each.after] for each in self.operations])
        if circle:
            raise InputError(f"{self.source}: {circle_words([self.operations[index] for index in circle])}")

    @functools.cached_property
    def positions(self) -> dict[int, int]:
        """Where each id stands among the operations."""
        return {each.id: position for position, each in enumerate(self.operations)}


def node_words(operation: Operation) -> str:
    """How a message names a node."""
    return f"node {operation.id}" + (f" '{operation.name}'" if operation.name else "")


def circle_words(operations: Sequence[Operation]) -> str:
    """Operations each of which waits for the next, and the last for the first; a long circle is shortened."""
    named = [node_words(each) for each in (*operations, operations[0])]
    shown = named if len(named) <= 7 else [*named[:4], f"{len(named) - 6} more", *named[-2:]]
    return f"nodes wait for one another in a circle: {', which waits for '.join(shown)}."


def find_circle(before: Sequence[Sequence[int]]) -> list[int]:
    """Positions each of which comes after the next and the last after the first; empty where there is an order.

    Kahn's algorithm takes away all that can be ordered; whoever is left has a predecessor that is left too.
    **Arguments:** `before`: for each position those that come before it.
    """
    waiting = [len(set(each)) for each in before]
    following: list[list[int]] = [[] for _ in before]
    for position, each in enumerate(before):
        for earlier in set(each):
            following[earlier].append(position)
    free = deque(position for position, count in enumerate(waiting) if count == 0)
    while free:
        for later in following[free.popleft()]:
            waiting[later] -= 1
            if waiting[later] == 0:
                free.append(later)
    left = [position for position, count in enumerate(waiting) if count > 0]
    if not left:
        return []
    seen: dict[int, int] = {}
    at = left[0]
    while at not in seen:
        seen[at] = len(seen)
        at = next(earlier for earlier in before[at] if waiting[earlier] > 0)
    return list(seen)[seen[at] :]
