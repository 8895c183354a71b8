"""Machines proposed by slopes: climbs from the best known machine and random ones; what they end at is mapped anew.

A climb is of relaxed mappings and numbers that need not be whole; what counts is the machine that can be built next to
its end, under an exact search like that of any machine of a sweep.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float, ceil_div, floor_div, stack
from jaxperf.io.codesign.area import knobs_with_areas, with_areas
from jaxperf.io.codesign.free import Axis
from jaxperf.io.codesign.machines import Design, design_of
from jaxperf.io.codesign.rows import COSTS, design_rows
from jaxperf.io.codesign.search import Question, Searched, compare, layer_spaces, search_design
from jaxperf.loopnest.codesign.descent import STARTS, STEPS, descend_machines, within
from jaxperf.loopnest.codesign.relaxed import Free, Layers, PowerBudget
from jaxperf.loopnest.evaluate import machine_area
from jaxperf.loopnest.redesign import MESHES
from jaxperf.loopnest.relaxed_search import SLOPE

PICKED = 3  # machines mapped of those that a climb of `STARTS` ends at
DIGITS = 4  # of a number that has no step
NEAR = 0.01  # of a bound, where a running mean comes near it and never to it
FITTED = ("size", *MESHES)  # fields that can be cut to what mappings need, in the order of `Totals.needed`


def proposed_machines(asked: Question) -> Iterator[Searched]:
    """Machines as they are mapped, each followed by itself cut to what its mappings need, until enough are mapped or no
    climb ends at a new one.

    **Raises:** `InputError` for instances that would not be whole; `KeyboardInterrupt` where the user stops it.
    """
    found: dict[tuple[float, ...], Searched] = {}
    mapped, climbed, climbs = 0, 0, 0
    ends = [buildable(asked, np.asarray(within(_free(asked), jnp.asarray(_base_numbers(asked)))))]
    while new := [end for end in dict.fromkeys(ends) if end not in found][: min(PICKED, asked.machines - mapped)]:
        for values in new:
            if values in found:
                continue  # what the one before was cut to
            machine = search_design(_design(asked, values), asked)
            machine = machine._replace(evaluations=machine.evaluations + climbed)
            mapped, climbed = mapped + 1, 0
            for each in (machine, *_cut(asked, machine)):
                if tuple(each.design.values.values()) not in found:
                    found[tuple(each.design.values.values())] = each
                    yield each
        if mapped == asked.machines:
            return
        ends = _climb(asked, min(found.values(), key=lambda each: _score(asked, each)), climbs)
        climbs, climbed = climbs + 1, len(asked.task.cases) * STARTS * STEPS * SLOPE


def _design(asked: Question, values: Sequence[float]) -> Design:
    task = asked.task
    design = design_of(task.cases[0], task.constraints, asked.axes, asked.knobs, values)
    return with_areas([design], asked.silicon, asked.path, task.cases[0].levels)[0]


def _score(asked: Question, machine: Searched) -> float:
    """The objective with the machine's own mappings; infinite where a layer cannot run or a budget is exceeded."""
    totals = compare([machine], asked.task, asked.objective)
    row = design_rows([machine], totals, asked.task, asked.objective, asked.limits)[0]
    return row[COSTS[asked.objective]] if row["feasible"] else math.inf


def _cut(asked: Question, machine: Searched) -> list[Searched]:
    """The machine with no more than its mappings need of what is free, unless that is what it has: smaller levels and
    meshes cost less, and nothing runs slower."""
    totals = compare([machine], asked.task, asked.objective)
    if totals.failed.any():
        return []
    values = dict(machine.design.values)
    for axis, knob in zip(asked.axes, asked.knobs, strict=True):
        if axis.field in FITTED:
            most = float(totals.needed[0, knob.level, FITTED.index(axis.field)])
            steps = ceil_div(as_float(max(most - axis.values[0], 0.0)), as_float(axis.step))
            values[axis.name] = min(values[axis.name], axis.values[0] + axis.step * float(steps))
    if values == machine.design.values:
        return []
    return [machine._replace(design=_design(asked, [*values.values()]), evaluations=0)]


def _climb(asked: Question, best: Searched, climbs: int) -> list[tuple[float, ...]]:
    """Machines that climbs from the best and from random ones end at, those of the least loss first; layers lean to the
    best's mappings at first."""
    task, rng = asked.task, np.random.default_rng((asked.seed, climbs))
    low, high = _bounds(asked)
    begin = low + rng.random((STARTS, len(low))) * (high - low)
    begin[0] = np.log([*best.design.values.values()])
    leaders = stack(best.genomes)  # [layer, leader]
    genomes = jax.tree.map(lambda leaf: jnp.stack([leaf[:, s % leaf.shape[1]] for s in range(STARTS)]), leaders)
    nests = stack([case.problem for case in task.cases]), stack(layer_spaces(task, best.design.constraints))
    layers = Layers(*nests, as_float(task.counts))
    free = _free(asked, best)
    with jax.enable_x64(False):
        at = jax.tree.map(_narrow, (layers, free, begin, genomes))
        ends, loss = map(np.asarray, descend_machines(*at, jax.random.key(rng.integers(2**31)), asked.objective))
    return [buildable(asked, ends[place].astype(float)) for place in np.argsort(loss)]


def _narrow(leaf: Any) -> Array:
    """Floats in 32 bits."""
    array = np.asarray(leaf)
    return jnp.asarray(array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array)


def _bounds(asked: Question) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.log([[axis.values[0], axis.values[-1]] for axis in asked.axes]).T
    return low, high


def _base_numbers(asked: Question) -> np.ndarray:
    """ln of what the base has of each axis, within its range."""
    levels = asked.task.cases[0].architecture.levels
    has = [float(getattr(levels[knob.level], MESHES.get(knob.field, knob.field))) for knob in asked.knobs]
    return np.clip(np.log(np.maximum(has, 1e-30)), *_bounds(asked))


def _free(asked: Question, best: Searched | None = None) -> Free:
    """The base machine with its areas, and what a climb may turn of it; the power of others follows from the best's."""
    case, limits = asked.task.cases[0], asked.limits
    base = Design({}, case.architecture, asked.task.constraints)
    base = with_areas([base], asked.silicon, asked.path, case.levels)[0]
    knobs = knobs_with_areas(asked.knobs, asked.silicon, asked.path, case.levels)
    area = math.inf if limits.area is None else limits.area
    # Areas that nobody asked for are not known, and matter to nothing.
    machine, knobs = jax.tree.map(lambda leaf: jnp.where(jnp.isnan(leaf), 1.0, leaf), (base.architecture, knobs))
    low, high = map(as_float, _bounds(asked))
    return Free(machine, knobs, low, high, as_float(area), _power_budget(asked, best))


def _power_budget(asked: Question, best: Searched | None) -> PowerBudget | None:
    """What the best machine takes and any may take of a cycle; None without a budget, and where the best cannot run."""
    limits = asked.limits
    if best is None or limits.power is None or limits.clock is None:
        return None
    totals = compare([best], asked.task, asked.objective)
    known = float(totals.energy[0] / totals.cycles[0])
    if not math.isfinite(known):
        return None
    numbers = as_float(np.log([*best.design.values.values()]))
    return PowerBudget(as_float(limits.power / limits.clock), as_float(known), numbers)


def buildable(asked: Question, numbers: Float[np.ndarray, " K"]) -> tuple[float, ...]:
    """The nearest machine whose fields are whole steps, of those beside `numbers` (logarithms) that keep the budget of
    area; the smallest of them where none does."""
    choices = [_steps(axis, float(number)) for axis, number in zip(asked.axes, np.exp(numbers), strict=True)]
    corners = sorted(itertools.product(*choices), key=lambda each: float(np.sum((np.log(each) - numbers) ** 2)))
    if asked.limits.area is None:
        return corners[0]
    areas = []
    for corner in corners:
        areas.append(float(machine_area(_design(asked, corner).architecture)))
        if areas[-1] <= asked.limits.area:
            return corner
    return corners[int(np.argmin(areas))]


def _steps(axis: Axis, number: float) -> tuple[float, ...]:
    """What an axis may be just below and just above a number."""
    low, high = axis.values[0], axis.values[-1]
    if not axis.step:
        near = [bound for bound in (low, high) if abs(number / bound - 1.0) < NEAR]
        return (near[0] if near else float(f"{number:.{DIGITS}g}"),)
    below = float(floor_div(as_float(number - low), as_float(axis.step)))
    last = float(floor_div(as_float(high - low), as_float(axis.step)))
    return tuple({low + axis.step * min(max(each, 0.0), last) for each in (below, below + 1.0)})
