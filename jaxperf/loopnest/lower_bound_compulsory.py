"""What every mapping pays: a multiply-accumulate for each point of the nest, and every word at least once a level."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.mapping import product
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.problem import Operand, Problem
from jaxperf.loopnest.reuse import tile_size


class Compulsory(NamedTuple):
    """`cycles`; `energy` [J]: no mapping has less of either; `macs`; `units`: that a mapping can use at most [1]."""

    cycles: Scalar
    energy: Scalar
    macs: Scalar
    units: Scalar


def compulsory(problem: Problem, architecture: Architecture, space: MapSpace) -> Compulsory:
    """The bound of one problem, whatever its factors and orders.

    The innermost level that keeps an operand serves every multiply-accumulate, unless children share its words; every
    level further out, and each level's own filling, moves every word of the operand once.
    """
    macs = product(problem.bounds[d] for d in range(len(problem.bounds)))
    units = jnp.minimum(_spreads(problem, architecture, space, range(len(architecture.levels))), architecture.macs)
    energy = macs * architecture.mac_energy
    for index, operand in enumerate(problem.operands):
        keeping = [level for level, kept in enumerate(space.structure.kept) if kept[index]]
        words = tile_size(operand, [problem.bounds[d] for d in range(len(problem.bounds))], problem)
        shared = _spreads(problem, architecture, space, range(keeping[0] + 1))
        for position, level in enumerate(keeping):
            served = macs / shared if position == 0 else words
            energy = energy + _level_energy(operand, architecture.levels[level], served, words, units, level, keeping)
    return Compulsory(macs / units, energy, macs, units)


def _level_energy(
    operand: Operand, level: Level, served: Scalar, words: Scalar, units: Scalar, index: int, keeping: list[int]
) -> Scalar:
    """Energy of a level that hands out `served` words of an operand of `words` [J]; of results, each unit's first
    value of a word is added to nothing and need not be read."""
    filled = words if index != keeping[-1] else jnp.zeros_like(words)
    if not operand.written:
        spent = served * level.read_energy + filled * level.write_energy
    else:
        again = jnp.maximum(served - words * units, 0.0)
        spent = served * level.update_energy + again * level.read_energy
    return spent / (level.block * level.cluster)


def _spreads(problem: Problem, architecture: Architecture, space: MapSpace, levels: range) -> Scalar:
    """Children that one child of the levels' outermost fans out to at most: meshes, and what loops have to give [1]."""
    most = as_float(1.0)
    for index in levels:
        for kind, mesh in ((1, architecture.levels[index].fan_x), (2, architecture.levels[index].fan_y)):
            most = most * _direction(problem, space, index, kind, mesh)
    return most


def _direction(problem: Problem, space: MapSpace, level: int, kind: int, mesh: Scalar) -> Scalar:
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
