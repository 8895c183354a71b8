"""Pipelines simulated event by event, 1F1B for many samples at once, interleaved chunks for one: what the formulas are
tested against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Pass = tuple[str, int, int]  # "F" or "B", chunk, micro-batch


def one_forward_one_backward(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """When the last backward pass of stage 0 ends; both of shape (..., stages, microbatches)."""
    stages, count = forward.shape[-2:]
    ends = {"F": np.zeros_like(forward), "B": np.zeros_like(backward)}
    free = np.zeros(forward.shape[:-1], forward.dtype)
    waiting = [_order(stages - stage, count) for stage in range(stages)]
    done: set[tuple[str, int, int]] = set()
    while any(waiting):
        for stage in range(stages):
            while waiting[stage] and (ready := _needs(*waiting[stage][0], stage, stages)) <= done:
                kind, index = waiting[stage].pop(0)
                start = free[..., stage]
                for other, where, _ in ready:
                    start = np.maximum(start, ends[other][..., where, index])
                work = forward if kind == "F" else backward
                free[..., stage] = ends[kind][..., stage, index] = start + work[..., stage, index]
                done.add((kind, stage, index))
    return ends["B"][..., 0, count - 1]


def _order(warmup: int, count: int) -> list[tuple[str, int]]:
    """`warmup` forward passes, then one backward and one forward in turn."""
    first = [("F", index) for index in range(min(warmup, count))]
    turns = [("F", index + warmup) if kind == "F" else ("B", index) for index in range(count) for kind in "BF"]
    return first + [(kind, index) for kind, index in turns if index < count]


def _needs(kind: str, index: int, stage: int, stages: int) -> set[tuple[str, int, int]]:
    """What must have ended elsewhere."""
    if kind == "F":
        return {("F", stage - 1, index)} if stage > 0 else set()
    return {("B", stage + 1, index)} if stage < stages - 1 else {("F", stage, index)}


def interleaved(forward: Sequence[Sequence[float]], backward: Sequence[Sequence[float]], microbatches: int) -> float:
    """When the last pass ends; of each chunk on each stage. The order is that of Megatron-LM's
    `forward_backward_pipelining_with_interleaving`, without waits for messages.

    **Raises:** `RuntimeError` where stages wait for each other for ever.
    """
    chunks, stages = len(forward), len(forward[0])
    waiting = [_turns(stage, stages, chunks, microbatches) for stage in range(stages)]
    ends: dict[tuple[Pass, int], float] = {}
    free = [0.0] * stages
    while any(waiting):
        before = len(ends)
        for stage in range(stages):
            while waiting[stage] and _ended(needed := _source(waiting[stage][0], stage, stages, chunks), ends):
                kind, chunk, index = waiting[stage].pop(0)
                work = (forward if kind == "F" else backward)[chunk][stage]
                free[stage] = max(free[stage], ends[needed] if needed else 0.0) + work
                ends[(kind, chunk, index), stage] = free[stage]
        if len(ends) == before:
            raise RuntimeError(f"Stages wait for each other: {[rest[0] for rest in waiting if rest]}.")
    return max(free)


def group_size(stages: int, count: int) -> int:
    """Micro-batches that pass a chunk in turn: as many as stages where they are a multiple, else the fewest above with
    which no last group is smaller than the pipeline is long, which would never end; all where they are few."""
    ends = (size for size in range(stages, count + 1) if count % size == 0 or count % size >= stages)
    return next(ends, min(stages, count))


def most_held(stage: int, stages: int, chunks: int, count: int) -> int:
    """Chunks whose activations an interleaved stage holds at most, from their forward to their backward pass."""
    held = most = 0
    for kind, _, _ in _turns(stage, stages, chunks, count):
        held += 1 if kind == "F" else -1
        most = max(most, held)
    return most


def _turns(stage: int, stages: int, chunks: int, count: int) -> list[Pass]:
    """Groups of `group_size` micro-batches through one chunk after the other; the warm-up, then one forward and one
    backward pass in turn."""
    group = group_size(stages, count)
    places = [
        (chunk, index)
        for start in range(0, count, group)
        for chunk in range(chunks)
        for index in range(start, min(start + group, count))
    ]
    ahead = [("F", chunk, index) for chunk, index in places]
    behind = [("B", chunks - 1 - chunk, index) for chunk, index in places]
    warmup = min(2 * (stages - 1 - stage) + (chunks - 1) * group, len(places))
    pairs = zip(ahead[warmup:], behind, strict=False)
    return ahead[:warmup] + [each for pair in pairs for each in pair] + behind[len(places) - warmup :]


def _source(one: Pass, stage: int, stages: int, chunks: int) -> tuple[Pass, int] | None:
    """The pass whose output this one takes, and its stage."""
    kind, chunk, index = one
    if kind == "F":
        if stage > 0:
            return ("F", chunk, index), stage - 1
        return (("F", chunk - 1, index), stages - 1) if chunk > 0 else None
    if stage < stages - 1:
        return ("B", chunk, index), stage + 1
    return (("B", chunk + 1, index), 0) if chunk < chunks - 1 else (("F", chunk, index), stage)


def _ended(needed: tuple[Pass, int] | None, ends: dict[tuple[Pass, int], float]) -> bool:
    return needed is None or needed in ends
