"""Who meets whom: the collectives and messages of several traces matched, and equal ranks put into one class.

Ranks are in one class where they do the same operations and meet, at the same place, ranks of the same classes: the
coarsest such division, found by refining (Weisfeiler and Lehman 1968; an "equitable partition"). Every rank of a class
then has the same times, because they follow from the same equations; one of each class is replayed, exactly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.training.replay.trace import Operation, Trace, node_words
from jaxperf.training.replay.world import Ranks, World

Place = tuple[int, int]  # index of a trace, position of an operation in it


@dataclass(frozen=True)
class Meeting:
    """A collective or message: the places that take part, of those ranks that have a trace, and all its ranks."""

    places: tuple[Place, ...]
    ranks: Ranks


@dataclass(frozen=True)
class Classes:
    """`of`: the class of each trace; `representatives`: index of one trace a class; `counts`: ranks of each class."""

    of: tuple[int, ...]
    representatives: tuple[int, ...]
    counts: tuple[int, ...]


def meetings_of(traces: Sequence[Trace], world: World) -> dict[Place, Meeting]:
    """What every collective, send and receive takes part in.

    The k-th collective of a rank on a group meets the k-th of the others on it, groups of the same ranks being told
    apart by their names where all of them use these; the k-th message between two ranks with a tag its k-th receive. A
    rank without a trace is taken to be ready whenever it is needed.
    **Raises:** `InputError` naming the nodes where two ranks do not agree.
    """
    told = _told_apart(traces, world)
    collectives: dict[tuple[Ranks, str, int], list[Place]] = defaultdict(list)
    messages: dict[tuple[int, int, int, int], list[Place]] = defaultdict(list)
    for index, trace in enumerate(traces):
        counts: Counter[Hashable] = Counter()
        for position, each in enumerate(trace.operations):
            place = (index, position)
            if each.kind == "collective":
                members = world.members(each, trace.rank, _where(trace, each))
                group = members, each.group if members in told else ""
                collectives[*group, counts[group]].append(place)
                counts[group] += 1
            elif each.kind in ("send", "receive"):
                ends = (trace.rank, each.peer) if each.kind == "send" else (each.peer, trace.rank)
                key = (each.kind, *ends, each.tag)
                messages[*ends, each.tag, counts[key]].append(place)
                counts[key] += 1
    _check_collectives(traces, collectives)
    _check_messages(traces, messages)
    met: dict[Place, Meeting] = {}
    for (members, _, _), places in collectives.items():
        met |= dict.fromkeys(places, Meeting(tuple(places), members))
    for (sender, receiver, _, _), places in messages.items():
        met |= dict.fromkeys(places, Meeting(tuple(places), (sender, receiver)))
    return met


def _told_apart(traces: Sequence[Trace], world: World) -> set[Ranks]:
    """Ranks of several groups whose traced members all call them by the same names."""
    names: dict[Ranks, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for trace in traces:
        for each in trace.operations:
            if each.kind == "collective":
                names[world.members(each, trace.rank, _where(trace, each))][trace.rank].add(each.group)
    return {members for members, used in names.items() if len({frozenset(each) for each in used.values()}) == 1}


def _where(trace: Trace, operation: Operation) -> str:
    return f"{trace.source}, {node_words(operation)}"


def _check_collectives(traces: Sequence[Trace], found: Mapping[tuple[Ranks, str, int], Sequence[Place]]) -> None:
    """All members that have a trace take part, in the same collective of the same size."""
    traced = {trace.rank: trace for trace in traces}
    for (members, _, count), places in found.items():
        first = traces[places[0][0]]
        one = first.operations[places[0][1]]
        here = {traces[index].rank for index, _ in places}
        missing = [rank for rank in members if rank in traced and rank not in here]
        if missing:
            raise InputError(
                f"{_where(first, one)} is collective {count + 1} of its group, of which rank {missing[0]} has only "
                f"{count} ({traced[missing[0]].source})."
            )
        for index, position in places[1:]:
            other = traces[index].operations[position]
            if (other.collective, other.size) != (one.collective, one.size):
                raise InputError(
                    f"{_where(first, one)} is an {one.collective} of {one.size:.0f} bytes, and meets an "
                    f"{other.collective} of {other.size:.0f} bytes: {_where(traces[index], other)}."
                )


def _check_messages(traces: Sequence[Trace], found: Mapping[tuple[int, int, int, int], Sequence[Place]]) -> None:
    """Both ends are there, of those that have a trace."""
    traced = {trace.rank for trace in traces}
    for (sender, receiver, _, _), places in found.items():
        trace = traces[places[0][0]]
        one = trace.operations[places[0][1]]
        if {sender, receiver} <= traced and len(places) != 2:
            other = "receive" if one.kind == "send" else "send"
            raise InputError(f"{_where(trace, one)} finds no {other} in the trace of rank {one.peer}.")


def classes_of(traces: Sequence[Trace], meetings: Mapping[Place, Meeting], prices: Mapping[Place, Hashable]) -> Classes:
    """The coarsest division of the ranks into classes that have the same times.

    **Arguments:** `prices`: what tells the duration of each operation.
    """
    colors = _numbered([_own(trace, index, prices) for index, trace in enumerate(traces)])
    while True:
        refined = _numbered([(colors[index], _met(index, traces, meetings, colors)) for index in range(len(traces))])
        if max(refined) == max(colors):
            break
        colors = refined
    representatives = tuple(colors.index(color) for color in range(max(colors) + 1))
    counts = Counter(colors)
    return Classes(tuple(colors), representatives, tuple(counts[color] for color in range(len(representatives))))


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """Equal values by equal numbers, from 0 in the order of their first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def _own(trace: Trace, index: int, prices: Mapping[Place, Hashable]) -> Hashable:
    """What a rank does by itself: kinds, dependencies by position, prices, streams by their first use."""
    positions = trace.positions
    streams: dict[Hashable, int] = {}
    return tuple(
        (
            each.kind,
            tuple(sorted(positions[before] for before in each.after)),
            prices[index, position],
            streams.setdefault((each.group, each.dimensions), len(streams)),
        )
        for position, each in enumerate(trace.operations)
    )


def _met(index: int, traces: Sequence[Trace], meetings: Mapping[Place, Meeting], colors: Sequence[int]) -> Hashable:
    """Whom a rank meets at each of its operations: classes and positions."""
    places = ((index, position) for position in range(len(traces[index].operations)))
    return tuple(
        frozenset((colors[other], at) for other, at in meetings[place].places) for place in places if place in meetings
    )
