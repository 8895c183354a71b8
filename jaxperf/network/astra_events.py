"""ASTRA-sim's timing of algorithms whose ranks have different parts or messages different ways: all ranks are followed.

Every rank runs its part of every chunk, a sequence of operations; what happens at the same time happens in the order in
which it was scheduled, as in the simulator's event queue.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jaxperf.network.astra_setup import Dimension


@dataclass(frozen=True)
class Delay:
    """The rank is busy for `time` ns."""

    time: int


@dataclass(frozen=True)
class Send:
    """A message of `size` bytes leaves for rank `to`."""

    to: int
    size: int


@dataclass(frozen=True)
class Receive:
    """The rank waits until one message has come from every rank of `sources`."""

    sources: tuple[int, ...]


Part = Iterator[Delay | Send | Receive]
Message = tuple[int, int, int]  # (rank that sends, rank that receives, chunk)
Action = Callable[[], None]


def followed_cycles(
    dimension: Dimension, parts: Sequence[Sequence[Part]], active_chunks: int, congestion_aware: bool
) -> int:
    """Time at which the last rank is done with its last chunk [ns]; `parts[rank][chunk]` is what a rank does."""
    network = Network(dimension, congestion_aware)
    for rank, chunks in enumerate(parts):
        waiting = deque(enumerate(chunks))
        for _ in range(min(active_chunks, len(chunks))):
            network.at(0, lambda rank=rank, waiting=waiting: _next_chunk(network, rank, waiting))
    return network.run()


@dataclass
class Network:
    """The event queue and links of one dimension; `now` [ns] is the time of the event being handled."""

    dimension: Dimension
    congestion_aware: bool
    now: int = 0
    events: list[tuple[int, int, Action]] = field(default_factory=list)
    scheduled: int = 0
    free: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    arrived: Counter[Message] = field(default_factory=Counter)
    expected: dict[Message, Action] = field(default_factory=dict)

    def at(self, time: int, action: Action) -> None:
        heapq.heappush(self.events, (time, self.scheduled, action))
        self.scheduled += 1

    def run(self) -> int:
        while self.events:
            self.now, _, action = heapq.heappop(self.events)
            action()
        return self.now

    def send(self, message: Message, size: int) -> None:
        """Put a message on its way, over one link after the other or, congestion-unaware, over all in one go."""
        path = route(self.dimension, message[0], message[1])
        wire = size / self.dimension.bytes_per_ns
        if self.congestion_aware:
            self._forward(path, wire, message)
        else:
            time = int((len(path) - 1) * self.dimension.latency + wire)
            self.at(self.now + time, lambda: self._deliver(message))

    def receive(self, message: Message, action: Action) -> None:
        """Do `action` when a message is there that nobody has taken."""
        if self.arrived[message]:
            self.arrived[message] -= 1
            self.at(self.now, action)
        else:
            self.expected[message] = action

    def _forward(self, path: Sequence[int], wire: float, message: Message) -> None:
        if len(path) == 1:
            self._deliver(message)
            return
        link = (path[0], path[1])
        start = max(self.now, self.free[link])
        self.free[link] = start + int(wire)
        self.at(start + int(self.dimension.latency + wire), lambda: self._forward(path[1:], wire, message))

    def _deliver(self, message: Message) -> None:
        if message in self.expected:
            self.expected.pop(message)()
        else:
            self.arrived[message] += 1


def route(dimension: Dimension, source: int, to: int) -> list[int]:
    """Places a message passes: through the switch, straight, or the shorter way around a ring (clockwise in a tie)."""
    if dimension.kind == "Switch":
        return [source, dimension.size, to]
    if dimension.kind == "FullyConnected":
        return [source, to]
    clockwise = (to - source) % dimension.size
    turn = 1 if clockwise <= dimension.size - clockwise else -1
    return [(source + turn * hop) % dimension.size for hop in range(min(clockwise, dimension.size - clockwise) + 1)]


def _next_chunk(network: Network, rank: int, waiting: deque[tuple[int, Part]]) -> None:
    if waiting:
        chunk, part = waiting.popleft()
        _advance(network, rank, chunk, part, waiting)


def _advance(network: Network, rank: int, chunk: int, part: Part, waiting: deque[tuple[int, Part]]) -> None:
    """Run a rank's part up to the next point in time it has to wait for."""

    def proceed() -> None:
        _advance(network, rank, chunk, part, waiting)

    for operation in part:
        if isinstance(operation, Delay):
            network.at(network.now + operation.time, proceed)
            return
        if isinstance(operation, Send):
            network.send((rank, operation.to, chunk), operation.size)
            continue
        missing = set(operation.sources)

        def received(source: int, missing: set[int] = missing) -> None:
            missing.discard(source)
            if not missing:
                proceed()

        for source in operation.sources:
            network.receive((source, rank, chunk), lambda source=source: received(source))
        return
    _next_chunk(network, rank, waiting)
