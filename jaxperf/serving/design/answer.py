"""A model, a base device and what may change: the device that serves it within its targets at the least cost."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwspecs.values import Source
from hwspecs.variant import variant
from jaxperf.core.feasible import sentences
from jaxperf.core.numerics import as_float, ceil_div
from jaxperf.core.sustained_file import SustainedTable, calibration_of
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.memory import USABLE_SHARE
from jaxperf.serving.design.measures import MEASURES, Served, judged
from jaxperf.serving.design.search import SIZES, Best, Range, Wanted, search
from jaxperf.serving.design.sized import Sizes, power_parts
from jaxperf.serving.estimate import Estimate, estimate
from jaxperf.serving.study import assumed_at, formats_of
from jaxperf.serving.techniques.power import PowerLaw
from jaxperf.sweeps.once import evaluate_once

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

CAPACITY = "memory_capacity"
FREE = (*SIZES, CAPACITY)  # facts of a device that a design may change
WIDEST = Range(0.25, 4.0)  # of a size whose range is not given, over the base's
WHOLE_BYTES = 1e9  # a capacity is a whole number of these
KEY = "design"  # of the source of what was changed
PROPORTIONAL = "that of the base x num_cores over the base's"
NOTES = {
    **dict.fromkeys(SIZES, "searched"),
    **dict.fromkeys(("vector_flops", "peak_flops", "die_area"), PROPORTIONAL),
    "tdp": "(TDP - M) x num_cores + M x memory_bandwidth, both over the base's; M: energy per byte x bandwidth of its "
    "memory",
    CAPACITY: "what it has to hold, over the share of it that engines use",
}


@dataclass(frozen=True)
class Question:
    """`point` as of `estimate`; `free`: fact of `FREE` -> its range in SI units, None for the widest; `law` by which
    devices draw power; `name` of the device that is made."""

    model: ModelConfig
    spec: DeviceSpec
    point: Mapping[str, Any]
    launch: str
    table: SustainedTable
    law: PowerLaw
    free: Mapping[str, tuple[float, float] | None]
    wanted: Wanted
    name: str


@dataclass(frozen=True)
class Design:
    """`base`, `made`: the model on the base and on the design; `before`: measures on the base; `best`: sizes, measures
    and slopes; `changes`: fact -> its number on the design, in SI units."""

    base: Estimate
    made: Estimate
    before: Mapping[str, float]
    best: Best
    changes: Mapping[str, Any]


def design(question: Question) -> Design | list[str]:
    """The design; where the model cannot run on the base with any sizes, why.

    **Raises:** `InputError` as `estimate` does.
    """
    base = estimate(question.model, question.spec, question.point, question.launch, question.table)
    served, assumed, holds_all = _served(question), assumed_at("nominal", question.launch), CAPACITY in question.free
    as_it_is = jax.jit(lambda: judged(served, assumed, Sizes(1.0, 1.0), holds_all))
    found = evaluate_once(as_it_is)
    if int(found.cost.reason):
        return sentences(int(found.cost.reason))
    best = search(served, assumed, question.wanted, {name: _range(question, name) for name in SIZES}, holds_all)
    need = float(found.cost.memory.total) / USABLE_SHARE
    changes = changes_of(question.spec, best.sizes, need if holds_all else None)
    made = variant(question.spec, question.name, changes, NOTES, KEY, _source(question))
    return Design(
        base,
        estimate(question.model, made, question.point, question.launch, question.table),
        {name: float(np.asarray(value)) for name, value in found.measures.items()},
        best,
        changes,
    )


def _served(question: Question) -> Served:
    point = {name: as_float(value) for name, value in question.point.items() if name not in ("weights", "kv_cache")}
    formats = formats_of(question.point["weights"], question.point["kv_cache"])
    calibrated = calibration_of(question.spec, question.table).calibrated
    parts = power_parts(question.spec, question.table.power)
    return Served(calibrated, parts, question.law, transformer(question.model), {**point, **formats})


def _range(question: Question, name: str) -> Range:
    """Of a size over that of the base."""
    if name not in question.free:
        return Range(1.0, 1.0)
    given, own = question.free[name], getattr(question.spec, name).si
    return WIDEST if given is None else Range(given[0] / own, given[1] / own)


def changes_of(spec: DeviceSpec, sizes: Mapping[str, float], need: float | None) -> dict[str, Any]:
    """The facts of a device of these sizes that differ, in SI units; see `sized` for how they follow.

    **Arguments:** `need`: what its memory has to hold [byte], None where it stays.
    """
    cores, bandwidth = (sizes[name] for name in SIZES)
    parts = power_parts(spec, {})
    changes: dict[str, Any] = {}
    if cores != 1.0:
        changes["num_cores"] = round(spec.num_cores.si * cores)
    if bandwidth != 1.0:
        changes["memory_bandwidth"] = spec.memory_bandwidth.si * bandwidth
    changes["tdp"] = float(parts.rest) * cores + float(parts.memory) * bandwidth
    if cores != 1.0:
        changes |= {} if spec.die_area is None else {"die_area": spec.die_area.si * cores}
        changes["vector_flops"] = spec.vector_flops.si * cores
        changes["peak_flops"] = {name: value.si * cores for name, value in spec.peak_flops.items()}
    if need is not None:
        changes[CAPACITY] = float(ceil_div(as_float(need), as_float(WHOLE_BYTES))) * WHOLE_BYTES
    return changes


def _source(question: Question) -> Source:
    wanted = question.wanted
    limits = " and ".join(f"{name} of at most {limit:g} {MEASURES[name][0]}" for name, limit in wanted.limits.items())
    return Source(
        title=f"Least {wanted.minimize} for {question.model.name}{f' at {limits}' if limits else ''}, from the "
        f"{question.spec.name}",
        publisher="jaxperf design",
        kind="estimate",
        year=datetime.date.today().year,
    )
