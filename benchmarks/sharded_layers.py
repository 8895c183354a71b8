"""Micro-batches of a stage whose layers are sharded (ZeRO-3, HSDP), played layer by layer: what the formula of
data-parallel messages is tested against."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Layer(NamedTuple):
    """One layer and micro-batch: to `gather` its weights, its `forward` and `backward` pass, to `scatter` its gradients
    in a shard group, and once a step to `reduce` them between the groups' replicas [s]."""

    gather: float
    forward: float
    backward: float
    scatter: float
    reduce: float = 0.0


def play(layer: Layer, layers: int, microbatches: int) -> float:
    """When the last message has come [s]; compute and messages are a stream each (FSDP, arXiv:2304.11277, section 4.3).

    The next layer's weights are asked for when a layer begins, the gradients of the one before follow. The first gather
    of a pass has nothing before it, the gradients of the last micro-batch are reduced between replicas as they come.
    """
    computed = sent = 0.0  # when either stream is free

    def message(ready: float, took: float) -> float:
        nonlocal sent
        sent = max(sent, ready) + took
        return sent

    for turn in range(microbatches):
        arrived = message(max(computed, sent), layer.gather)
        for place in range(layers):
            begins = max(computed, arrived)
            computed = begins + layer.forward
            if place + 1 < layers:
                arrived = message(begins, layer.gather)
        pending = False
        arrived = computed  # the last layer's weights are still there
        for place in range(layers):
            begins = max(computed, arrived)
            if place + 1 < layers:
                arrived = message(begins, layer.gather)
            if pending:
                _reduced(message, begins, layer, turn == microbatches - 1)
            computed, pending = begins + layer.backward, True
        _reduced(message, computed, layer, turn == microbatches - 1)
    return max(computed, sent)


def _reduced(message: Callable[[float, float], float], ready: float, layer: Layer, last: bool) -> None:
    """The gradients of a layer, between replicas too behind the `last` micro-batch."""
    message(ready, layer.scatter)
    if last:
        message(ready, layer.reduce)
