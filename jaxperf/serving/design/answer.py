"""A model, a base device and what may change: the device that serves it within its targets at the least cost."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwspecs.errors import InputError, did_you_mean
from hwspecs.quantity import format_quantity
from hwspecs.values import Source
from hwspecs.variant import variant
from jaxperf.core.feasible import sentences
from jaxperf.core.numerics import as_float, ceil_div
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.core.sustained_file import SustainedTable, calibration_of
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.memory import USABLE_SHARE
from jaxperf.serving.design.measures import MEASURES, Served, judged
from jaxperf.serving.design.search import Best, Range, Wanted, search
from jaxperf.serving.design.sized import SIZES, Sizes, design_power, power_parts, size_of
from jaxperf.serving.estimate import Estimate, estimate
from jaxperf.serving.study import Assumed, assumed_at, formats_of
from jaxperf.serving.techniques.power import PowerLaw
from jaxperf.sweeps.once import evaluate_once

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

AREA = "die_area"
LINKS = "link_bandwidth"  # of the node
CAPACITY = "memory_capacity"
FREE = (*SIZES, CAPACITY)  # facts of a device that a design may change
CHANGED = ("num_cores", "memory_bandwidth")  # of those where nothing is said
AT_PACE = ("num_cores", "clock_rate")  # sizes that the peaks go with
# Of a size whose range is not given, over the base's; of the clock, as far apart as those of chips of one family are,
# whose TDPs go with its cube (docs/design.md).
WIDEST = {**dict.fromkeys(SIZES, Range(0.25, 4.0)), "clock_rate": Range(0.7, 1.4)}
WHOLE_BYTES = 1e9  # a capacity is a whole number of these
FURTHEST = 1000  # times the base's, or that part of it: beyond it is another kind of device
KEY = "design"  # of the source of what was changed
NOTES = {
    **dict.fromkeys((*SIZES, "node"), "searched"),
    **dict.fromkeys(("vector_flops", "peak_flops"), "that of the base x num_cores x clock_rate over the base's"),
    "die_area": "that of the base x num_cores over the base's",
    "tdp": "(TDP - M) x num_cores x clock_rate^3 + M x memory_bandwidth, all over the base's; M: energy per byte x "
    "bandwidth of its memory",
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
    and slopes; `changes`: fact -> its number on the design, in SI units; `device`: the design, for steps in Python."""

    base: Estimate
    made: Estimate
    before: Mapping[str, float]
    best: Best
    changes: Mapping[str, Any]
    device: CalibratedDevice


def design(question: Question) -> Design | list[str]:
    """The design; where the model cannot run on the base with any sizes, why.

    **Raises:** `InputError` as `estimate` does, for what is no measure or no fact to be changed, and for an area where
    that of the base is not known.
    """
    _check(question)
    base = estimate(question.model, question.spec, question.point, question.launch, question.table)
    (served, assumed), holds_all = served_of(question), CAPACITY in question.free
    as_it_is = jax.jit(lambda: judged(served, assumed, Sizes(1.0, 1.0), holds_all))
    found = evaluate_once(as_it_is)
    if int(found.cost.reason):
        return sentences(int(found.cost.reason))
    best = search(
        served,
        assumed,
        question.wanted,
        {name: range_of(question, name) for name in SIZES if name in question.free},
        holds_all,
    )
    need = float(found.cost.memory.total) / USABLE_SHARE
    changes = changes_of(question.spec, best.sizes, need if holds_all else None)
    made = variant(question.spec, question.name, changes, NOTES, KEY, _source(question))
    return Design(
        base,
        estimate(question.model, made, question.point, question.launch, question.table),
        {name: float(np.asarray(value)) for name, value in found.measures.items()},
        best,
        changes,
        calibration_of(made, question.table).calibrated,
    )


def _check(question: Question) -> None:
    """See `design`."""
    minimized, limits = question.wanted.minimize, question.wanted.limits
    for what, names, allowed in (
        ("minimised", (minimized,), (*MEASURES, *SIZES)),
        ("limited", limits, tuple(MEASURES)),
        ("changed", question.free, FREE),
    ):
        for name in names:
            if name not in allowed:
                hint = did_you_mean(name, allowed)
                raise InputError(f"'{name}' cannot be {what} by a design; allowed: {', '.join(allowed)}.{hint}")
    if not question.free:
        raise InputError(f"Name what a design may change: {', '.join(FREE)}.")
    for name, ends in question.free.items():
        if ends is not None:
            _check_range(question.spec, name, ends)
    if minimized in limits:
        raise InputError(f"{minimized} is minimised and has a limit; what is minimised needs none.")
    if minimized in SIZES and minimized not in question.free:
        raise InputError(f"{minimized} is minimised, so it must be free.")
    if AREA in (minimized, *limits) and question.spec.die_area is None:
        raise InputError(f"The area of the dies of {question.spec.name} is not known; a file of your own may state it.")


def _check_range(spec: DeviceSpec, name: str, ends: tuple[float, float]) -> None:
    """Raises `InputError` for ends that are in no order, or no sizes of such a device."""
    if name == CAPACITY:
        raise InputError(f"{CAPACITY} takes no range: it is what the memory has to hold.")
    own = size_of(spec, name)
    text = f"{name}={':'.join(format_quantity(end, own.unit) for end in ends)}"
    if not ends[0] < ends[1]:
        raise InputError(f"{text}: the lower end must be below the upper.")
    if not own.si / FURTHEST <= ends[0] < ends[1] <= own.si * FURTHEST:
        raise InputError(f"{text}: an end is more than {FURTHEST} times off the base's {own.quantity}.")
    if own.unit == "1" and any(end % 1.0 for end in ends):
        raise InputError(f"{text}: there are whole numbers of them only.")


def served_of(question: Question) -> tuple[Served, Assumed]:
    """The base and how the model is served on it, as `judged` takes them."""
    point = {name: as_float(value) for name, value in question.point.items() if name not in ("weights", "kv_cache")}
    formats = formats_of(question.point["weights"], question.point["kv_cache"])
    calibrated = calibration_of(question.spec, question.table).calibrated
    parts = power_parts(question.spec, question.table.power)
    area = None if question.spec.die_area is None else as_float(question.spec.die_area.si)
    served = Served(calibrated, parts, question.law, transformer(question.model), {**point, **formats}, area)
    return served, assumed_at("nominal", question.launch)


def range_of(question: Question, name: str) -> Range:
    """The ends of a free size over that of the base [1]."""
    given, own = question.free[name], size_of(question.spec, name).si
    return WIDEST[name] if given is None else Range(given[0] / own, given[1] / own)


def changes_of(spec: DeviceSpec, sizes: Mapping[str, float], need: float | None) -> dict[str, Any]:
    """The facts of a device of these sizes that differ, in SI units; see `sized` for how they follow.

    **Arguments:** `need`: what its memory has to hold [byte], None where it stays.
    """
    cores, pace = sizes["num_cores"], math.prod(sizes.get(name, 1.0) for name in AT_PACE)
    tdp = design_power(power_parts(spec, {}), Sizes(*(sizes.get(name, 1.0) for name in SIZES)))
    changes: dict[str, Any] = {name: size_of(spec, name).si * size for name, size in sizes.items() if size != 1.0}
    links = {LINKS: changes.pop(LINKS)} if LINKS in changes else {}
    if cores != 1.0:
        changes["num_cores"] = round(changes["num_cores"])
    changes["tdp"] = float(tdp)
    if cores != 1.0 and spec.die_area is not None:
        changes["die_area"] = spec.die_area.si * cores
    if pace != 1.0:
        changes["vector_flops"] = spec.vector_flops.si * pace
        changes["peak_flops"] = {name: value.si * pace for name, value in spec.peak_flops.items()}
    if links:
        changes["node"] = links
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
