"""What every mapping pays: a multiply-accumulate for each point of the nest, and every word at least once a level."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.mapping import product
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.problem import Axis, Operand, Problem
from jaxperf.loopnest.reuse import tile_size

MOST_SUMS = 1e7  # of an axis that are counted one by one


class Compulsory(NamedTuple):
    """`cycles`; `energy` [J]: no mapping has less of either; `macs`; `units`: that a mapping can use at most [1]."""

    cycles: Scalar
    energy: Scalar
    macs: Scalar
    units: Scalar


def compulsory(problem: Problem, architecture: Architecture, space: MapSpace) -> Compulsory:
    """The bound of one problem, whatever its factors and orders.

    The innermost level that keeps an operand serves every multiply-accumulate, unless children share its words; every
    level further out, and each level's own filling, moves every word of the operand once. Words between windows that no
    window touches need not move: tiles of single windows leave them out.
    """
    macs = product(problem.bounds[d] for d in range(len(problem.bounds)))
    units = jnp.minimum(_spreads(architecture, space, range(len(architecture.levels))), architecture.macs)
    energy = macs * architecture.mac_energy
    for index, operand in enumerate(problem.operands):
        keeping = [level for level, kept in enumerate(space.structure.kept) if kept[index]]
        words = as_float(distinct_words(operand, problem))
        box = tile_size(operand, [problem.bounds[d] for d in range(len(problem.bounds))], problem)
        shared = _spreads(architecture, space, range(keeping[0] + 1))
        for position, level in enumerate(keeping):
            served = macs / shared if position == 0 else words
            filled = words if level != keeping[-1] else jnp.zeros_like(words)
            first = box * units
            energy = energy + _level_energy(operand, architecture.levels[level], served, filled, first)
    return Compulsory(macs / units, energy, macs, units)


def distinct_words(operand: Operand, problem: Problem) -> int:
    """Words of an operand that some iteration touches, or less where axes share loops or are too long to count."""
    found: list[tuple[set[int], int]] = []  # loops of axes that share some, and the most indices of one of these axes
    for axis in operand.axes:
        loops, most = {d for d, _ in axis}, _distinct_indices(axis, problem)
        linked = [each for each in found if each[0] & loops]
        found = [each for each in found if not each[0] & loops]
        found.append((loops.union(*(each[0] for each in linked)), max([most, *(each[1] for each in linked)])))
    return math.prod(most for _, most in found)


def _distinct_indices(axis: Axis, problem: Problem) -> int:
    """Different values of sum_d coefficient_d i_d over the loops of an axis."""
    terms = [(int(problem.bounds[d]), int(problem.coefficients[c])) for d, c in axis]
    if len(terms) == 1 or math.prod(bound for bound, _ in terms) > MOST_SUMS:
        return sum(bound - 1 for bound, _ in terms) + 1  # sums of two sets are as many as both less one, at least
    sums = np.zeros(1, np.int64)
    for bound, coefficient in terms:
        sums = np.unique(np.add.outer(sums, coefficient * np.arange(bound)))
    return len(sums)


def _level_energy(operand: Operand, level: Level, served: Scalar, filled: Scalar, first: Scalar) -> Scalar:
    """Energy of a level that hands out `served` words and takes `filled` ones [J]; of results, the `first` value of a
    word on each unit is added to nothing and need not be read."""
    if not operand.written:
        spent = served * level.read_energy + filled * level.write_energy
    else:
        spent = served * level.update_energy + jnp.maximum(served - first, 0.0) * level.read_energy
    return spent / (level.block * level.cluster)


def _spreads(architecture: Architecture, space: MapSpace, levels: range) -> Scalar:
    """Children that one child of the levels' outermost fans out to at most: meshes, and what loops have to give [1]."""
    most = as_float(1.0)
    for index in levels:
        for kind, mesh in ((1, architecture.levels[index].fan_x), (2, architecture.levels[index].fan_y)):
            most = most * _direction(space, index, kind, mesh)
    return most


def _direction(space: MapSpace, level: int, kind: int, mesh: Scalar) -> Scalar:
    """The largest product of divisors of the loops that may spread there which a mesh holds, one if none may [1]."""
    products = {1.0}
    for d, slots in enumerate(space.structure.slots):
        pins = [
            float(space.pins[i]) for i, (p, s) in enumerate(space.structure.pinned) if p == d and s == (level, kind)
        ]
        open_here = (level, kind) in slots
        divisors = _divisors([int(p) for p in np.asarray(space.primes[d]) if p > 1.0]) if open_here else pins or [1.0]
        products = {a * b for a in products for b in divisors if a * b <= float(mesh)}
    return as_float(max(products, default=1.0))


def _divisors(primes: list[int]) -> list[float]:
    return sorted(functools.reduce(lambda found, prime: found | {each * prime for each in found}, primes, {1.0}))
