"""A fleet in plain Python: replicas of the plain reference, each with a clock of its own, and a router in front.

Everything happens step by step in order of time, ends of steps before what else happens at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.serving.simulator import reference
from tests.serving.simulator.reference import Pool, Replica, Request

Seconds = Callable[[reference.Batch], float]


@dataclass
class Server:
    """A replica, the requests it was given, and the step under way, which ends at `clock`; ahead of the device, the
    `end` of the step under way, and `clock` is when it began."""

    name: str
    replica: Replica
    clock: float = 0.0
    under_way: reference.Batch = field(default_factory=list)
    coming: list[Request] = field(default_factory=list)
    given: list[Request] = field(default_factory=list)
    end: float = -1.0

    @property
    def outstanding(self) -> int:
        return sum(not self.done(one) and not one.rejected for one in self.given)

    @property
    def ends(self) -> bool:
        """Whether something ends now."""
        return bool(self.under_way) or any(one.completed <= self.clock for one in self.replica.ending)

    def done(self, one: Request) -> bool:
        return one.completed >= 0.0 and one not in self.replica.ending

    def give(self, request: Request) -> None:
        request.number = len(self.given)
        self.given.append(request)
        self.coming.append(request)

    def act(self, seconds: Seconds) -> None:
        """End the step under way, or begin the next."""
        if self.under_way:
            self.replica.land(self.under_way, self.clock)
            self.under_way = []
            return
        if self.ends:
            self.replica.leave(self.clock)
            return
        ahead = "ahead" in self.replica.numbers
        self.replica.late = ahead and self.end > self.clock
        while self.coming and self.coming[0].arrived <= self.clock:
            self.replica.wait(self.coming.pop(0))
        batch = reference.SCHEDULERS[self.name](self.replica)
        evicted, self.replica.evicted = self.replica.evicted, False
        if batch:
            self.replica.launch(batch, self.clock)
            if ahead:
                self.clock = max(self.clock, self.end)
                self.end = self.clock + seconds(batch)
                self.replica.land(batch, self.end)
                return
            self.under_way = batch
            self.clock += seconds(batch) + self.replica.moving * self.replica.numbers.get("swap_seconds", 0.0)
            self.replica.moving = 0
        elif self.replica.late:
            self.clock = self.end
        elif not evicted and self.replica.front():
            self.replica.reject()
        elif not evicted:
            self.clock = max(self.clock, self.coming[0].arrived)


def round_robin(servers: Sequence[Server], number: int, request: Request) -> int:
    return number % len(servers)


def least_outstanding(servers: Sequence[Server], number: int, request: Request) -> int:
    return min(range(len(servers)), key=lambda index: servers[index].outstanding)


def prefix_aware(servers: Sequence[Server], number: int, request: Request) -> int:
    load = [one.outstanding for one in servers]
    if max(load) - min(load) > 64 and max(load) > 1.5 * min(load):
        return least_outstanding(servers, number, request)
    hits = [len(one.replica.pool.hits(request)) if one.replica.pool else 0 for one in servers]
    return min(range(len(servers)), key=lambda index: (-hits[index], load[index], index))


ROUTINGS = {"round_robin": round_robin, "least_outstanding": least_outstanding, "prefix_aware": prefix_aware}


def simulate(
    name: str,
    routing: str,
    replicas: int,
    numbers: Mapping[str, float],
    requests: Sequence[Request],
    seconds: Seconds,
    follow_ups: Sequence[tuple[int, float]] = (),
) -> list[int]:
    """The replica of each request, -1 where it was never sent; the requests are changed in place.

    `follow_ups`: of each request the one it waits for, -1 for none, and how long after its end it is sent.
    """
    cached = any(len(one.path) for one in requests)
    pools = [Pool(int(numbers["blocks"]), int(numbers["block_size"])) if cached else None for _ in range(replicas)]
    servers = [
        Server(name, Replica(dict(numbers), name == "sarathi", pool=pool, queued="ahead" in numbers)) for pool in pools
    ]
    routed = [-1] * len(requests)

    def known(index: int) -> float:
        before, delay = follow_ups[index] if follow_ups else (-1, 0.0)
        if before < 0:
            return requests[index].arrived
        ended = routed[before] >= 0 and servers[routed[before]].done(requests[before])
        return max(requests[index].arrived, requests[before].completed + delay) if ended else math.inf

    while True:
        unsent = [index for index in range(len(requests)) if routed[index] < 0]
        time, following = min(((known(index), index) for index in unsent), default=(math.inf, -1))
        busy = [one for one in servers if one.outstanding]
        first = min(busy, key=lambda one: (one.clock, not one.ends), default=None)
        if first is not None and (first.clock < time or (first.clock == time and first.ends)):
            first.act(seconds)
        elif time < math.inf:
            request, number = requests[following], len(requests) - len(unsent)
            request.arrived = time
            routed[following] = ROUTINGS[routing](servers, number, request)
            servers[routed[following]].give(request)
        else:
            return routed


def disaggregated(
    prefill: tuple[str, str, int, Mapping[str, float]],
    decode: tuple[str, str, int, Mapping[str, float]],
    requests: Sequence[Request],
    wire: Sequence[float],
    latency: float,
    seconds: Seconds,
    first_from_decode: bool,
) -> tuple[list[Request], dict[int, Request]]:
    """The requests in the prefill pool, and by their index those that were decoded; pools are arguments of `simulate`.

    `wire`: how long each request's cache keeps its sender's link busy; `latency`: how much later it is there.
    """
    first = [Request(index, one.arrived, one.prompt, one.prompt + 1) for index, one in enumerate(requests)]
    sender = simulate(*prefill, first, seconds)
    free, crossing = [0.0] * prefill[2], []
    for index in sorted(range(len(first)), key=lambda index: first[index].completed):
        if first[index].rejected or not (first_from_decode or requests[index].total - requests[index].prompt > 1):
            continue
        free[sender[index]] = max(first[index].completed, free[sender[index]]) + wire[index]
        crossing.append((free[sender[index]] + latency, index))
    crossing.sort()
    decoded = {
        index: Request(0, there, one.prompt, one.total, brought=one.prompt - first_from_decode)
        for (there, index), one in ((each, requests[each[1]]) for each in crossing)
    }
    simulate(*decode, list(decoded.values()), seconds)
    return first, decoded
