"""Problem and mapping as all of Timeloop's formats state them: data spaces with projections, loops by level."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.fields import check_distinct, check_spelling, count, flag, list_of, object_of, text_of
from jaxperf.loopnest.problem import NamedAxis, Names, Problem, build_problem
from jaxperf.models.checks import show

SHAPE = ("name", "dimensions", "coefficients", "data_spaces")
COEFFICIENT = ("name", "default")
SPACE = ("name", "projection", "read_write")
DENSITIES = "densities"
KINDS = ("t", "x", "y")  # temporal, spatial along the mesh's columns, along its rows


class Block(NamedTuple):
    """The loops of one level. `loops`: (dimension, bound, kind of `KINDS`), outermost first; `kept`: operands;
    `stores`: False for a level that only spreads its loops over instances."""

    level: str
    loops: Sequence[tuple[str, float, str]]
    kept: Sequence[str]
    stores: bool = True


def read_problem(problem: Dictionary[str, Any], source: str) -> tuple[Problem, Names]:
    """A problem with `shape` and `instance`.

    **Raises:** `InputError` naming file and field for a missing bound, a projection that is no sum of dimensions times
    coefficients, a name that stands twice, or a problem that writes nothing.
    """
    shape = object_of(problem, "shape", f"{source}: problem")
    where = f"{source}: problem.shape"
    given = object_of(problem, "instance", f"{source}: problem")
    check_spelling(shape, SHAPE, where)
    dimensions = [str(name) for name in list_of(shape, "dimensions", where)]
    check_distinct(dimensions, "dimension", where)
    bounds = {}
    for name in dimensions:
        if name not in given:
            raise InputError(f"{source}: problem.instance has no bound of {name}.{did_you_mean(name, given)}")
        bounds[name] = count(given[name], f"{source}: problem.instance.{name}")
    coefficients = {}
    for each in list_of({"coefficients": [], **shape}, "coefficients", where):
        name = text_of(each, "name", f"{where}.coefficients")
        check_spelling(each, COEFFICIENT, f"{where}.coefficients.{name}")
        coefficients[name] = count(given.get(name, each.get("default", 1)), f"{source}: problem.instance.{name}")
    check_spelling(given, (*bounds, *coefficients, DENSITIES), f"{source}: problem.instance")
    operands, written = {}, []
    spaces = list_of(shape, "data_spaces", where)
    check_distinct((text_of(space, "name", f"{where}.data_spaces") for space in spaces), "data space", where)
    for space in spaces:
        name = text_of(space, "name", f"{where}.data_spaces")
        check_spelling(space, SPACE, f"{where}.data_spaces.{name}")
        axes = list_of(space, "projection", f"{where}.data_spaces.{name}")
        operands[name] = [_axis(axis, dimensions, coefficients, f"{where}.data_spaces.{name}") for axis in axes]
        if flag(space.get("read_write", False), f"{where}.data_spaces.{name}.read_write"):
            written.append(name)
    if not operands:
        raise InputError(f"{where}.data_spaces is empty; name what is read and what is written.")
    if not written:
        raise InputError(f"{where}.data_spaces: none is read_write; a nest writes one of {', '.join(operands)}.")
    return build_problem(bounds, operands, written, coefficients)


def _axis(axis: Any, dimensions: Sequence[str], coefficients: Dictionary[str, float], where: str) -> NamedAxis:
    """`[[R, dilation], [P, stride]]`, or a dimension alone."""
    terms = [[axis]] if isinstance(axis, str) else axis
    found = []
    for term in terms if isinstance(terms, list) and terms else [None]:
        parts = [term] if isinstance(term, str) else term
        if not isinstance(parts, list) or not 1 <= len(parts) <= 2:
            raise InputError(f"{where}: {show(axis)} in the projection is no sum of dimensions times coefficients.")
        name, factor = (str(part) for part in (*parts, "")[:2])
        if name not in dimensions:
            raise InputError(f"{where}: '{name}' is not a dimension.{did_you_mean(name, dimensions)}")
        if factor and factor not in coefficients:
            raise InputError(f"{where}: '{factor}' is not a coefficient.{did_you_mean(factor, coefficients)}")
        found.append((name, factor))
    return found


class Factors(NamedTuple):
    """A mapping as plain arrays of [level, dimension], innermost level first; the fields of `Mapping`."""

    temporal: np.ndarray
    spatial_x: np.ndarray
    spatial_y: np.ndarray
    rank: np.ndarray
    kept: tuple[tuple[bool, ...], ...]


def read_mapping(blocks: Sequence[Block], names: Names, source: str) -> tuple[Factors, tuple[str, ...]]:
    """The mapping of blocks, outermost first, and the names of its storage levels, innermost first.

    Loops that only spread over instances belong to the storage level outside of them.
    **Raises:** `InputError` naming file, level and loop.
    """
    stores = [block.level for block in blocks if block.stores]
    if not stores:
        raise InputError(f"{source}: the mapping has no storage level.")
    if len(set(stores)) < len(stores):
        raise InputError(f"{source}: the mapping names a storage level twice: {', '.join(stores)}.")
    sizes = (len(stores), len(names.dimensions))
    factors = {kind: np.ones(sizes) for kind in KINDS}
    places = np.full(sizes, -1.0)
    kept = [[False] * len(names.operands) for _ in stores]
    level = len(stores)
    for block in blocks:
        level -= block.stores
        where = f"{source}: mapping of {block.level}"
        if level == len(stores) and block.loops:
            raise InputError(f"{where}: its loops run outside of the outermost storage level.")
        _put_loops(block, level, names, factors, places, where)
        for name in block.kept:
            kept[level][_position(name, names.operands, "operand", where)] = True
    for name, *held in zip(names.operands, *kept, strict=True):
        if not any(held):
            raise InputError(f"{source}: no level of the mapping keeps {name}; the outermost has to.")
    temporal, columns, rows = (factors[kind] for kind in KINDS)
    found = Factors(temporal, columns, rows, _ranks(places), tuple(map(tuple, kept)))
    return found, tuple(reversed(stores))


def _put_loops(
    block: Block, level: int, names: Names, factors: dict[str, np.ndarray], places: np.ndarray, where: str
) -> None:
    """Enter the loops of a block; `places` counts temporal loops inwards."""
    for number, (name, bound, kind) in enumerate(block.loops):
        dimension = _position(name, names.dimensions, "dimension", where)
        if kind not in KINDS:
            raise InputError(f"{where}: loop {name} is of kind '{kind}'; it must be one of {', '.join(KINDS)}.")
        if kind == "t" and not block.stores:
            raise InputError(f"{where}: {name} is a temporal loop of a level that stores nothing.")
        if kind == "t" and places[level, dimension] >= 0.0:
            raise InputError(f"{where}: {name} has two temporal loops; merge them or put one at another level.")
        factors[kind][level, dimension] *= count(bound, f"{where}: bound of {name}")
        if kind == "t":
            places[level, dimension] = float(number)


def _ranks(places: np.ndarray) -> np.ndarray:
    """Ranks from the innermost; loops that are not there, of bound one, are put innermost."""
    absent = places < 0.0
    order = np.where(absent, places.shape[1] + np.arange(places.shape[1]), places)
    return np.argsort(np.argsort(-order, axis=1), axis=1).astype(float)


def _position(name: Any, known: Sequence[str], what: str, where: str) -> int:
    if name not in known:
        hint = did_you_mean(str(name), known)
        raise InputError(f"{where}: '{name}' is no {what}; the problem has {', '.join(known)}.{hint}")
    return known.index(name)
