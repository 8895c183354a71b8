"""How far a mapping is from the best of its space: branch and bound over factors, then over orders level by level.

Nodes are rows of factors whose outermost orders are fixed; the node with the least bound is taken apart first, so that
the least bound of those left is at any time one that no mapping of the space can beat.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.lower_bound import best_orders, relaxed_costs
from jaxperf.loopnest.lower_bound_compulsory import Compulsory, compulsory
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.mapspace_factors import Factorings, count_ways, factorings, feasible_rows, padded, row_mapping
from jaxperf.loopnest.problem import Problem

LARGEST_SPACE, MOST_ROWS, MOST_ORDERS = 1e8, 500_000, 2_000
EVALUATIONS = 65_536  # of one compiled call: nodes times orders
TOLERANCE = 1e-3  # nodes that can be better by less than this share are left alone
ROUNDING = 1e-6  # by which a bound may lie above a score

Report = Callable[[int, int], None]


class Nodes(NamedTuple):
    """`rows` of factors [N, D]; `ranks` of all free levels [N, F, D], of which the outermost `depth` are fixed [N];
    `bounds` of the objective [N]."""

    rows: np.ndarray
    ranks: np.ndarray
    depth: np.ndarray
    bounds: np.ndarray


class Proof(NamedTuple):
    """`bound` of the objective that no mapping of the space beats; `score` of the best mapping known, `mapping` where
    it is a better one than the incumbent; `factorings`, `nodes`: examined; `exhaustive`: whether the orders were.

    The bound is 0 where a mapping is known that a bound would exclude: it proves nothing."""

    bound: float
    score: float
    mapping: Mapping | None
    factorings: int
    nodes: int
    exhaustive: bool


class Branching(NamedTuple):
    """What every step needs; `orders` are `best_orders`."""

    problem: Problem
    architecture: Architecture
    space: MapSpace
    ways: Factorings
    orders: np.ndarray
    objective: str


def prove(
    problem: Problem,
    architecture: Architecture,
    space: MapSpace,
    objective: str,
    incumbent: float,
    most_nodes: int = 1_000_000,
    report: Report | None = None,
) -> Proof:
    """A bound of the objective over the whole space, and any better mapping found on the way.

    **Arguments:** in float64, so that roundings stay out of the bound; `incumbent`: the score of a mapping of the
    space, infinite where none is known; `most_nodes`: to examine, 0 for the simple bound alone [1]; `report`: called
    with nodes done and known.
    """
    floor = compulsory(problem, architecture, space)
    least = {"edp": floor.energy * floor.cycles, "energy": floor.energy, "cycles": floor.cycles}[objective]
    if float(least) > incumbent * (1.0 + ROUNDING):
        return Proof(0.0, incumbent, None, 0, 0, False)
    simple = Proof(min(float(least), incumbent), incumbent, None, 0, 0, False)
    orders = best_orders(problem, space)
    if most_nodes == 0 or count_ways(space) > LARGEST_SPACE or len(orders) > MOST_ORDERS:
        return simple
    ways = factorings(space)
    rows = feasible_rows(problem, architecture, space, ways, MOST_ROWS, _least_units(floor, objective, incumbent))
    if rows is None:
        return simple
    return _branch(
        Branching(problem, architecture, space, ways, orders, objective), rows, incumbent, most_nodes, report
    )


def _least_units(floor: Compulsory, objective: str, incumbent: float) -> float:
    """Units that a mapping must use to beat the incumbent: its compute cycles are macs / units [1]."""
    if objective == "energy" or incumbent == 0.0:
        return 0.0
    price = 1.0 if objective == "cycles" else float(floor.energy)
    return float(floor.macs) * price / incumbent


def _branch(at: Branching, rows: np.ndarray, incumbent: float, most: int, report: Report | None) -> Proof:
    shape = (len(rows), *at.orders.shape[1:])
    nodes, best, mapping = _bounded(at, rows, np.zeros(shape), np.zeros(len(rows), int))
    best, mapping = (best, mapping) if best < incumbent else (incumbent, None)
    done, deepest = len(rows), shape[1]
    while done < most:
        open_nodes = (nodes.bounds < best * (1.0 - TOLERANCE)) & (nodes.depth < deepest)
        if not open_nodes.any():
            break
        order = np.argsort(np.where(open_nodes, nodes.bounds, np.inf))
        taken = order[: min(int(open_nodes.sum()), EVALUATIONS // len(at.orders) // 16)]
        children, score, found = _bounded(at, *_children(at, nodes, taken))
        if score < best:
            best, mapping = score, found
        nodes = Nodes(*(np.concatenate([np.delete(a, taken, 0), b]) for a, b in zip(nodes, children, strict=True)))
        nodes = Nodes(*(each[nodes.bounds < best] for each in nodes))
        done += len(children.bounds)
        if report is not None:
            report(done, done + int(open_nodes.sum()))
    bound = float(min(nodes.bounds.min(initial=best), best))
    return Proof(bound, best, mapping, shape[0], done, True)


def _children(at: Branching, nodes: Nodes, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, ranks and depths of the nodes with one more order fixed, in every way that differs."""
    structure = at.space.structure
    rows, ranks, depths = [], [], []
    for node in taken:
        place = len(structure.free_levels) - 1 - nodes.depth[node]
        for rank in _orders_at(at, nodes.rows[node], structure.free_levels[place]):
            rows.append(nodes.rows[node])
            ranks.append(nodes.ranks[node].copy())
            ranks[-1][place] = rank
            depths.append(nodes.depth[node] + 1)
    return np.array(rows), np.array(ranks), np.array(depths)


def _orders_at(at: Branching, row: np.ndarray, level: int) -> list[list[int]]:
    """Ranks of one level for every order of the loops that run more than once there."""
    dimensions = range(len(row))
    running = [d for d in dimensions if _temporal_factor(at, row, d, level) > 1.0]
    still = [d for d in dimensions if d not in running]
    orders = [[*still, *moving] for moving in itertools.permutations(running)]
    return [[order.index(d) for d in dimensions] for order in orders]


def _temporal_factor(at: Branching, row: np.ndarray, dimension: int, level: int) -> float:
    structure = at.space.structure
    slot = (level, 0)
    if slot in structure.slots[dimension]:
        return float(np.asarray(at.ways.tables[dimension])[row[dimension], structure.slots[dimension].index(slot)])
    pins = zip(structure.pinned, np.asarray(at.space.pins), strict=True)
    return next((float(pin) for (d, where), pin in pins if (d, where) == (dimension, slot)), 1.0)


def _bounded(
    at: Branching, rows: np.ndarray, ranks: np.ndarray, depth: np.ndarray
) -> tuple[Nodes, float, Mapping | None]:
    """Nodes with their bounds, and the best mapping among the orders that were tried."""
    size = max(1, EVALUATIONS // len(at.orders))
    dtype = at.space.primes.dtype
    places = np.arange(ranks.shape[1])
    fixed = places >= ranks.shape[1] - depth[:, None]
    bounds, best, found = [], np.inf, None
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        block = padded(rows[part], size)
        relaxed = relaxed_costs(
            at.problem,
            at.architecture,
            at.space,
            at.ways.tables,
            block,
            padded(ranks[part], size).astype(dtype),
            padded(fixed[part], size).astype(bool),
            jnp.asarray(at.orders, dtype),
            at.objective,
        )
        bounds.append(np.asarray(relaxed.bound)[: len(rows[part])])
        least = int(jnp.argmin(relaxed.score))
        if float(relaxed.score[least]) < best:
            best, found = float(relaxed.score[least]), (block[least], relaxed.rank[least])
    mapping = None if found is None else row_mapping(at.space, at.ways.tables, *found)
    return Nodes(rows, ranks, depth, np.concatenate([*bounds, np.zeros(0)])), best, mapping
