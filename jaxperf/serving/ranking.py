"""Which device serves a model best: every layout and batch on every device, under latency targets."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.device import Device
from jaxperf.core.feasible import Reason, sentences
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.models.config import ModelConfig, Moe
from jaxperf.serving.study import Study
from jaxperf.serving.unit_costs import SECONDS_PER_HOUR
from jaxperf.sweeps import Results, Sweep

# What the user may rank by -> the metric it is computed from, larger is better.
OBJECTIVES = {
    "tokens/s/device": "tokens_per_second_per_device",
    "tokens/J": "tokens_per_joule",
    "tokens/$": "tokens_per_second_per_device",
}
SEARCH_METRICS = ("ttft", "tpot", "tokens_per_second_per_device", "tokens_per_joule", "memory_share", "reason")
TARGETS = ("ttft", "tpot")
LAYOUT_NAMES = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
BATCH_BITS = 8  # that a batch above 256 has: neighbors are at most 0.8 % apart


@dataclass(frozen=True)
class Ranked:
    """The best point of one device: `point` holds layout, batch and lengths; `score` in units of the objective."""

    device: str
    score: float
    point: Mapping[str, int | float | str]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Rejected:
    """A device with no point that qualifies, and why."""

    device: str
    why: str


@dataclass(frozen=True)
class Ranking:
    """Devices best first, then those that do not qualify. `points`: how many configurations were evaluated, none with
    more than `max_batch` sequences."""

    objective: str
    ranked: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    points: int
    max_batch: int


def layouts(model: ModelConfig, max_devices: int) -> list[dict[str, int]]:
    """Parallel layouts worth trying on up to `max_devices` devices, all splits powers of two.

    Dense models: tensor x pipeline. Mixtures of experts also: data-parallel attention with the experts spread over
    the whole tensor x data group (wide expert parallel), and experts spread over the tensor-parallel ranks.
    """
    ways = [2**i for i in range(max_devices.bit_length()) if 2**i <= max_devices]
    experts = any(isinstance(layer.ffn, Moe) for layer in model.layers)
    found = []
    for tensor, pipeline, data in itertools.product(ways, ways, ways if experts else [1]):
        if tensor * pipeline * data > max_devices or pipeline > len(model.layers):
            continue
        spreads = {1, tensor * data} if experts and data == 1 else {tensor * data if experts else 1}
        found += [dict(zip(LAYOUT_NAMES, (tensor, pipeline, spread, data), strict=True)) for spread in sorted(spreads)]
    return found


def batches_up_to(largest: int) -> list[int]:
    """Every batch up to 256, above it those of eight significant bits, and `largest` itself.

    So a batch below is at most 0.8 % smaller than the largest one that keeps a target or fits in memory, and multiples
    of the powers of two that tiles have are among them.
    """
    found = [1]
    while found[-1] < largest:
        found.append(min(found[-1] + 2 ** max(found[-1].bit_length() - BATCH_BITS, 0), largest))
    return found


def rank(
    study: Study,
    devices: Mapping[str, Device | CalibratedDevice],
    *,
    layouts: Sequence[Mapping[str, int]],
    fixed: Mapping[str, object],
    batches: Sequence[int],
    targets: Mapping[str, float],
    objective: str,
    prices: Mapping[str, float],
) -> Ranking:
    """The best layout and batch of each device, devices sorted by the objective.

    **Arguments:** `study`: its task is "serve"; `fixed`: prompt, output, weights, kv_cache; `targets`: "ttft" and
    "tpot" at most [s]; `objective`: key of `OBJECTIVES`; `prices`: device -> dollars per device-hour, for "tokens/$".
    **Raises:** `InputError` for an unknown objective, or no price for any device.
    """
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        allowed = ", ".join(OBJECTIVES)
        raise InputError(f"Cannot rank by '{objective}'; allowed: {allowed}.{did_you_mean(objective, OBJECTIVES)}")
    weight = score_weights(list(devices), objective, prices)  # first of all: it may refuse
    search = dataclasses.replace(study, metrics=SEARCH_METRICS)
    columns = {name: [layout[name] for layout in layouts] for name in LAYOUT_NAMES}
    values = {"device": None, "layout": columns, "batch": batches, **fixed}
    sweep = Sweep(search.at_level("nominal"), search.axes(values, devices))
    results = sweep.dense()
    ranked, rejected = [], []
    for index, device in enumerate(devices):
        verdict = best_of_device(results, index, device, targets, OBJECTIVES[objective], weight[index])
        (ranked if isinstance(verdict, Ranked) else rejected).append(verdict)
    ranked.sort(key=lambda entry: -entry.score)
    return Ranking(objective, tuple(ranked), tuple(rejected), sweep.plan.points, max(batches))


def score_weights(devices: Sequence[str], objective: str, prices: Mapping[str, float]) -> list[float]:
    """What multiplies the metric: 1, or 3600 / price for tokens per dollar (NaN where no price is known) [s/$].

    **Raises:** `InputError` where dollars are asked for and no price is known.
    """
    if objective != "tokens/$":
        return [1.0] * len(devices)
    if not set(devices) & set(prices):
        raise InputError("Ranking by tokens/$ needs the price of at least one device: --price h100-sxm=2.50.")
    return [SECONDS_PER_HOUR / prices[name] if name in prices else float("nan") for name in devices]


def best_of_device(
    results: Results, index: int, device: str, targets: Mapping[str, float], metric: str, weight: float
) -> Ranked | Rejected:
    """The point of one device with the largest metric among those that fit and meet the targets."""
    if np.isnan(weight):
        return Rejected(device, "no price given")
    mine = {name: values[index].reshape(-1) for name, values in results.metrics.items()}
    with np.errstate(invalid="ignore"):
        qualifies = mine["reason"] == 0
        for name, limit in targets.items():
            qualifies &= mine[name] <= limit
    if not qualifies.any():
        return Rejected(device, why_none(mine, targets))
    best = int(np.argmax(np.where(qualifies, mine[metric], -np.inf)))
    point = {name: column for name, column in _labels_of(results, index, best)}
    metrics = {name: values[best].item() for name, values in mine.items()}
    return Ranked(device, metrics[metric] * weight, point, metrics)


def _labels_of(results: Results, device: int, flat: int) -> Iterator[tuple[str, int | float | str]]:
    """Label columns of one point, given its device and its flat index over the other axes."""
    inner = int(np.prod(results.sizes[1:]))
    for name, column in results.rows(np.array([device * inner + flat])).items():
        if name not in results.metrics and name != "device":
            yield name, column[0].item()


def _ms(seconds: float) -> str:
    """Milliseconds with three digits, more where the whole number has more: 30.2, 2,390."""
    value = float(seconds) * 1e3
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def why_none(mine: Mapping[str, np.ndarray], targets: Mapping[str, float]) -> str:
    """One sentence: what every layout and batch of a device fails on, from the nearest miss."""
    runs = mine["reason"] == 0
    if runs.any():
        best = {name: np.nanmin(mine[name][runs]) for name in targets}
        missed = [name for name, limit in targets.items() if best[name] > limit]
        if missed:
            parts = [f"best {name} {_ms(best[name])} ms, target {_ms(targets[name])} ms" for name in missed]
            return "; ".join(parts)
        return f"no layout and batch meets {' and '.join(targets)} together"
    only_memory = mine["reason"] == Reason.MEMORY
    if only_memory.any():
        least = mine["memory_share"][only_memory].min()
        return f"does not fit: the smallest layout needs {least:.2f} x the usable memory"
    nearest = int(min(mine["reason"], key=lambda bits: int(bits).bit_count()))
    return "; ".join(sentences(nearest))
