"""A 1F1B pipeline simulated event by event, for many samples at once: what the formulas are tested against."""

from __future__ import annotations

import numpy as np


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
