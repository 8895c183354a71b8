"""What saves memory beside sharding and plain recomputation: modules of selective recomputation, and the host.

Each costs time and saves memory, so a layout that fits without is never faster with it. The search therefore takes
layouts that memory alone forbids, those that would be fastest first, and ends where the next one, were it to save for
nothing, is no better than what is already found.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxperf.core.numerics import as_float
from jaxperf.training.layout import MODULES, RECOMPUTE, Layout, module_fields
from jaxperf.training.layout_checks import TrainingReason
from jaxperf.training.model import TrainingModel
from jaxperf.training.recompute import modules_of
from jaxperf.training.search.found import best_of_groups
from jaxperf.training.search.space import Columns, crossed

# What may be tried -> how it is called.
SAVERS = {
    "modules": "modules of selective recomputation",
    "optimizer": "the optimizer on the host",
    "activations": "activations on the host",
}
OFFLOADED = {"optimizer": ("offload_optimizer", (0.0, 1.0)), "activations": ("offload", (0.0, 0.5, 1.0))}
MODULE_FIELDS = tuple(f"recompute_{name}" for name in MODULES)
SAVER_FIELDS = (*MODULE_FIELDS, "offload", "offload_optimizer")
INSIDE = {"moe_act": "moe", "shared_experts": "moe"}  # modules that another has inside
NONE, SELECTIVE = (float(RECOMPUTE.index(name)) for name in ("none", "selective"))

Evaluated = Callable[[Columns], Columns]


class Rungs(NamedTuple):
    """Ways to save memory, one row each: all that are tried, and the `deepest` of them."""

    every: Columns
    deepest: Columns


def unsaved(base: Layout, rows: int) -> Columns:
    """`SAVER_FIELDS` of layouts that leave them as they are asked for."""
    return {name: np.full(rows, float(getattr(base, name))) for name in SAVER_FIELDS}


def rungs(model: TrainingModel, base: Layout, recomputes: Sequence[str], savers: Sequence[str]) -> Rungs:
    """Every combination of recomputation and of what is offloaded, but for those that plain layouts have.

    **Arguments:** `recomputes`: names of plain recomputation that are allowed; `savers`: of `SAVERS`.
    """
    again = [(float(RECOMPUTE.index(name)), _asked(base)) for name in recomputes]
    if "modules" in savers:
        again += [(SELECTIVE, module_fields(each)) for each in module_sets(model)]
    shares = {
        field: steps if name in savers else (float(getattr(base, field)),) for name, (field, steps) in OFFLOADED.items()
    }
    rows = [
        {"recompute": code, **modules, **dict(zip(shares, offloaded, strict=True))}
        for offloaded in itertools.product(*shares.values())
        for code, modules in again
    ]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    plain = np.arange(len(rows)) < len(recomputes)  # the first of the products offload least
    most = {field: max(steps) for field, steps in shares.items()}
    deepest = [{"recompute": code, **modules, **most} for code, modules in again[: len(recomputes)] + again[-1:]]
    return Rungs(
        {name: values[~plain] for name, values in table.items()},
        {name: np.array([row[name] for row in deepest]) for name in deepest[0]},
    )


def module_sets(model: TrainingModel) -> list[tuple[str, ...]]:
    """Sets of modules that differ in what they compute again, that of everything last. The attention core is in none:
    flash attention keeps nothing of it."""
    own = [name for name in modules_of(model) if name != "core_attn"]
    sets = itertools.chain.from_iterable(itertools.combinations(own, count) for count in range(1, len(own) + 1))
    different = [each for each in sets if not any(INSIDE.get(name) in each for name in each)]
    everything = tuple(name for name in own if INSIDE.get(name) not in own)
    return sorted(different, key=lambda each: each == everything)


def _asked(base: Layout) -> dict[str, float]:
    return {name: float(getattr(base, name)) for name in MODULE_FIELDS}


class Candidates:
    """Layouts that may become the best ones by saving memory, as they come out of a search."""

    def __init__(self) -> None:
        self._columns: list[Columns] = []
        self._metrics: list[Columns] = []

    def add(self, columns: Columns, metrics: Columns, rows: np.ndarray) -> None:
        """Remember these rows of what was evaluated."""
        self._columns.append({name: values[rows] for name, values in columns.items()})
        self._metrics.append({name: metrics[name][rows] for name in ("unchecked_time", "memory.total")})

    def joined(self) -> tuple[Columns, Columns]:
        """(layouts, time and memory without savers)."""
        return _joined(self._columns), _joined(self._metrics)


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([each[name] for each in parts]) for name in parts[0]} if parts else {}


def fitting(
    columns: Columns, rows: np.ndarray, deepest: Columns, evaluated: Evaluated
) -> tuple[np.ndarray, Float[np.ndarray, " rows"]]:
    """Those of the `rows` that the deepest savers can run, and the least memory of each [byte]."""
    found = evaluated(crossed(columns, rows, deepest))
    feasible = (found["reason"] & ~int(TrainingReason.HOST) == 0).reshape(len(rows), -1)  # less of it may fit a host
    memory = np.where(feasible, found["memory.total"].reshape(feasible.shape), np.inf).min(axis=1)
    possible = feasible.any(axis=1)
    return rows[possible], memory[possible]


def bar(layouts: Columns, score: np.ndarray, top: int) -> float:
    """The score of the last of the `top` best groups of devices found: what a layout must be below to be shown."""
    best = best_of_groups(layouts, score) if len(score) else score
    return float(score[best[top - 1]]) if len(best) >= top else np.inf


def saver_words(layout: Mapping[str, float]) -> list[str]:
    """What a layout saves memory by: `recompute of moe_act, mla_up_proj`, `optimizer on the host`, ..."""
    words, modules = [], recomputed_modules(layout)
    if modules not in ((), MODULES[:1]):
        words.append(f"recompute of {', '.join(modules)}")
    for field, word in (("offload_optimizer", "optimizer"), ("offload", "activations")):
        if layout[field] > 0.0:
            words.append(f"{_share(layout[field])}{word} on the host")
    return words


def recomputed_modules(layout: Mapping[str, float]) -> tuple[str, ...]:
    """What its selective recomputation computes again, none where it has another."""
    chosen = layout["recompute"] == SELECTIVE
    return tuple(name for name in MODULES if chosen and layout[f"recompute_{name}"] > 0.0)


def _share(share: float) -> str:
    return "" if share >= 1.0 else f"{share:.0%} of the "


def deepened(base: Layout, savers: Sequence[str]) -> Layout:
    """A layout whose host has all that `savers` may send there."""
    most = {field: as_float(max(steps)) for name, (field, steps) in OFFLOADED.items() if name in savers}
    return dataclasses.replace(base, **most)
