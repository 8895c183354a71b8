"""The search for a training layout: every one of a number of devices is evaluated, the best of each split is kept.

What a split alone forbids (divisibility, groups, memory even when everything is saved) is decided once for the split,
by the same checks and the same memory model as the step; the rest is evaluated in blocks by the jitted step.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxperf.core.device import Device
from jaxperf.core.numerics import as_float
from jaxperf.sweeps.pareto import non_dominated
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.layout import Layout
from jaxperf.training.layout_checks import TrainingReason, layout_reasons
from jaxperf.training.model import TrainingModel
from jaxperf.training.search.space import GROUP_FIELDS, Columns, Space, crossed, frugal, kinds, splits, variants
from jaxperf.training.search.terms import METRICS
from jaxperf.training.sweep import BLOCK, evaluate_layouts, few_layouts

CHUNK = 8 * BLOCK  # layouts between two reports of progress
# Up to so many nothing is compiled: 2 million take 7 s on the host.
FEW_LAYOUTS = 2**21
OBJECTIVES = ("time", "cost", "memory")  # at one number of equal devices cost follows time
PASSED_ON = "passed on"  # where micro-batches go on to other devices: the step, and the way of one through all stages

Progress = Callable[[int, int], None]


@dataclass
class Found:
    """What a search has found so far.

    `layouts`, `metrics`: columns of the best layout of each split that has one, best first; `front`: columns and
    metrics of the layouts that no other beats in both time and memory; `splits` there were, layouts `tried` and
    `feasible` [1]; `reasons`: how many splits and layouts failed for each `TrainingReason`; `least_memory` that any
    split needs, infinite where none was looked at [byte]; `interrupted`: whether the search was stopped.
    """

    layouts: Columns = field(default_factory=dict)
    metrics: Columns = field(default_factory=dict)
    front: Columns = field(default_factory=dict)
    splits: int = 0
    tried: int = 0
    feasible: int = 0
    reasons: Counter[TrainingReason] = field(default_factory=Counter)
    least_memory: float = np.inf
    interrupted: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.layouts.values()), ()))


def search_layouts(
    model: TrainingModel,
    device: Device,
    efficiencies: TrainingEfficiencies,
    base: Layout,
    devices: int,
    *,
    objective: str = "time",
    space: Space | None = None,
    progress: Progress | None = None,
) -> Found:
    """Evaluate every layout of `devices` devices; Ctrl-C keeps what was found until then.

    **Arguments:** `base`: sequence, batch, formats and all that is not searched.
    """
    space = Space() if space is None else space
    found = Found()
    table = splits(devices, int(model.experts), int(base.sequence), space)
    found.splits = len(table["tensor"])
    table = _possible(model, device, efficiencies, base, table, found)
    node = int(device.node_size)
    plans = [(rows, variants(kind, node, space)) for kind, rows in kinds(table, node, float(model.moe_layers) > 0.0)]
    total = sum(len(rows) * len(each["zero"]) for rows, each in plans)
    try:
        for rows, others in plans:
            for part in _parts(rows, len(others["zero"])):
                columns = crossed(table, part, others)
                metrics = evaluate(model, columns, device, efficiencies, base, total <= FEW_LAYOUTS)
                _keep(found, columns, metrics, len(part), _score(columns, metrics, objective, base))
                if progress is not None:
                    progress(found.tried, total)
    except KeyboardInterrupt:
        found.interrupted = True
    return _sorted(found, _score(found.layouts, found.metrics, objective, base) if len(found) else np.empty(0))


def evaluate(
    model: TrainingModel,
    columns: Columns,
    device: Device,
    efficiencies: TrainingEfficiencies,
    base: Layout,
    few: bool = True,
) -> Columns:
    """`METRICS` of every row; on the host where all calls have `few` in all, else in whole blocks, which share one
    compile."""
    if few:
        return few_layouts(model, columns, device, efficiencies, base=base, metrics=METRICS)
    rows = len(columns["tensor"])
    padded = {name: np.pad(values, (0, -rows % BLOCK), mode="edge") for name, values in columns.items()}
    found = evaluate_layouts(model, padded, device, efficiencies, base=base, metrics=METRICS)
    return {name: values[:rows] for name, values in found.items()}


def _possible(
    model: TrainingModel,
    device: Device,
    efficiencies: TrainingEfficiencies,
    base: Layout,
    table: Columns,
    found: Found,
) -> Columns:
    """The splits that some variant can run; the others are counted by reason."""
    reasons = _structure(model, {name: jnp.asarray(each) for name, each in table.items()}, device, base)
    table = _left(table, np.asarray(reasons), found)
    if not len(table["tensor"]):
        return table
    least = frugal()
    columns = crossed(table, np.arange(len(table["tensor"])), least)
    memory = evaluate(model, columns, device, efficiencies, base)["memory.total"].reshape(-1, len(least["zero"]))
    found.least_memory = float(memory.min())
    over = memory.min(axis=1) > float(device.memory_capacity)
    return _left(table, np.where(over, TrainingReason.MEMORY, 0), found)


@jax.jit
def _structure(
    model: TrainingModel, table: Mapping[str, jax.Array], device: Device, base: Layout
) -> Int[jax.Array, " rows"]:
    """Reasons of each split whatever its variant, memory aside."""
    least = dataclasses.replace(base, sequence_parallel=as_float(0.0))

    def reasons(split: Mapping[str, jax.Array]) -> Int[jax.Array, ""]:
        none = as_float(0.0)
        return layout_reasons(model, dataclasses.replace(least, **split), device, none, none)

    return jax.vmap(reasons)(table)


def _left(table: Columns, bits: Int[np.ndarray, " rows"], found: Found) -> Columns:
    found.reasons.update(_counted(bits))
    possible = bits == 0
    return {name: values[possible] for name, values in table.items()}


def _counted(bits: Int[np.ndarray, " rows"]) -> dict[TrainingReason, int]:
    counts = {reason: int(np.count_nonzero(bits & reason)) for reason in TrainingReason}
    return {reason: count for reason, count in counts.items() if count}


def _parts(rows: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Rows of splits whose variants fill about one chunk."""
    size = max(CHUNK // count, 1)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _score(columns: Columns, metrics: Columns, objective: str, base: Layout) -> np.ndarray:
    """What an objective wants small [rows]."""
    if objective == "memory":
        return metrics["memory.total"]
    if objective == PASSED_ON:
        rows = columns["pipeline"] * columns["data"] * columns["microbatch"]
        return metrics["time"] * (1.0 + rows / float(base.global_batch))
    return metrics["time"]


def _keep(found: Found, columns: Columns, metrics: Columns, count: int, score: np.ndarray) -> None:
    """Add the best variant of each of the `count` splits, and what is on the front."""
    feasible = metrics["reason"] == 0
    found.tried += len(feasible)
    found.feasible += int(np.count_nonzero(feasible))
    found.reasons.update(_counted(metrics["reason"]))
    key = np.where(feasible, score, np.inf).reshape(count, -1)
    best = key.argmin(axis=1) + np.arange(count) * key.shape[1]
    best = best[np.isfinite(key.min(axis=1))]
    _append(found.layouts, columns, best)
    _append(found.metrics, metrics, best)
    rows = np.flatnonzero(feasible)
    on_front = rows[non_dominated([metrics["time"][rows], metrics["memory.total"][rows]])]
    _append(found.front, columns | {name: metrics[name] for name in ("time", "memory.total")}, on_front)
    _trim(found.front)


def _append(kept: Columns, columns: Columns, rows: np.ndarray) -> None:
    for name, values in columns.items():
        kept[name] = np.concatenate([kept[name], values[rows]]) if name in kept else values[rows]


def _trim(front: Columns) -> None:
    """Drop what a later chunk beats, and equals: of layouts with the same time and memory one is enough."""
    alive = np.flatnonzero(non_dominated([front["time"], front["memory.total"]]))
    _, first = np.unique(np.stack([front["time"][alive], front["memory.total"][alive]]), axis=1, return_index=True)
    for name, values in front.items():
        front[name] = values[alive[np.sort(first)]]


def _sorted(found: Found, score: np.ndarray) -> Found:
    """Best first; of splits that differ in the micro-batch alone the best one."""
    if not len(found):
        return found
    order = np.argsort(score, kind="stable")
    groups = np.stack([found.layouts[name][order] for name in GROUP_FIELDS])
    _, first = np.unique(groups, axis=1, return_index=True)
    chosen = order[np.sort(first)]
    found.layouts = {name: values[chosen] for name, values in found.layouts.items()}
    found.metrics = {name: values[chosen] for name, values in found.metrics.items()}
    return found
