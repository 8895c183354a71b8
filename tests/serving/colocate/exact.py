"""Engines on one device in plain Python, coupled at every instant: how fast each runs changes whenever what another
does changes, in the middle of a step too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxperf.serving.colocate.overlap import IDLE
from tests.serving.simulator.reference import SCHEDULERS, Batch, Pool, Replica, Request


@dataclass
class Engine:
    """An engine without a pipeline: its requests to come, the batch under way, its state, and the seconds left of the
    batch at full speed."""

    scheduler: str
    numbers: Mapping[str, Any]
    coming: list[Request]
    seconds: Callable[[Batch], float]
    batch: Batch = field(default_factory=list)
    state: int = IDLE
    left: float = 0.0
    replica: Replica = field(init=False)

    def __post_init__(self) -> None:
        pool = (
            Pool(int(self.numbers["blocks"]), int(self.numbers["block_size"]))
            if any(len(one.path) for one in self.coming)
            else None
        )
        self.replica = Replica(self.numbers, truncates=self.scheduler == "sarathi", pool=pool)
        self.coming = list(self.coming)

    def form(self, clock: float) -> None:
        """The next batch, or none where nobody waits who will ever fit."""
        self.state = IDLE
        while self.state == IDLE:
            while self.coming and self.coming[0].arrived <= clock:
                self.replica.wait(self.coming.pop(0))
            self.batch = SCHEDULERS[self.scheduler](self.replica)
            evicted, self.replica.evicted = self.replica.evicted, False
            if self.batch:
                self.left = self.seconds(self.batch) + self.replica.moving * self.numbers.get("swap_seconds", 0.0)
                self.replica.moving = 0
                self.state = 1 if all(one.prefilled for one, _ in self.batch) else 0
                self.replica.launch(self.batch, clock)
            elif not evicted and self.replica.front():
                self.replica.reject()
            elif not evicted:
                return

    def next_event(self, speed: float, clock: float) -> float:
        """When it ends its step at this speed, or has a request again."""
        if self.state != IDLE:
            return clock + self.left / speed
        return self.coming[0].arrived if self.coming else float("inf")

    def advance(self, speed: float, seconds: float, clock: float, due: bool) -> None:
        """So many seconds later, at `clock`; a step that is `due` gives its tokens."""
        self.left -= speed * seconds
        if due and self.state != IDLE:
            self.replica.land(self.batch, clock)
        if due:
            self.form(clock)


def coupled(engines: Sequence[Engine], speeds: Callable[[tuple[int, ...]], Sequence[float]]) -> None:
    """Runs all engines to their ends; what becomes of their requests is written into them."""
    clock = 0.0
    for engine in engines:
        engine.form(clock)
    while True:
        current = speeds(tuple(engine.state for engine in engines))
        events = [engine.next_event(speed, clock) for engine, speed in zip(engines, current, strict=True)]
        ahead = min(events)
        if ahead == float("inf"):
            return
        for engine, speed, event in zip(engines, current, events, strict=True):
            engine.advance(speed, ahead - clock, ahead, event <= ahead)
        clock = ahead
