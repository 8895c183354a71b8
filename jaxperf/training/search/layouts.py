"""The search for a training layout: every one of a number of devices is evaluated, the best of each split is kept.

What a split alone forbids (divisibility, groups, memory even when everything is saved) is decided once for the split,
by the same checks and the same memory model as the step; the rest is evaluated in blocks by the jitted step. Layouts
that memory alone forbids may then be tried with what saves memory (`savers.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

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
from jaxperf.training.search.found import Found, append, best_first, trim
from jaxperf.training.search.savers import NONE, Candidates, Rungs, bar, fitting, rungs, unsaved
from jaxperf.training.search.space import Columns, Space, crossed, frugal, kinds, splits, variants
from jaxperf.training.search.terms import METRICS
from jaxperf.training.sweep import BLOCK, evaluate_layouts, few_layouts

CHUNK = 8 * BLOCK  # layouts between two reports of progress
# Up to so many nothing is compiled: 2 million take 7 s on the host.
FEW_LAYOUTS = 2**21
OBJECTIVES = ("time", "cost", "memory")  # at one number of equal devices cost follows time
PASSED_ON = "passed on"  # where micro-batches go on to other devices: the step, and the way of one through all stages

Progress = Callable[[int, int], None]


def search_layouts(
    model: TrainingModel,
    device: Device,
    efficiencies: TrainingEfficiencies,
    base: Layout,
    devices: int,
    *,
    objective: str = "time",
    space: Space | None = None,
    savers: Sequence[str] = (),
    top: int = 5,
    progress: Progress | None = None,
) -> Found:
    """Evaluate every layout of `devices` devices; Ctrl-C keeps what was found until then.

    **Arguments:** `base`: sequence, batch, formats and all that is not searched; `savers`: what of `SAVERS` may make
    layouts fit that else do not, as far as they are then among the `top` best.
    """
    space = Space() if space is None else space
    found = Found(savers=savers)
    ways = rungs(model, base, space.recomputes, savers) if savers else None
    table = splits(devices, int(model.experts), int(base.sequence), space)
    found.splits = len(table["tensor"])
    table = _possible(model, device, efficiencies, base, table, found, ways)
    node = int(device.node_size)
    plans = [(rows, variants(kind, node, space)) for kind, rows in kinds(table, node, float(model.moe_layers) > 0.0)]
    total = sum(len(rows) * len(each["zero"]) for rows, each in plans)
    whole = total > FEW_LAYOUTS
    candidates = Candidates()

    def evaluated(columns: Columns) -> Columns:
        if whole and ways is not None:  # with these or without, they share one compile
            columns = unsaved(base, len(columns["tensor"])) | columns
        return evaluate(model, columns, device, efficiencies, base, not whole)

    try:
        for rows, others in plans:
            for part in _parts(rows, len(others["zero"])):
                columns = crossed(table, part, others)
                metrics = evaluated(columns)
                columns |= unsaved(base, len(columns["tensor"]))
                _keep(found, columns, metrics, len(part), _score(columns, metrics, objective, base))
                if ways is not None:
                    candidates.add(columns, metrics, _savable(columns, metrics, objective))
                if progress is not None:
                    progress(found.tried, total)
        if ways is not None:
            _save_memory(found, candidates, ways, evaluated, objective, base, top)
    except KeyboardInterrupt:
        found.interrupted = True
    return best_first(found, _score(found.layouts, found.metrics, objective, base) if len(found) else np.empty(0))


def _savable(columns: Columns, metrics: Columns, objective: str) -> np.ndarray:
    """Rows that nothing but memory forbids, or any for which less memory is better; each once, without
    recomputation."""
    apart = metrics["reason"] == TrainingReason.MEMORY
    wanted = apart | (metrics["reason"] == 0) if objective == "memory" else apart
    return np.flatnonzero(wanted & (columns["recompute"] == NONE))


def _save_memory(
    found: Found,
    candidates: Candidates,
    ways: Rungs,
    evaluated: Callable[[Columns], Columns],
    objective: str,
    base: Layout,
    top: int,
) -> None:
    """Try candidates in the order of what they would reach if saving memory cost nothing, until none can be among the
    `top` best."""
    columns, metrics = candidates.joined()
    if not columns or not len(columns["tensor"]):
        return

    def reached() -> float:
        return bar(found.layouts, _score(found.layouts, found.metrics, objective, base), top) if len(found) else np.inf

    ideal = metrics | {"time": metrics["unchecked_time"]}
    if len(found):  # the best without
        best = np.argmin(_score(found.layouts, found.metrics, objective, base))
        append(found.saving, found.layouts | found.metrics, np.array([best]))
    rows = np.arange(len(columns["tensor"]))
    if objective != "memory":
        rows = rows[_score(columns, ideal, objective, base) < reached()]
    if not len(rows):
        return
    rows, memory = fitting(columns, rows, ways.deepest, evaluated)
    ideal["memory.total"][rows] = memory
    bound = _score(columns, ideal, objective, base)[rows]
    order = np.argsort(bound, kind="stable")
    for part in _parts(order, len(ways.every["recompute"])):
        part = part[bound[part] < reached()]
        if not len(part):
            return
        tried = crossed(columns, rows[part], ways.every)
        metrics = evaluated(tried)
        score = _score(tried, metrics, objective, base)
        _keep(found, tried, metrics, len(part), score)
        append(found.saving, tried | metrics, _best_of_each(metrics, score, len(part)))


def _best_of_each(metrics: Columns, score: np.ndarray, count: int) -> np.ndarray:
    """The row of the best of `count` layouts with each of the savers that they were tried with, if it is feasible."""
    key = np.where(metrics["reason"] == 0, score, np.inf).reshape(count, -1)
    best, ways = key.argmin(axis=0), np.arange(key.shape[1])
    return (best * len(ways) + ways)[np.isfinite(key[best, ways])]


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
    ways: Rungs | None,
) -> Columns:
    """The splits that some variant can run; the others are counted by reason."""
    reasons = _structure(model, {name: jnp.asarray(each) for name, each in table.items()}, device, base)
    table = _left(table, np.asarray(reasons), found)
    if not len(table["tensor"]):
        return table
    least = frugal()
    if ways is not None:
        least = crossed(least, np.flatnonzero(least["recompute"] == NONE), ways.deepest)
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
    append(found.layouts, columns, best)
    append(found.metrics, metrics, best)
    rows = np.flatnonzero(feasible)
    on_front = rows[non_dominated([metrics["time"][rows], metrics["memory.total"][rows]])]
    append(found.front, columns | {name: metrics[name] for name in ("time", "memory.total")}, on_front)
    trim(found.front)
