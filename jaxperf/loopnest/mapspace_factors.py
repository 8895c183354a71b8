"""Every way to factor the loops of a problem over the slots of a map space, pruned while loops are added.

Tiles and fan-outs only grow with every loop that gets its factors, so what does not fit with some loops never will.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.mapping import Mapping, fan_out, product, unroll
from jaxperf.loopnest.mapspace import MapSpace, mapping_of
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.reuse import tile_size

BLOCK = 4096  # rows of one compiled call; the last is padded, so that it compiles once
ROWS = 64  # tables are padded to a multiple, so that layers share compilations


class Factorings(NamedTuple):
    """`tables`: by dimension, one row of factors for each way, padded by rows of ones [1]; `sizes`: ways of each
    dimension."""

    tables: tuple[Array, ...]
    sizes: tuple[int, ...]


def factorings(space: MapSpace) -> Factorings:
    """All ways of each dimension alone."""
    ways = [
        _ways([int(p) for p in primes if p > 1.0], len(slots))
        for primes, slots in zip(np.asarray(space.primes), space.structure.slots, strict=True)
    ]
    padded = [np.concatenate([each, np.ones((-len(each) % ROWS, each.shape[1]))]) for each in ways]
    return Factorings(tuple(jnp.asarray(each, space.primes.dtype) for each in padded), tuple(map(len, ways)))


def count_ways(space: MapSpace) -> int:
    """Factorings of all dimensions together: the size of the space, orders aside [1]."""
    total = 1
    for primes, slots in zip(np.asarray(space.primes), space.structure.slots, strict=True):
        for _, alike in itertools.groupby(primes[primes > 1.0]):
            items = len(list(alike))
            total *= math.comb(items + len(slots) - 1, items)  # alike items into slots
    return total


def _ways(primes: list[int], slots: int) -> np.ndarray:
    rows = np.ones((1, slots))
    for prime, alike in itertools.groupby(primes):
        powers = itertools.combinations_with_replacement(range(slots), len(list(alike)))
        found = np.array([prime ** np.bincount(put, minlength=slots) for put in powers], float)
        rows = (rows[:, None, :] * found[None, :, :]).reshape(-1, slots)
    return rows


def feasible_rows(
    problem: Problem, architecture: Architecture, space: MapSpace, ways: Factorings, limit: int, least: float
) -> np.ndarray | None:
    """Rows of one way for every dimension that fit the machine and use at least `least` units [N, D].

    Loops that may spread come first: once they are placed, the units in use are known. `None` where a step would
    leave more than `limit` rows.
    """
    spreads = [any(slot.kind for slot in slots) for slots in space.structure.slots]
    order = sorted(range(len(spreads)), key=lambda d: (not spreads[d], ways.sizes[d]))
    absent = np.array([len(table) - 1 if len(table) > size else 0 for table, size in zip(*ways, strict=True)])
    rows = absent[None, :]
    for position, dimension in enumerate(order):
        placed = not any(spreads[d] for d in order[position + 1 :])
        grown = []
        for block in _grown(rows, dimension, ways.sizes[dimension]):
            fits = _check(problem, architecture, space, ways, block, least if placed else 0.0)
            grown.append(block[fits])
            if sum(map(len, grown)) > limit:
                return None
        rows = np.concatenate([rows[:0], *grown])
    return rows


def _grown(rows: np.ndarray, dimension: int, size: int) -> Iterator[np.ndarray]:
    """Rows with every way of one more dimension, a block at a time."""
    for start in range(0, len(rows) * size, BLOCK):
        index = np.arange(start, min(start + BLOCK, len(rows) * size))
        block = rows[index // size].copy()
        block[:, dimension] = index % size
        yield block


def padded(block: np.ndarray, size: int = BLOCK) -> Int[Array, "N D"]:
    """A block filled up with copies of its first row."""
    return jnp.asarray(np.concatenate([block, np.repeat(block[:1], size - len(block), axis=0)]), jnp.int32)


def _check(
    problem: Problem, architecture: Architecture, space: MapSpace, ways: Factorings, block: np.ndarray, least: float
) -> np.ndarray:
    fits, used = _fitting(problem, architecture, space, ways.tables, padded(block))
    return np.asarray(fits & (used >= least))[: len(block)]


@jax.jit
def _fitting(
    problem: Problem, architecture: Architecture, space: MapSpace, tables: tuple[Array, ...], rows: Int[Array, "N D"]
) -> tuple[Bool[Array, " N"], Array]:
    def one(row: Int[Array, " D"]) -> tuple[Bool[Array, ""], Scalar]:
        return _fits(problem, architecture, row_mapping(space, tables, row, _no_order(space)))

    return jax.vmap(one)(rows)


def row_mapping(space: MapSpace, tables: tuple[Array, ...], row: Int[Array, " D"], rank: Array) -> Mapping:
    """The mapping of one way for every dimension."""
    factors = [[table[row[d], s] for s in range(table.shape[1])] for d, table in enumerate(tables)]
    return mapping_of(space, factors, rank)


def _no_order(space: MapSpace) -> Array:
    dimensions = space.primes.shape[0]
    ranks = np.tile(np.arange(dimensions), (len(space.structure.free_levels), 1))
    return jnp.asarray(ranks, space.primes.dtype)


def _fits(problem: Problem, architecture: Architecture, mapping: Mapping) -> tuple[Bool[Array, ""], Scalar]:
    """Whether tiles and fan-outs of some of the loops fit, and the units they use [1]."""
    nest = unroll(mapping)
    dimensions = range(mapping.temporal.shape[1])
    used = fan_out(nest, range(len(nest.spatial)))
    checks = [used <= architecture.macs]
    for index, level in enumerate(architecture.levels):
        tiles = [
            tile_size(operand, nest.tile[index], problem)
            for operand, kept in zip(problem.operands, mapping.kept[index], strict=True)
            if kept
        ]
        if tiles:
            checks.append(functools.reduce(jnp.add, tiles) * level.buffering <= level.size)
        checks.append(fan_out(nest, range(index + 1, len(nest.spatial))) <= level.instances)
        checks.append(product(mapping.spatial_x[index, d] for d in dimensions) <= level.fan_x)
        checks.append(product(mapping.spatial_y[index, d] for d in dimensions) <= level.fan_y)
    return functools.reduce(jnp.logical_and, checks), used
