"""Ranks and their groups when the run grows: which dimension grows, and where everybody is then placed.

Ranks are numbers in a mixed radix. The growing dimension has `size` ranks a `stride` apart: rank = (outer size +
along) stride + inner. Growing it by a factor leaves outer, along and inner alone and gives `along` more values, so the
layout inside and outside (tensor or pipeline groups) stays what it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.training.replay.trace import WORLD, Operation, Trace

Ranks = tuple[int, ...]
ALL = "world"  # how a user names the group of all ranks
MOST_RANKS = 1 << 20  # of a run, whose groups are listed rank by rank


@dataclass(frozen=True)
class World:
    """The ranks of a recorded run and of the one it is replayed as.

    `recorded`, `ranks`: their numbers; `groups`: recorded ranks by a group's name, of all groups that traces of
    different ranks give this name; `descriptions`: what a group is for,
    by its name; `dimensions`: sizes of the dimensions of the recorded run, innermost first; `stride`, `size`: of the
    growing dimension as recorded.
    """

    recorded: int
    ranks: int
    groups: Mapping[str, tuple[Ranks, ...]]
    descriptions: Mapping[str, str]
    dimensions: Ranks
    stride: int = 1
    size: int = 1

    @property
    def grown_size(self) -> int:
        """Ranks of the growing dimension after it has grown."""
        return int(self.size * self.factor)

    @property
    def factor(self) -> Fraction:
        """How many times the recorded ranks there are."""
        return Fraction(self.ranks, self.recorded)

    def names_of(self, wanted: Iterable[str]) -> frozenset[str]:
        """The groups of these names or descriptions; "world" is all ranks. Raises `InputError` for one there is not."""
        found: set[str] = set()
        for word in wanted:
            names = {name for name in self.groups if word in (name or ALL, self.descriptions.get(name))}
            if not names:
                allowed = sorted({*(name or ALL for name in self.groups), *filter(None, self.descriptions.values())})
                raise InputError(
                    f"No group is named or described '{word}'; there are {', '.join(allowed)}."
                    f"{did_you_mean(word, allowed)}"
                )
            found |= names
        return frozenset(found)

    def members(self, operation: Operation, rank: int, where: str) -> Ranks:
        """The recorded ranks that take part in a collective of `rank`. Raises `InputError` where they are not known."""
        if operation.dimensions and not all(operation.dimensions):
            found = self._along(operation.dimensions, rank, where)
        elif operation.group in self.groups:
            found = self._named(operation.group, rank, where)
        else:
            known = ", ".join(name or ALL for name in self.groups)
            raise InputError(
                f"{where}: the ranks of group '{operation.group}' are not known (known: {known}); give --groups FILE."
            )
        return found

    def _named(self, name: str, rank: int, where: str) -> Ranks:
        """The group of that name that a rank is in."""
        found = [members for members in self.groups[name] if rank in members]
        if not found:
            raise InputError(f"{where}: rank {rank} is not in the group '{name}' it takes part in.")
        if len(found) > 1:
            raise InputError(
                f"{where}: rank {rank} is in two groups that traces name '{name}', {words(found[0])} and "
                f"{words(found[1])}; give --groups FILE."
            )
        return found[0]

    def _along(self, involved: Sequence[bool], rank: int, where: str) -> Ranks:
        """Ranks that differ from `rank` in the involved dimensions only."""
        if len(involved) < len(self.dimensions) or not self.dimensions:
            raise InputError(f"{where} names dimensions of the topology; give --dims, their sizes, innermost first.")
        found, stride = [rank], 1
        for size, takes_part in zip(self.dimensions, involved, strict=False):
            if takes_part:
                base = [each - (each % (stride * size)) + each % stride for each in found]
                found = [start + step * stride for start in base for step in range(size)]
            stride *= size
        return tuple(sorted(set(found)))

    def moved(self, rank: int) -> int:
        """The number that a recorded rank has after growing."""
        outer, inner = divmod(rank, self.stride * self.size)
        return outer * self.stride * self.grown_size + inner

    def along(self, rank: int) -> int:
        """Where a recorded rank stands in the growing dimension."""
        return divmod(rank % (self.stride * self.size), self.stride)[0]

    def grown(self, members: Ranks, where: str) -> Iterator[Ranks]:
        """The groups of the replayed run that a recorded one stands for.

        One that holds the whole growing dimension grows with it. Any other must lie at one place of it and is there
        once for each place, perhaps in other nodes than the recorded one.
        **Raises:** `InputError` for a group that holds a part of the growing dimension.
        """
        if self.grows(members):
            first = sorted({rank - self.along(rank) * self.stride for rank in members})
            steps = [step * self.stride for step in range(self.grown_size)]
            yield tuple(self.moved(rank) + step for rank in first for step in steps)
        elif self.factor == 1:
            yield members
        elif not self.parts(members):
            first = [self.moved(rank - self.along(rank) * self.stride) for rank in members]
            for step in range(self.grown_size):
                yield tuple(rank + step * self.stride for rank in first)
        else:
            raise InputError(
                f"{where} goes along the ranks that grow, but not to all of them; name the group that grows (--grow)."
            )

    def grows(self, members: Ranks) -> bool:
        """Whether a group holds the whole growing dimension, once or several times."""
        first = {rank - self.along(rank) * self.stride for rank in members}
        return len(members) == len(first) * self.size

    def parts(self, members: Ranks) -> bool:
        """Whether the growing dimension has these ranks at different places."""
        return len({self.along(rank) for rank in members}) > 1


class Placement(NamedTuple):
    """How a group lies in nodes: its `ranks`, how many are in the fullest node and in that with the `fewest`."""

    ranks: int
    nodes: int
    fullest: int
    fewest: int


def placement(ranks: Sequence[int], node_size: int) -> Placement:
    """The placement of a group, ranks being placed in nodes one after the other."""
    nodes = Counter(divmod(rank, node_size)[0] for rank in ranks)
    return Placement(len(ranks), len(nodes), max(nodes.values()), min(nodes.values()))


def widest_placement(groups: Iterable[Sequence[int]], node_size: int) -> Placement:
    """The placement of that group which lies in the most nodes, and of these with the fewest ranks in one."""
    placed = (placement(ranks, node_size) for ranks in groups)
    return max(placed, key=lambda each: (each.nodes, -each.fewest, -each.fullest))


def world_of(
    traces: Sequence[Trace],
    ranks: int | None = None,
    recorded: int | None = None,
    groups: Mapping[str, Ranks] | None = None,
    dimensions: Ranks = (),
    grow: Sequence[str] = (),
) -> World:
    """The world of some traces.

    **Arguments:** `ranks`: of the replayed run (default: as recorded); `recorded`: of the recorded run (default: as
    many as the traces, their groups and `dimensions` name); `groups`: beside those of the traces; `dimensions`: sizes
    innermost first; `grow`: names or descriptions of the groups along which the run grows (default: all ranks).
    **Raises:** `InputError` for numbers that contradict each other, and for a growing dimension that is not regular.
    """
    named: dict[str, tuple[Ranks, ...]] = {}
    for name, members in (group for trace in traces for group in trace.groups.items()):
        named[name] = tuple(dict.fromkeys((*named.get(name, ()), tuple(sorted(members)))))
    named |= {name: (tuple(members),) for name, members in (groups or {}).items()}
    texts = {name: text for trace in traces for name, text in trace.descriptions.items()}
    seen = [trace.rank for trace in traces] + [
        rank for alike in named.values() for members in alike for rank in members
    ]
    seen += [each.peer for trace in traces for each in trace.operations if each.kind in ("send", "receive")]
    least, product = max(seen) + 1, math.prod(dimensions)
    known = recorded or (product if dimensions else least)
    if known < least:
        raise InputError(f"The traces name rank {least - 1}, so {least} ranks or more were recorded, not {known}.")
    if dimensions and product != known:
        raise InputError(f"Dimensions of {' x '.join(map(str, dimensions))} make {product} ranks, not {known}.")
    wanted = known if ranks is None else ranks
    if max(known, wanted) > MOST_RANKS:
        raise InputError(f"{max(known, wanted):,} ranks are more than the {MOST_RANKS:,} that can be replayed.")
    world = World(known, wanted, {WORLD: (tuple(range(known)),)} | named, texts, dimensions)
    stride, size = _growing(world, grow or (ALL,))
    if (size * wanted) % known:
        raise InputError(
            f"{wanted} ranks do not divide: {known} were recorded, {size} of them along the ranks that grow, so the "
            f"number must be a multiple of {int(Fraction(known, size))}."
        )
    return replace(world, stride=stride, size=size)


def _growing(world: World, grow: Sequence[str]) -> tuple[int, int]:
    """(stride, size) of the dimension along which the run grows."""
    groups = ((name, members) for name in sorted(world.names_of(grow)) for members in world.groups[name])
    found = {_regular(name or ALL, members, world.recorded): name for name, members in groups}
    if len(found) > 1:
        shown = ", ".join(name or ALL for name in found.values())
        raise InputError(f"The groups {shown} lie along different dimensions; only one can grow.")
    return next(iter(found))


def words(members: Ranks) -> str:
    """How a message shows a group's ranks."""
    shown = ", ".join(map(str, members[:4]))
    return f"({shown}, ... {members[-1]})" if len(members) > 5 else f"({', '.join(map(str, members))})"


def _regular(name: str, members: Ranks, recorded: int) -> tuple[int, int]:
    """(stride, size) of a group whose ranks are equally far apart and tile the recorded run."""
    ordered = sorted(members)
    steps = {later - earlier for earlier, later in zip(ordered, ordered[1:], strict=False)} or {1}
    stride = steps.pop()
    if steps or recorded % (stride * len(members)):
        raise InputError(
            f"Group '{name}' cannot grow: its {len(members)} ranks are not equally far apart, or do not tile the "
            f"{recorded} recorded ones."
        )
    return stride, len(members)
