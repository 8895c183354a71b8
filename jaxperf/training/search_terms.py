"""The terms of a step that a reader compares two layouts by: what each is called, and which of them grew."""

from __future__ import annotations

from collections.abc import Mapping

# Metric of `TrainingStep` -> how it is called. Their sum is the step time.
TERMS = {
    "compute.gemm": "dense products",
    "compute.experts": "expert products",
    "compute.attention": "attention",
    "compute.vector": "elementwise and norms",
    "compute.ends": "embedding and head",
    "compute.recompute": "recomputation",
    "compute.optimizer": "optimizer",
    "compute.host": "host and overheads",
    "exposed.tensor": "exposed tensor communication",
    "exposed.context": "exposed context communication",
    "exposed.expert": "exposed expert communication",
    "exposed.pipeline": "exposed pipeline sends",
    "exposed.data": "exposed data-parallel communication",
    "exposed.offload": "exposed offload",
    "idle": "pipeline bubble",
    "straggling": "waiting for the slowest rank",
}
MEMORY_TERMS = {
    "memory.weights": "weights",
    "memory.gradients": "gradients",
    "memory.optimizer": "optimizer states",
    "memory.activations": "activations",
    "memory.temporary": "temporary buffers",
}
METRICS = (
    "time", "unchecked_time", "memory.total", "mfu", "hfu", "bubble_fraction", "tokens_per_second", "energy", "reason",
    "communication.data", *TERMS, *MEMORY_TERMS,
)  # fmt: skip


def shares(row: Mapping[str, float]) -> dict[str, float]:
    """Term -> share of the step time, largest first; terms of nothing are left out."""
    parts = {word: float(row[name]) / float(row["time"]) for name, word in TERMS.items() if row[name] > 0.0}
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def differences(row: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Term -> how much longer it is in `other` [s], largest change first."""
    changes = {word: float(other[name]) - float(row[name]) for name, word in TERMS.items()}
    return dict(sorted(changes.items(), key=lambda item: -abs(item[1])))


def why_slower(row: Mapping[str, float], other: Mapping[str, float], most: int = 3) -> str:
    """What makes `other` slower, in words: the terms that grew, and the largest that shrank where one did.

    Terms are named until they explain nine tenths of what grew.
    """
    changes = differences(row, other)
    grew = {word: change for word, change in changes.items() if change > 0.0}
    named, explained = [], 0.0
    for word, change in list(grew.items())[:most]:
        named.append(f"{word} {change / row['time']:+.1%}")
        explained += change
        if explained > 0.9 * sum(grew.values()):
            break
    shrunk = next(((word, change) for word, change in changes.items() if change < 0.0), None)
    if shrunk is not None and -shrunk[1] > 0.1 * explained:
        named.append(f"though {shrunk[0]} {shrunk[1] / row['time']:+.1%}")
    return ", ".join(named) or "the same time, more memory"
