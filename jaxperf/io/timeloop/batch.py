"""Many mapped nests of one structure in one compiled call, and a reason for each row that is none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hwspecs.errors import InputError
from jaxperf.io.timeloop.case import cost_record
from jaxperf.io.timeloop.nest import Factors
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.feasible import sentences
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.problem import Names, Operand, Problem
from jaxperf.loopnest.reuse import Rules
from jaxperf.sweeps.once import evaluate_over

Row = dict[str, Any]


class Point(NamedTuple):
    """One row as numbers. `machine`: fields of `Architecture` without its levels; `levels`: fields of each `Level`,
    innermost first; all points of a table name the same fields."""

    bounds: Sequence[float]
    coefficients: Sequence[float]
    operands: tuple[Operand, ...]
    factors: Factors
    machine: dict[str, float]
    levels: tuple[dict[str, float], ...]


def predict_points(
    rows: Sequence[Row], parse: Callable[[Row], Point], names: Names, levels: Sequence[str], unit: str, rules: Rules
) -> list[Row]:
    """The record of `cost_record` and a `reason` for every row, in order; NaN and the reason where there is none."""
    parsed = [_parsed(row, parse) for row in rows]
    points = {index: point for index, point in enumerate(parsed) if isinstance(point, Point)}
    groups: dict[Any, list[int]] = {}
    for index, point in points.items():
        groups.setdefault((point.operands, point.factors.kept), []).append(index)
    found: dict[int, Row] = {}
    for group in groups.values():
        cost = jax.device_get(_cost([points[index] for index in group], rules))
        for place, index in enumerate(group):
            own = jax.tree.map(lambda leaf, place=place: leaf[place], cost)
            found[index] = {**cost_record(own, names, levels, unit), "reason": "; ".join(sentences(int(own.reason)))}
    return [found.get(index) or {"reason": str(point)} for index, point in enumerate(parsed)]


def _parsed(row: Row, parse: Callable[[Row], Point]) -> Point | str:
    try:
        return parse(row)
    except InputError as error:
        return str(error)


def _cost(points: Sequence[Point], rules: Rules) -> NestCost:
    """The costs of points of one structure, stacked along a leading axis."""
    problem = Problem(_stacked(points, "bounds"), _stacked(points, "coefficients"), points[0].operands)
    arrays = {
        name: np.stack([getattr(point.factors, name) for point in points])
        for name in ("temporal", "spatial_x", "spatial_y", "rank")
    }
    mapping = Mapping(**arrays, kept=points[0].factors.kept)  # type: ignore
    levels = tuple(
        Level(**{name: np.asarray([point.levels[index][name] for point in points]) for name in fields})
        for index, fields in enumerate(points[0].levels)
    )
    machine = {name: np.asarray([point.machine[name] for point in points]) for name in points[0].machine}
    architecture = Architecture(levels, **machine)
    # A field that no point names is one number, the same for all.
    whole = jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (len(points),)) if np.ndim(leaf) == 0 else leaf, architecture
    )
    evaluate = jax.jit(functools.partial(nest_cost, rules=rules))
    return evaluate_over(evaluate, problem, whole, mapping, along=((0,), (0,), (0,)))


def _stacked(points: Sequence[Point], name: str) -> np.ndarray:
    return np.asarray([getattr(point, name) for point in points], float)
