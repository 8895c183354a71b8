"""The terms of a step that a reader compares two layouts by: what each is called, and its share."""

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
    "compute.host_optimizer": "optimizer on the host",
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
    "memory.reserved": "reserved",
}
METRICS = (
    "time", "unchecked_time", "memory.total", "mfu", "hfu", "bubble_fraction", "tokens_per_second", "energy", "reason",
    "communication.data", "memory.host", *TERMS, *MEMORY_TERMS,
)  # fmt: skip


def terms(row: Mapping[str, float]) -> dict[str, float]:
    """Term -> its part of the step [s]; their sum is the step time."""
    return {word: float(row[name]) for name, word in TERMS.items()}


def shares(row: Mapping[str, float]) -> dict[str, float]:
    """Term -> share of the step time, largest first; terms of nothing are left out."""
    parts = {word: seconds / float(row["time"]) for word, seconds in terms(row).items() if seconds > 0.0}
    return dict(sorted(parts.items(), key=lambda item: -item[1]))
