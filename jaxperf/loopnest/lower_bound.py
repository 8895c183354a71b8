"""A bound that no mapping with given factors can beat: the order that is best for each operand alone.

An operand moves least where the loops that do not index it run innermost at every level; of an operand with windows,
the loops of one axis come next, so that its windows slide. Accesses under those orders, the least of each operand, are
never more than those of any one order: their energies add up to a lower bound, and each of the orders is a mapping
whose cost is exact.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.mapping import iterations, unroll
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.mapspace_factors import row_mapping
from jaxperf.loopnest.problem import Operand, Problem
from jaxperf.loopnest.search import objective_of
from jaxperf.loopnest.sparse.whole import round_up


class Relaxed(NamedTuple):
    """`bound` of the objective over all orders that are not fixed; `score`: the least exact one of the orders tried,
    infinite where none can run; `rank`: that order."""

    bound: Scalar
    score: Scalar
    rank: Float[Array, "F D"]


def best_orders(problem: Problem, space: MapSpace) -> Float[np.ndarray, "R F D"]:
    """Ranks at the free levels under which some operand may move least."""
    found = {
        ranks
        for operand in problem.operands
        for ranks in itertools.product(
            operand_orders(operand, len(problem.bounds)), repeat=len(space.structure.free_levels)
        )
    }
    return np.array(sorted(found), float).reshape(len(found), -1, len(problem.bounds))


def operand_orders(operand: Operand, dimensions: int) -> list[tuple[int, ...]]:
    """Ranks of one level: irrelevant loops innermost, then the loops of one axis in any order, then the others."""
    idle = [d for d in range(dimensions) if d not in operand.relevant]
    windows = [[d for d, _ in axis] for axis in operand.axes if len(axis) > 1]
    orders = []
    for window in windows or [[]]:
        others = [d for d in sorted(operand.relevant) if d not in window]
        orders += [(*idle, *inner, *others) for inner in itertools.permutations(window)]
    return [tuple(order.index(d) for d in range(dimensions)) for order in orders]


@functools.partial(jax.jit, static_argnames=("objective",))
def relaxed_costs(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    tables: tuple[Array, ...],
    rows: Int[Array, "N D"],
    ranks: Float[Array, "N F D"],
    fixed: Bool[Array, "N F"],
    orders: Float[Array, "R F D"],
    objective: str,
) -> Relaxed:
    """Bounds of N rows of factors.

    **Arguments:** `ranks`: of the levels whose order is `fixed`; `orders`: `best_orders`, for all others.
    """

    def one(row: Int[Array, " D"], rank: Float[Array, "F D"], given: Bool[Array, " F"]) -> Relaxed:
        tried = jnp.where(given[None, :, None], rank[None], orders)
        costs = jax.vmap(lambda order: nest_cost(problem, architecture, row_mapping(space, tables, row, order)))(tried)
        scores = objective_of(costs, objective)
        chosen = jnp.argmin(scores)
        compute = iterations(unroll(row_mapping(space, tables, row, rank)))
        return Relaxed(_bound(architecture, costs, compute, objective), scores[chosen], tried[chosen])

    return jax.vmap(one)(rows, ranks, fixed)


def _bound(architecture: Architecture, costs: NestCost, compute: Scalar, objective: str) -> Scalar:
    """The objective with the least of each operand over the orders, whatever the other operands do."""
    cycles, energy = compute, costs.mac_energy[0]
    for level, cost in zip(architecture.levels, costs.levels, strict=True):
        least = [
            [
                jnp.min(count)
                for count in (each.reads, each.fills + each.updates, each.reads + each.fills + each.updates)
            ]
            for each in cost.accesses
            if each is not None
        ]
        limits = (level.read_bandwidth, level.write_bandwidth, level.shared_bandwidth)
        totals = [_sum([counts[kind] for counts in least]) for kind in range(len(limits))]
        for words, bandwidth in zip(totals, limits, strict=True):
            needed = words > 0.0  # nothing needs no bandwidth, not even none
            cycles = jnp.maximum(cycles, round_up(jnp.where(needed, words / jnp.where(needed, bandwidth, 1.0), 0.0)))
    for level, cost in zip(architecture.levels, costs.levels, strict=True):
        accessed = _sum([jnp.min(each) for each in cost.operand_energy])
        energy = energy + accessed + level.leakage * cycles * cost.instances[0]
    return {"edp": energy * cycles, "energy": energy, "cycles": cycles}[objective]


def _sum(terms: list[Scalar]) -> Scalar:
    """Of a level that keeps nothing there are none."""
    return functools.reduce(jnp.add, terms, as_float(0.0))
