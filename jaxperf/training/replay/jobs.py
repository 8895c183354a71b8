"""The jobs of one rank of each class: one for each operation, and one for all that meet in a collective.

A message is on its way as soon as its sender is ready and does not wait for the receiver; the receive ends when both
have come (ASTRA-sim's semantics). A collective starts when its last rank is ready (NCCL's).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from hwspecs.errors import InputError
from jaxperf.training.replay.ranks import Classes, Meeting, Place
from jaxperf.training.replay.schedule import Job
from jaxperf.training.replay.trace import COMMUNICATION, Operation, Trace, circle_words, find_circle


def jobs_of(
    traces: Sequence[Trace],
    meetings: Mapping[Place, Meeting],
    classes: Classes,
    duration: Mapping[Place, float],
    one_stream: bool,
) -> tuple[dict[Place, int], list[Job]]:
    """The job of each place of a representative, and the jobs.

    **Arguments:** `duration`: of each operation [s]; `one_stream`: one message at a time on a rank, in place of a
    stream for each group and direction.
    **Raises:** `InputError` where operations of several ranks wait for one another in a circle.
    """
    job_of, parts = _parts(traces, meetings, classes)
    jobs = []
    for places in parts:
        before: set[int] = set()
        streams: dict[Hashable, None] = {}
        times = []
        for place in places:
            index, position = place
            trace, operation = traces[index], traces[index].operations[position]
            before |= {job_of[index, trace.positions[each]] for each in operation.after}
            sender = sender_of(place, operation, meetings, classes)
            before |= {job_of[sender]} if sender is not None else set()
            times.append(duration[place] if sender is None else 0.0)
            streams |= {(index, stream): None for stream in _streams(operation, one_stream)}
        jobs.append(Job(tuple(sorted(before)), tuple(streams), max(times)))
    circle = find_circle([job.before for job in jobs])
    if circle:
        first = [parts[job][0] for job in circle]
        words = circle_words([traces[index].operations[position] for index, position in first])
        raise InputError(f"{traces[first[0][0]].source} and the traces it meets: {words}")
    return job_of, jobs


def _parts(
    traces: Sequence[Trace], meetings: Mapping[Place, Meeting], classes: Classes
) -> tuple[dict[Place, int], list[list[Place]]]:
    """The job of each place, and the places of each job."""
    job_of: dict[Place, int] = {}
    parts: list[list[Place]] = []
    for index in classes.representatives:
        for position, operation in enumerate(traces[index].operations):
            place = index, position
            if place in job_of:
                continue
            met = {place}
            if operation.kind == "collective":
                met |= {_representative(other, classes) for other in meetings[place].places}
            job_of |= dict.fromkeys(met, len(parts))
            parts.append(sorted(met))
    return job_of, parts


def _representative(place: Place, classes: Classes) -> Place:
    """The same place in the representative of its class."""
    return classes.representatives[classes.of[place[0]]], place[1]


def sender_of(place: Place, operation: Operation, meetings: Mapping[Place, Meeting], classes: Classes) -> Place | None:
    """Where a receive's message is sent, if that rank has a trace."""
    if operation.kind != "receive":
        return None
    own = meetings[place].places
    return next((_representative(other, classes) for other in own if other != place), None)


def _streams(operation: Operation, one_stream: bool) -> tuple[Hashable, ...]:
    """What an operation occupies on its rank."""
    if operation.kind in ("none", "receive"):
        return ()
    if operation.kind not in COMMUNICATION:
        return (operation.kind,)
    return ("communication",) if one_stream else ((operation.kind, operation.group, operation.dimensions),)
