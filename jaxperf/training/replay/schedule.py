"""List scheduling of jobs on streams: max-plus, exact and the same every time.

A job starts when all it waits for has ended and each of its streams is free; the jobs that wait for a stream take it
in the order in which they became ready, equal times in the order they are given (Graham 1969). A job on several
streams, a collective or a message, starts on all of them at once. The total order makes a deadlock impossible.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

NOTHING = -1  # what a job that starts at time 0 waited for


@dataclass(frozen=True)
class Job:
    """`before`: indices of the jobs it waits for; `streams`: what it occupies, if anything; `duration` [s]."""

    before: tuple[int, ...]
    streams: tuple[Hashable, ...]
    duration: float


@dataclass(frozen=True)
class Schedule:
    """Start and end of each job [s], and the job whose end it waited for last (`NOTHING` for none)."""

    start: tuple[float, ...]
    end: tuple[float, ...]
    binding: tuple[int, ...]

    @property
    def time(self) -> float:
        """When the last job ends [s]."""
        return max(self.end, default=0.0)

    def critical_path(self) -> list[int]:
        """Jobs from time 0 to the last end, each starting when the one before it ends."""
        at = max(range(len(self.end)), key=self.end.__getitem__)
        found = []
        while at != NOTHING:
            found.append(at)
            at = self.binding[at]
        return found[::-1]


def list_schedule(jobs: Sequence[Job]) -> Schedule:
    """The schedule of jobs that do not wait for one another in a circle."""
    following: list[list[int]] = [[] for _ in jobs]
    waiting = [len(set(job.before)) for job in jobs]
    for index, job in enumerate(jobs):
        for before in set(job.before):
            following[before].append(index)
    queues: dict[Hashable, list[tuple[float, int]]] = {stream: [] for job in jobs for stream in job.streams}
    last: dict[Hashable, int] = {}  # job that used a stream last
    running: set[Hashable] = set()
    start, end, binding = [0.0] * len(jobs), [0.0] * len(jobs), [NOTHING] * len(jobs)
    ending: list[tuple[float, int]] = []

    def launch(index: int, now: float) -> None:
        job = jobs[index]
        earlier = (*job.before, *(last[stream] for stream in job.streams if stream in last))
        start[index], end[index] = now, now + job.duration
        binding[index] = max(earlier, key=lambda other: (end[other], other), default=NOTHING)
        for stream in job.streams:
            heapq.heappop(queues[stream])
            running.add(stream)
            last[stream] = index
        heapq.heappush(ending, (end[index], index))

    def enqueue(index: int, ready: float) -> None:
        for stream in jobs[index].streams:
            heapq.heappush(queues[stream], (ready, index))
        if not jobs[index].streams:
            launch(index, ready)

    def launch_first_of(streams: Sequence[Hashable], now: float) -> None:
        """Start what stands first on all of its streams."""
        for stream in streams:
            if stream in running or not queues[stream]:
                continue
            index = queues[stream][0][1]
            if not any(other in running or queues[other][0][1] != index for other in jobs[index].streams):
                launch(index, now)

    for index, count in enumerate(waiting):
        if count == 0:
            enqueue(index, 0.0)
    launch_first_of(list(queues), 0.0)
    while ending:
        now = ending[0][0]
        touched: list[Hashable] = []
        while ending and ending[0][0] == now:  # all that ends together, before anything starts
            index = heapq.heappop(ending)[1]
            running.difference_update(jobs[index].streams)
            touched += jobs[index].streams
            for later in following[index]:
                waiting[later] -= 1
                if waiting[later] == 0:
                    enqueue(later, now)
                    touched += jobs[later].streams
        launch_first_of(touched, now)
    return Schedule(tuple(start), tuple(end), tuple(binding))
