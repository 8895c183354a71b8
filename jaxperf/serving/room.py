"""How many sequences of an estimate's lengths its devices hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from jaxperf.core.device import Device
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.models.memory import MemoryUse
from jaxperf.serving.explain import Explanation, memory_of
from jaxperf.serving.study import Study
from jaxperf.serving.techniques.chosen import Techniques


def largest_batch(
    study: Study,
    device: Device | CalibratedDevice,
    point: Mapping[str, Any],
    explained: Explanation,
    techniques: Techniques | None = None,
) -> int | None:
    """The most sequences that fit beside the weights, of all attention replicas together [1].

    **Arguments:** `explained`: of `point`.
    **Returns:** 0 where not one fits; None where sequences keep nothing in memory.
    """
    replicas = point["data_parallel"]
    if not float(explained.cost.memory.kv_cache) > 0.0:
        return None

    def memory_with(sequences: int) -> MemoryUse:
        return memory_of(study, device, {**point, "batch": sequences * replicas}, techniques)

    return _most(memory_with, explained.cost.memory, -(-point["batch"] // replicas)) * replicas


def _most(memory_with: Callable[[int], MemoryUse], memory: MemoryUse, sequences: int) -> int:
    """The most sequences of one replica whose `memory_with` fits, from the `memory` of some of them.

    The cache grows by the same bytes with each, activations by fewer and never shrink: what fits beside those of a
    batch that fits is no less than the answer, beside those of one that does not it is no more. With activations that
    stay the same the second look is the last.
    """
    low, high = _bracket(0, math.inf, memory, sequences)
    sequences = int(high) - 1
    while high - low > 1:
        low, high = _bracket(low, high, memory_with(sequences), sequences)
        sequences = int(low + high) // 2
    return low


def _bracket(low: int, high: float, memory: MemoryUse, sequences: int) -> tuple[int, float]:
    """The most that is known to fit and the least that is known not to, after a look at `sequences`."""
    each = float(memory.kv_cache) / sequences
    left = float(memory.usable) - float(memory.weights) - float(memory.activations)
    fitting = int(max(left // each, 0.0))  # left / each may round up to a whole number
    return (sequences, min(high, fitting + 1)) if fitting >= sequences else (max(low, fitting), sequences)
