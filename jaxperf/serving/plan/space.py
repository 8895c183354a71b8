"""What a plan tries: engines, pairs of them in two pools, how devices are shared among them, and the loads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.serving.plan.engines import Candidate

SHARES = tuple(round(0.03 * step, 2) for step in range(1, 31))  # of what a configuration can serve, up to 0.9
CAPS = (32, 128, 512)  # sequences that an engine runs at once, its memory permitting
SPLITS = 4  # divisions of the devices between two pools that are looked at: those that serve most


@dataclass(frozen=True)
class Configuration:
    """Engines of one kind that do both, or where `prefill` is given one kind for prompts and `engine` for outputs;
    numbers of `Candidate`s in their list."""

    engine: int
    prefill: int | None = None

    @property
    def mode(self) -> str:
        """ "aggregated" or "disaggregated"."""
        return "aggregated" if self.prefill is None else "disaggregated"


def pairs(candidates: Sequence[Candidate], possible: Sequence[int], devices: int) -> list[Configuration]:
    """Two pools of `possible` engines with the same format of weights, one of each at least."""
    return [
        Configuration(engine, prefill)
        for engine, prefill in itertools.product(possible, possible)
        if candidates[engine].weights == candidates[prefill].weights
        and candidates[engine].devices + candidates[prefill].devices <= devices
    ]


def replica_counts(devices: int, each: int, rate: float | None) -> list[int]:
    """All engines there is room for; where a rate is given also fewer of them."""
    most = devices // each
    return [most] if rate is None else list(range(1, most + 1))


def pool_splits(
    devices: int, each: tuple[int, int], costs: tuple[float, float], rate: float | None
) -> list[tuple[int, int]]:
    """(prefillers, decoders) that serve most requests.

    **Arguments:** `each`: devices of a prefiller and a decoder; `costs`: time of a request in each [s]; `rate`: what
    has to be served, if anything: then the fewest devices that can come first [1/s].
    """
    splits = []
    for prefillers in range(1, (devices - each[1]) // each[0] + 1):
        most = (devices - prefillers * each[0]) // each[1]
        counts = [most] if rate is None else range(1, most + 1)
        splits += [(prefillers, decoders) for decoders in counts]

    def served(split: tuple[int, int]) -> float:
        return min(split[0] / costs[0], split[1] / costs[1])

    if rate is None:
        return sorted(splits, key=served, reverse=True)[:SPLITS]
    enough = [split for split in splits if served(split) > rate]
    return sorted(enough, key=lambda split: split[0] * each[0] + split[1] * each[1])[: 4 * SPLITS]


def padded(columns: Mapping[str, np.ndarray], start: int, size: int) -> dict[str, np.ndarray]:
    """`size` rows from `start` on, the last repeated, so that all calls share a compiled program."""
    parts = {name: values[start : start + size] for name, values in columns.items()}
    return {name: np.pad(values, (0, size - len(values)), mode="edge") for name, values in parts.items()}
