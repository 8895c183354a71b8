"""Traces replayed: every operation priced, equal ranks collapsed, one rank of each class scheduled on its streams.

The result is exact for the prices; messages that share a link at the same time do not slow one another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hwspecs.errors import InputError
from jaxperf.training.replay.demands import Rules, demands_of
from jaxperf.training.replay.jobs import jobs_of, sender_of
from jaxperf.training.replay.prices import Demand, Machine, demand_times
from jaxperf.training.replay.ranks import Classes, Meeting, Place, classes_of, meetings_of
from jaxperf.training.replay.schedule import Schedule, list_schedule
from jaxperf.training.replay.trace import COMMUNICATION, Operation, Trace
from jaxperf.training.replay.world import World


@dataclass(frozen=True)
class Replayed:
    """One operation of a representative rank: when it ran [s]."""

    rank: int
    operation: Operation
    start: float
    end: float


@dataclass(frozen=True)
class RankTimes:
    """One rank of a class of `ranks` equal ones: when its last operation ends, how long it computes, communicates, and
    communicates without computing [s]."""

    rank: int
    ranks: int
    time: float
    compute: float
    communication: float
    exposed_communication: float


@dataclass(frozen=True)
class Replay:
    """`time`: until the last rank is done [s]; `critical`: seconds of the longest chain by kind of operation."""

    time: float
    ranks: tuple[RankTimes, ...]
    operations: tuple[Replayed, ...]
    critical: Mapping[str, float]


def replay(
    traces: Sequence[Trace], world: World, machine: Machine, rules: Rules | None = None, one_stream: bool = False
) -> Replay:
    """The traces replayed by as many ranks as `world` has.

    **Arguments:** `one_stream`: one message at a time on a rank, as in ASTRA-sim.
    **Raises:** `InputError` naming the nodes for what has no price, ranks that do not agree, and operations of several
    ranks that wait for one another in a circle.
    """
    kept = [trace for trace in traces if world.along(trace.rank) < world.grown_size]
    if not kept:
        raise InputError(f"None of the traces is of one of the {world.ranks} ranks that are left.")
    meetings = meetings_of(kept, world)
    demands = demands_of(kept, meetings, world, int(machine.device.node_size), rules or Rules())
    classes = classes_of(kept, meetings, demands)
    duration = _durations(demands, machine)
    job_of, jobs = jobs_of(kept, meetings, classes, duration, one_stream)
    schedule = list_schedule(jobs)
    operations = tuple(
        Replayed(kept[place[0]].rank, kept[place[0]].operations[place[1]], start, schedule.end[job_of[place]])
        for place, start in _starts(kept, job_of, meetings, classes, schedule)
    )
    counts = [round(Fraction(count * world.ranks, len(kept))) for count in classes.counts]  # traces stand for others
    representatives = [kept[index].rank for index in classes.representatives]
    times = (_rank_times(rank, count, operations) for rank, count in zip(representatives, counts, strict=True))
    return Replay(schedule.time, tuple(times), operations, _critical(schedule, job_of, kept))


def _starts(
    traces: Sequence[Trace],
    job_of: Mapping[Place, int],
    meetings: Mapping[Place, Meeting],
    classes: Classes,
    schedule: Schedule,
) -> Iterator[tuple[Place, float]]:
    """When each operation of a representative starts: a receive with its message, once its rank is ready for it [s]."""
    for place, job in sorted(job_of.items()):
        trace, operation = traces[place[0]], traces[place[0]].operations[place[1]]
        sender = sender_of(place, operation, meetings, classes)
        if sender is None:
            yield place, schedule.start[job]
            continue
        own = (schedule.end[job_of[place[0], trace.positions[before]]] for before in operation.after)
        yield place, max(schedule.start[job_of[sender]], *own, 0.0)


def _durations(demands: Mapping[Place, Demand | float], machine: Machine) -> dict[Place, float]:
    times = demand_times((demand for demand in demands.values() if isinstance(demand, Demand)), machine)
    return {place: times[demand] if isinstance(demand, Demand) else demand for place, demand in demands.items()}


def _rank_times(rank: int, ranks: int, operations: Sequence[Replayed]) -> RankTimes:
    own = [each for each in operations if each.rank == rank]
    compute = _union(own, lambda kind: kind == "compute")
    communication = _union(own, lambda kind: kind in COMMUNICATION)
    either = _union(own, lambda kind: kind == "compute" or kind in COMMUNICATION)
    return RankTimes(rank, ranks, max(each.end for each in own), compute, communication, either - compute)


def _union(operations: Sequence[Replayed], wanted: Callable[[str], bool]) -> float:
    """How long at least one of the wanted operations runs [s]."""
    total, reached = 0.0, 0.0
    for start, end in sorted((each.start, each.end) for each in operations if wanted(each.operation.kind)):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total


def _critical(schedule: Schedule, job_of: Mapping[Place, int], traces: Sequence[Trace]) -> dict[str, float]:
    """Seconds of the critical path by kind of operation, of collectives by their name; the longest first."""
    place_of = {job: place for place, job in job_of.items()}
    found: dict[str, float] = defaultdict(float)
    for job in schedule.critical_path():
        index, position = place_of[job]
        operation = traces[index].operations[position]
        found[operation.collective or operation.kind] += schedule.end[job] - schedule.start[job]
    return dict(sorted(found.items(), key=lambda item: -item[1]))
