"""The time of an iteration over several devices, from those of its stages.

With F_i, B_i the forward and backward time of one of m micro-batches on stage i of p, communication included, and A_i
what stage i does once after the last of them, an iteration takes

    sum_i (F_i + B_i) + (m - 1) max_i (F_i + B_i) + max_i A_i

which of alike stages is what GPipe (arXiv:1811.06965) and 1F1B (arXiv:2104.04473) take; of others the slowest sets the
pace. A_i follows on all stages at once, as the norm of the gradients is taken over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calibration.composition.parallel import Layout
from calibration.composition.parallel_stages import Stage


@dataclass(frozen=True)
class Links:
    """Times of what devices send [s]: `reduction` (ranks, places they spread over, bytes), `sending` (bytes)."""

    reduction: Callable[[int, int, float], float]
    sending: Callable[[float], float]


@dataclass(frozen=True)
class StageTimes:
    """F, B and A of `count` alike stages [s]."""

    forward: float
    backward: float
    after: float
    count: int = 1


def pipeline_time(stages: Sequence[StageTimes], microbatches: int) -> float:
    """The time of an iteration [s]."""
    passes = [stage.forward + stage.backward for stage in stages]
    filled = sum(stage.count * time for stage, time in zip(stages, passes, strict=True))
    return filled + (microbatches - 1) * max(passes) + max(stage.after for stage in stages)


def with_communication(stage: Stage, times: StageTimes, layout: Layout, links: Links) -> StageTimes:
    """The times of a stage with what it sends added, nothing of it hidden behind compute.

    Each block of a layer ends with one all-reduce over the tensor-parallel devices, and its backward pass with another
    (arXiv:1909.08053); the residual stream goes to the next stage and its gradient to the one before; after the last
    micro-batch the gradients are summed over the replicas, and a tied token table's over first and last stage.
    """
    tensor, data = layout.tensor_parallel, layout.data_parallel
    each = links.reduction(tensor, tensor, stage.stream_bytes)
    hop = table = 0.0
    if layout.pipeline_parallel > 1:
        hop = links.sending(stage.stream_bytes)
        table = links.reduction(2, layout.devices, stage.shared_bytes)
    ahead, back = stage.reductions
    averaged = links.reduction(data, tensor * data, stage.gradient_bytes)
    return StageTimes(
        forward=times.forward + ahead * each + (0.0 if stage.last else hop),
        backward=times.backward + back * each + (0.0 if stage.first else hop),
        after=times.after + averaged + table,
        count=times.count,
    )
