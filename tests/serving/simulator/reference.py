"""Schedulers in plain Python, step by step with lists, as their sources do it: what the compiled ones must agree with.

Vidur's (v0, Sarathi, Orca, static batching, LightLLM) follow its replica schedulers, vLLM v1 the public scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Request:
    number: int
    arrived: float
    prompt: int
    total: int
    processed: int = 0
    blocks: int = 0
    restarts: int = 0
    scheduled: float = -1.0
    first_token: float = -1.0
    completed: float = -1.0
    rejected: bool = False
    path: Sequence[int] = ()
    held: list[int] = field(default_factory=list)
    copied: bool = False
    brought: int = 0
    priority: int = 0
    admission: int = -1
    until: float = -1.0

    @property
    def prefilled(self) -> bool:
        return self.processed >= self.prompt

    @property
    def whole(self) -> bool:
        return self.brought == self.prompt

    def start(self, cached: int = 0) -> None:
        """Admitted with what is there of its prompt; with all of it the first token was made before it came."""
        self.processed = max(cached, self.brought) + self.whole
        if self.whole and self.first_token < 0.0:
            self.first_token = self.arrived


class Pool:
    """The physical blocks of vLLM v1: a queue of free ones, what each holds, and who holds it."""

    def __init__(self, blocks: int, size: int) -> None:
        self.size = size
        self.queue = list(range(blocks))
        self.node: dict[int, int] = {}
        self.block: dict[int, int] = {}
        self.holders = [0] * blocks

    def hits(self, request: Request) -> list[int]:
        """The blocks of the longest cached prefix; at least one token of the prompt is left to compute."""
        found: list[int] = []
        for node in request.path[: (request.prompt - 1) // self.size]:
            if node not in self.block:
                break
            found.append(self.block[node])
        return found

    def touch(self, request: Request, blocks: list[int]) -> None:
        for block in blocks:
            if not self.holders[block]:
                self.queue.remove(block)
            self.holders[block] += 1
        request.held += blocks

    def take(self, request: Request, number: int) -> None:
        """New blocks from the front of the queue; what they held is forgotten."""
        for _ in range(number):
            block = self.queue.pop(0)
            node = self.node.pop(block, None)
            if node is not None:
                del self.block[node]
            self.holders[block] = 1
            request.held.append(block)

    def remember(self, request: Request, tokens: int) -> None:
        """Full blocks get their node. One that is there already is a copy: it and what follows it stay unknown."""
        for place in range(tokens // self.size):
            block, node = request.held[place], request.path[place]
            request.copied |= self.block.get(node, block) != block
            if request.copied:
                break
            self.block[node], self.node[block] = block, node

    def release(self, request: Request) -> None:
        """Blocks without a node to the front of the queue, the others, from the last, to its end."""
        for block in reversed(request.held):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.queue.insert(len(self.queue) if block in self.node else 0, block)
        request.held, request.copied = [], False


@dataclass
class Replica:
    """The numbers of the scheduler and its queues; `running` as Vidur's list of requests between two batches, which
    does not have those `flying` in one. In vLLM's queue of batches (`queued`) what a batch will have done counts when
    it is formed, but those whose last token is under way are `ending`, and in a pipeline a decode waits `until` its
    token is there; ahead of the device `late` says that the token which a decode is making is not known."""

    numbers: Mapping[str, Any]
    truncates: bool = False
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    flying: list[Request] = field(default_factory=list)
    admissions: int = 0
    used: int = 0
    pool: Pool | None = None
    evicted: bool = False
    waited: int = 0
    swapped: list[Request] = field(default_factory=list)
    host: int = 0
    moving: int = 0
    ending: list[Request] = field(default_factory=list)
    late: bool = False
    queued: bool = False
    clock: float = 0.0

    @property
    def free(self) -> int:
        return self.numbers["blocks"] - self.used if self.pool is None else len(self.pool.queue)

    @property
    def held(self) -> int:
        return len(self.running) + len(self.flying) + len(self.ending)

    def pages(self, tokens: int) -> int:
        return math.ceil(tokens / self.numbers["block_size"])

    def growth(self) -> int:
        """Blocks that the decodes take before their next step."""
        size = self.numbers["block_size"]
        return sum(one.prefilled and one.processed > one.blocks * size for one in self.running)

    def take(self, request: Request, blocks: int) -> None:
        request.blocks += blocks
        self.used += blocks
        if self.pool is not None:
            self.pool.take(request, blocks)

    def release(self, request: Request) -> None:
        self.used -= request.blocks
        request.blocks = 0
        if self.pool is not None:
            self.pool.release(request)

    def front(self) -> Request | None:
        """Who is next, of those that wait and those that were swapped out."""
        return min(self.waiting[:1] + self.swapped[:1], key=lambda one: one.number, default=None)

    def reject(self) -> None:
        request = self.front()
        assert request is not None
        request.rejected = True
        if request in self.swapped:
            self.host -= self.pages(self.swapped.pop(0).processed - 1)
        else:
            self.waiting.pop(0)

    def restart(self, request: Request) -> None:
        self.evicted, request.admission = True, -1
        if self.host + request.blocks <= self.numbers.get("swap_blocks", -1):
            self.host += request.blocks
            self.moving += request.blocks
            self.release(request)
            self.swapped.insert(0, request)
            return
        self.release(request)
        request.prompt = request.processed if self.truncates else max(request.prompt, request.processed)
        request.processed = request.brought = 0
        request.until = -1.0
        request.restarts += 1
        self.wait(request)

    def wait(self, request: Request) -> None:
        self.waiting.append(request)
        self.waiting.sort(key=lambda one: (one.priority, one.number))

    def launch(self, batch: Batch, clock: float) -> None:
        for request, _ in batch:
            if request.admission < 0:
                request.admission = self.admissions
                self.admissions += 1
            if request.scheduled < 0.0:
                request.scheduled = clock
        self.flying += [request for request, _ in batch]
        self.running = [one for one in self.running if one not in self.flying]

    def land(self, batch: Batch, end: float) -> None:
        """The tokens of a batch that has left; the running are in order of admission, in a pipeline of arrival."""
        for request, tokens in batch:
            self.flying.remove(request)
            request.until = end if self.queued and not self.numbers.get("ahead") else -1.0
            decoded = request.prefilled
            request.processed += tokens
            if not decoded and request.processed == request.prompt:
                request.processed += 1
                request.first_token = end if request.first_token < 0.0 else request.first_token
            if request.processed == request.total:
                request.completed = end
                (self.ending.append if self.queued else self.release)(request)
            else:
                self.running.append(request)
        self.running.sort(key=lambda one: one.number if "stages" in self.numbers else one.admission)

    def leave(self, clock: float) -> None:
        """Those whose last token is there give back their blocks; all but that token is in them."""
        for request in [one for one in self.ending if one.completed <= clock]:
            self.ending.remove(request)
            if self.pool is not None:
                self.pool.remember(request, min(request.total - 1, len(request.held) * self.numbers["block_size"]))
            self.release(request)

    def remember(self, request: Request, stored: int) -> None:
        """The blocks that are full of tokens which are known, `stored` of them in the cache after this step."""
        if self.pool is not None:
            self.pool.remember(request, stored - (self.late and request.prefilled))

    def evict(self, victim: Request) -> None:
        """Out of what runs; one whose last token is under way loses its blocks and ends all the same."""
        if victim in self.ending:
            self.evicted = True
            self.release(victim)
            victim.restarts += 1
        else:
            self.running.remove(victim)
            self.restart(victim)


Batch = list[tuple[Request, int]]


def vllm_v0(replica: Replica) -> Batch:
    numbers, batch, joined = replica.numbers, [], False
    while replica.waiting and replica.front() is replica.waiting[0]:
        request = replica.waiting[0]
        need = replica.pages(request.prompt + request.whole)
        if len(batch) + replica.held == numbers["cap"]:
            break
        if request.whole:
            if batch or replica.free - replica.growth() - need < max(1, numbers["watermark"]):
                break
            replica.take(replica.waiting.pop(0), need)
            request.start()
            replica.running.append(request)
            joined = True
            continue
        tokens = request.prompt - request.brought
        lengths = [tokens for _, tokens in batch] + [tokens]
        if replica.free - need < numbers["watermark"] or len(lengths) * max(lengths) > numbers["batch_tokens"]:
            break
        if joined:
            break
        replica.take(replica.waiting.pop(0), need)
        request.start()
        batch.append((request, tokens))
    return batch or swap_in(replica, decode_in_order(replica, replica.running))


def swap_in(replica: Replica, batch: Batch) -> Batch:
    """Behind the decodes and in a step that evicts nobody, those whose blocks come back with their next token's."""
    while replica.swapped and not replica.evicted and replica.front() is replica.swapped[0]:
        request = replica.swapped[0]
        need = replica.pages(request.processed)
        if replica.held == replica.numbers["cap"] or replica.free - need < max(1, replica.numbers["watermark"]):
            break
        replica.running.append(replica.swapped.pop(0))
        replica.take(request, need)
        replica.moving += replica.pages(request.processed - 1)
        replica.host -= replica.pages(request.processed - 1)
        batch.append((request, 1))
    return batch


def decode_in_order(replica: Replica, queue: list[Request]) -> Batch:
    """One token each from the front; while there is no free block the request at the back is evicted."""
    batch, queue = [], list(queue)
    while queue:
        request = queue.pop(0)
        while replica.free < 1:
            victim = queue.pop() if queue else request
            replica.running.remove(victim)
            replica.restart(victim)
            if victim is request:
                break
        else:
            replica.take(request, 1 if request.processed > request.blocks * replica.numbers["block_size"] else 0)
            batch.append((request, 1))
    return batch


def sarathi(replica: Replica) -> Batch:
    numbers = replica.numbers
    batch, queue = [], list(replica.running)
    begun = []
    while queue:
        request = queue.pop(0)
        if not request.prefilled:
            begun.append(request)
            continue
        while replica.free < 1:
            victim = queue.pop() if queue else request
            replica.running.remove(victim)
            replica.restart(victim)
            if victim is request:
                break
        else:
            replica.take(request, 1 if request.processed > request.blocks * numbers["block_size"] else 0)
            batch.append((request, 1))
    for request in begun:
        tokens = min(request.prompt - request.processed, numbers["chunk"] - sum(tokens for _, tokens in batch))
        if tokens > 0:
            batch.append((request, tokens))
    held = replica.held
    while replica.waiting and held < numbers["cap"]:
        request = replica.waiting[0]
        left = numbers["chunk"] - sum(tokens for _, tokens in batch)
        need = replica.pages(request.prompt + request.whole)
        spared = max(1, numbers["watermark"]) if request.whole else numbers["watermark"]
        if replica.free - need < spared or left <= 0:
            break
        replica.take(replica.waiting.pop(0), need)
        request.start()
        tokens = 1 if request.whole else min(request.prompt - request.brought, left)
        batch.append((request, tokens))
        held += 1
    return batch


def orca(replica: Replica) -> Batch:
    batch: Batch = [(request, 1) for request in replica.running]
    return batch + reserve(replica, replica.numbers["cap"] - replica.held)


def static_batch(replica: Replica) -> Batch:
    if replica.running:
        return [(request, 1) for request in replica.running]
    return reserve(replica, replica.numbers["cap"])


def reserve(replica: Replica, places: int) -> Batch:
    batch: Batch = []
    while replica.waiting and len(batch) < places and replica.free >= replica.numbers["reserved"]:
        request = replica.waiting.pop(0)
        replica.take(request, replica.numbers["reserved"])
        request.start()
        batch.append((request, 1 if request.whole else request.prompt - request.brought))
    return batch


def lightllm(replica: Replica) -> Batch:
    if not replica.running or replica.waited >= replica.numbers["waiting_steps"]:
        replica.waited = 0
        batch = lightllm_prefill(replica)
        if batch:
            return batch
    for request in replica.running:
        replica.take(request, 1)
    replica.waited += bool(replica.running)
    return [(request, 1) for request in replica.running]


def lightllm_prefill(replica: Replica) -> Batch:
    numbers = replica.numbers
    lengths = [(one.processed, max(0, one.total - one.processed - 1)) for one in replica.running]
    batch: Batch = []
    while replica.waiting:
        request = replica.waiting[0]
        if sum(tokens for _, tokens in batch) + request.prompt > numbers["batch_tokens"]:
            break
        if replica.held + len(batch) == numbers["cap"]:
            break
        lengths.append((request.prompt + 1, max(0, request.total - request.prompt - 2)))
        ordered = sorted(lengths, key=lambda pair: -pair[1])
        held = np.cumsum([pair[0] for pair in ordered])
        if max(left * (place + 1) + held[place] for place, (_, left) in enumerate(ordered)) >= numbers["blocks"]:
            break
        replica.take(replica.waiting.pop(0), request.prompt)
        batch.append((request, request.prompt))
    return batch


def vllm_v1(replica: Replica) -> Batch:
    numbers = replica.numbers
    budget, batch, place = int(numbers["chunk"]), [], 0
    while place < len(replica.running) and budget > 0:
        request = replica.running[place]
        if request.prefilled and request.until > replica.clock:
            place += 1
            continue
        tokens = min(1 if request.prefilled else request.prompt - request.processed, budget)
        stored = request.processed - request.prefilled + tokens
        while (need := max(0, replica.pages(stored) - request.blocks)) > replica.free:
            held = replica.running + [one for one in replica.ending if one.blocks]
            victim = max(held, key=lambda one: (one.priority, one.number))
            scheduled = [tokens for one, tokens in batch if one is victim]
            batch = [(one, tokens) for one, tokens in batch if one is not victim]
            budget, place = budget + sum(scheduled), place - len(scheduled)
            replica.evict(victim)
            if victim is request:  # since 0.33 those behind it go on
                break
        else:
            replica.take(request, need)
            replica.remember(request, stored)
            batch.append((request, tokens))
            budget -= tokens
            place += 1
    if replica.evicted:
        return batch
    held = replica.held
    while replica.waiting and budget > 0 and held < numbers["cap"]:
        request, pool, size = replica.waiting[0], replica.pool, numbers["block_size"]
        hits = [] if pool is None else pool.hits(request)
        idle = sum(not pool.holders[block] for block in hits) if pool is not None else 0
        if replica.pages(request.prompt + request.whole) - len(hits) + idle > replica.free:
            break
        if pool is not None:
            pool.touch(request, hits)
        request.start(len(hits) * size)
        tokens = 1 if request.whole else min(request.prompt - request.processed, budget)
        stored = request.processed - request.whole + tokens
        request.blocks = len(hits)
        replica.take(replica.waiting.pop(0), replica.pages(stored) - len(hits))
        replica.remember(request, stored)
        batch.append((request, tokens))
        budget -= tokens
        held += 1
    return batch


SCHEDULERS: dict[str, Callable[[Replica], Batch]] = {
    "vllm": vllm_v0,
    "vllm_v1": vllm_v1,
    "sarathi": sarathi,
    "sarathi_fixed": sarathi,
    "orca": orca,
    "faster_transformer": static_batch,
    "lightllm": lightllm,
}
Step = tuple[float, float, int, int, int, float]


def simulate(name: str, numbers: Mapping[str, Any], requests: list[Request], seconds: Callable[[Batch], float]):
    """Every step as (start, seconds, requests, tokens, decodes, block-seconds of a stage); the requests are changed in
    place."""
    cached = any(len(one.path) for one in requests)
    pool = Pool(int(numbers["blocks"]), int(numbers["block_size"])) if cached else None
    stages, ahead = [0.0] * int(numbers.get("stages", 1)), bool(numbers.get("ahead"))
    queued = ahead or bool(numbers.get("queue"))
    replica = Replica(numbers, truncates=name == "sarathi", pool=pool, queued=queued)
    coming, clock, steps, flights = list(requests), 0.0, [], []
    while any(one.completed < 0.0 and not one.rejected for one in requests):
        for end, batch in flights:
            if end <= clock and not queued:
                replica.land(batch, end)
        replica.leave(clock)
        replica.clock = clock
        flights = [(end, batch) for end, batch in flights if end > clock]
        while coming and coming[0].arrived <= clock:
            replica.wait(coming.pop(0))
        room, replica.late = len(flights) < len(stages) + ahead, bool(flights) and ahead
        batch = SCHEDULERS[name](replica) if room else []
        evicted, replica.evicted = replica.evicted, False
        if batch:
            took = seconds(batch) + replica.moving * numbers.get("swap_seconds", 0.0)
            replica.moving = 0
            start = end = max(clock, stages[0])
            for stage, free in enumerate(stages):
                stages[stage] = end = max(end, free) + took / len(stages)
            decodes = sum(one.prefilled for one, _ in batch)
            held = (numbers["blocks"] - replica.free) * took / len(stages)
            steps.append((start, end - start, len(batch), sum(t for _, t in batch), decodes, held))
            replica.launch(batch, clock)
            flights.append((end, batch))
            if queued:  # what it will have done is known, but for the time of it
                replica.land(batch, end)
        elif flights:
            arrivals = [one.arrived for one in coming[:1]] if room and not replica.front() and not queued else []
            clock = min([end for end, _ in flights] + arrivals)
        elif not evicted and replica.front():
            replica.reject()
        elif not evicted and coming:
            clock = coming[0].arrived
    return steps
