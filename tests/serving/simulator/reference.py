"""Schedulers in plain Python, step by step with lists, as their sources do it: what the compiled ones must agree with.

Vidur's (v0, Sarathi, Orca, static batching, LightLLM) follow its replica schedulers, vLLM v1 the public scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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

    @property
    def prefilled(self) -> bool:
        return self.processed >= self.prompt


class Pool:
    """The physical blocks of vLLM v1: a queue of free ones, what each holds, and who holds it."""

    def __init__(self, blocks: int) -> None:
        self.queue = list(range(blocks))
        self.node: dict[int, int] = {}
        self.block: dict[int, int] = {}
        self.holders = [0] * blocks

    def hits(self, request: Request, size: int) -> list[int]:
        """The blocks of the longest cached prefix; at least one token of the prompt is left to compute."""
        found: list[int] = []
        for node in request.path[: (request.prompt - 1) // size]:
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

    def remember(self, request: Request, tokens: int, size: int) -> None:
        """Full blocks get their node. One that is there already is a copy: it and what follows it stay unknown."""
        for place in range(tokens // size):
            block, node = request.held[place], request.path[place]
            request.copied |= self.block.get(node, block) != block
            if request.copied:
                break
            self.block[node], self.node[block] = block, node

    def release(self, request: Request) -> None:
        for block in reversed(request.held):
            self.holders[block] -= 1
            self.queue += [block] * (not self.holders[block])
        request.held, request.copied = [], False


@dataclass
class Replica:
    """The numbers of the scheduler and its queues; `running` as Vidur's list of requests between two batches."""

    numbers: dict[str, int]
    truncates: bool = False
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    used: int = 0
    pool: Pool | None = None
    evicted: bool = False
    waited: int = 0

    @property
    def free(self) -> int:
        return self.numbers["blocks"] - self.used if self.pool is None else len(self.pool.queue)

    def pages(self, tokens: int) -> int:
        return math.ceil(tokens / self.numbers["block_size"])

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

    def restart(self, request: Request) -> None:
        self.release(request)
        request.prompt = request.processed if self.truncates else max(request.prompt, request.processed)
        request.processed = 0
        request.restarts += 1
        self.waiting.insert(0, request)
        self.evicted = True


Batch = list[tuple[Request, int]]


def vllm_v0(replica: Replica) -> Batch:
    numbers, batch = replica.numbers, []
    while replica.waiting:
        request = replica.waiting[0]
        need = replica.pages(request.prompt)
        lengths = [tokens for _, tokens in batch] + [request.prompt]
        if replica.free - need < numbers["watermark"] or len(lengths) * max(lengths) > numbers["batch_tokens"]:
            break
        if len(batch) + len(replica.running) == numbers["cap"]:
            break
        replica.take(replica.waiting.pop(0), need)
        batch.append((request, request.prompt))
    return batch or decode_in_order(replica, replica.running)


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
    # A prompt that was begun is the last of the running, so it is the first victim.
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
    held = len(replica.running)
    while replica.waiting and held < numbers["cap"]:
        request = replica.waiting[0]
        tokens = min(request.prompt, numbers["chunk"] - sum(tokens for _, tokens in batch))
        if replica.free - replica.pages(request.prompt) < numbers["watermark"] or tokens <= 0:
            break
        replica.take(replica.waiting.pop(0), replica.pages(request.prompt))
        batch.append((request, tokens))
        held += 1
    return batch


def orca(replica: Replica) -> Batch:
    batch: Batch = [(request, 1) for request in replica.running]
    return batch + reserve(replica, replica.numbers["cap"] - len(batch))


def static_batch(replica: Replica) -> Batch:
    if replica.running:
        return [(request, 1) for request in replica.running]
    return reserve(replica, replica.numbers["cap"])


def reserve(replica: Replica, places: int) -> Batch:
    batch: Batch = []
    while replica.waiting and len(batch) < places and replica.free >= replica.numbers["reserved"]:
        request = replica.waiting.pop(0)
        replica.take(request, replica.numbers["reserved"])
        batch.append((request, request.prompt))
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
        if len(replica.running) + len(batch) == numbers["cap"]:
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
    budget, batch, place = numbers["chunk"], [], 0
    while place < len(replica.running) and budget > 0:
        request = replica.running[place]
        tokens = min(1 if request.prefilled else request.prompt - request.processed, budget)
        stored = request.processed - request.prefilled + tokens
        while (need := max(0, replica.pages(stored) - request.blocks)) > replica.free:
            victim = replica.running.pop()
            replica.restart(victim)
            if victim is request:
                break
        else:
            replica.take(request, need)
            if replica.pool is not None:
                replica.pool.remember(request, stored, numbers["block_size"])
            batch.append((request, tokens))
            budget -= tokens
            place += 1
    if replica.evicted:
        return batch
    held = len(replica.running)
    while replica.waiting and budget > 0 and held < numbers["cap"]:
        request, pool, size = replica.waiting[0], replica.pool, numbers["block_size"]
        hits = [] if pool is None else pool.hits(request, size)
        idle = sum(not pool.holders[block] for block in hits) if pool is not None else 0
        tokens = min(request.prompt - len(hits) * size, budget)
        if replica.pages(request.prompt) - len(hits) + idle > replica.free:
            break
        if pool is not None:
            pool.touch(request, hits)
        request.processed, request.blocks = len(hits) * size, len(hits)
        replica.take(replica.waiting.pop(0), replica.pages(request.processed + tokens) - len(hits))
        if pool is not None:
            pool.remember(request, request.processed + tokens, size)
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
Step = tuple[float, float, int, int, int]


def simulate(name: str, numbers: dict[str, int], requests: list[Request], seconds: Callable[[Batch], float]):
    """Every step as (start, seconds, requests, tokens, decodes); the requests are changed in place."""
    cached = any(len(one.path) for one in requests)
    pool = Pool(numbers["blocks"]) if cached else None
    replica = Replica(numbers, truncates=name == "sarathi", pool=pool)
    coming, clock, steps = list(requests), 0.0, []
    while any(one.completed < 0.0 and not one.rejected for one in requests):
        while coming and coming[0].arrived <= clock:
            replica.waiting.append(coming.pop(0))
        batch = SCHEDULERS[name](replica)
        evicted, replica.evicted = replica.evicted, False
        if not batch:
            if not evicted and replica.waiting:
                replica.waiting.pop(0).rejected = True
            elif not evicted:
                clock = max(clock, coming[0].arrived)
            continue
        took = seconds(batch)
        steps.append((clock, took, len(batch), sum(t for _, t in batch), sum(one.prefilled for one, _ in batch)))
        finish(replica, batch, clock, clock + took)
        clock += took
    return steps


def finish(replica: Replica, batch: Batch, start: float, end: float) -> None:
    """The tokens of a step that ended; decodes stay in front of what was prefilled, as in Vidur's lists."""
    for request, tokens in batch:
        if request.scheduled < 0.0:
            request.scheduled = start
        decoded = request.prefilled
        request.processed += tokens
        if not decoded and request.processed == request.prompt:
            request.processed += 1
            request.first_token = end if request.first_token < 0.0 else request.first_token
        if request.processed == request.total:
            request.completed = end
            replica.release(request)
    left = [one for one in replica.running if one not in [each for each, _ in batch]]
    replica.running = left + [one for one, _ in batch if one.completed < 0.0]
