"""ASTRA-sim's timing of algorithms in which all ranks do the same: one rank stands for all of them.

What a rank sends at some time, its mirror image sends it at the same time; so a step is over when the rank's own
messages have arrived. Chunks queue for a dimension in order of arrival, messages for a link in order of departure.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from jaxperf.network.astra_setup import Dimension, Settings
from jaxperf.network.astra_steps import Phase, Step

Send = Callable[[int, Step], int]


def lockstep_cycles(
    dimensions: Sequence[Dimension], chunks: Sequence[Sequence[Phase]], settings: Settings, congestion_aware: bool
) -> int:
    """Time at which the last chunk has been through its phases [ns]."""
    sends = [_queued(dimension) if congestion_aware else _unqueued(dimension) for dimension in dimensions]
    waiting: list[deque[int]] = [deque() for _ in dimensions]
    room = [settings.active_chunks] * len(dimensions)
    phase_of, step_of = [0] * len(chunks), [0] * len(chunks)
    events: list[tuple[int, int, int]] = []  # (time, order of scheduling, chunk): a chunk ready for its next step
    order = 0

    def admit(dimension: int, now: int) -> None:
        nonlocal order
        while waiting[dimension] and room[dimension]:
            room[dimension] -= 1
            heapq.heappush(events, (now + settings.endpoint_delay, order, waiting[dimension].popleft()))
            order += 1

    for chunk, phases in enumerate(chunks):
        waiting[phases[0].dimension].append(chunk)
    admit(chunks[0][0].dimension, 0)
    now = 0
    while events:
        now, _, chunk = heapq.heappop(events)
        phase = chunks[chunk][phase_of[chunk]]
        if step_of[chunk] < len(phase.steps):
            step = phase.steps[step_of[chunk]]
            step_of[chunk] += 1
            done = sends[phase.dimension](now, step) + settings.endpoint_delay + step.reduction
            heapq.heappush(events, (done, order, chunk))
            order += 1
            continue
        phase_of[chunk], step_of[chunk] = phase_of[chunk] + 1, 0
        room[phase.dimension] += 1
        if phase_of[chunk] < len(chunks[chunk]):
            following = chunks[chunk][phase_of[chunk]].dimension
            waiting[following].append(chunk)
            admit(following, now)
        admit(phase.dimension, now)
    return now


def _unqueued(dimension: Dimension) -> Send:
    """Congestion-unaware: every message has the links for itself and is put on the wire once, hops lambda + m / B."""

    def send(now: int, step: Step) -> int:
        hops = {"Switch": 2, "FullyConnected": 1}.get(
            dimension.kind, min(step.distance, dimension.size - step.distance)
        )
        return now + int(hops * dimension.latency + step.size / dimension.bytes_per_ns)

    return send


def _queued(dimension: Dimension) -> Send:
    """Congestion-aware: links are queues that are busy for m / B, and a switch stores a message before it forwards it.

    Each pair of a full connection has its own link; behind a switch all messages of a rank share one link up and one
    down.
    """
    hops = 2 if dimension.kind == "Switch" else 1
    free: dict[tuple[int, int], int] = defaultdict(int)  # (which link, hop): the time it is free again

    def send(now: int, step: Step) -> int:
        wire = step.size / dimension.bytes_per_ns
        link = step.distance if dimension.kind == "FullyConnected" else 0
        arrival = now
        for _ in range(step.peers if dimension.kind == "Switch" else 1):
            arrival = now
            for hop in range(hops):
                start = max(arrival, free[link, hop])
                free[link, hop] = start + int(wire)
                arrival = start + int(dimension.latency + wire)
        return arrival

    return send
