"""How the nodes of a system reach their network, as its rows with several numbers of ranks tell.

Each rank by a port of its own or all by one port, which some pairs of ranks fill; with static routes, which conflict
beyond a leaf switch, or without. No table says it. With the right law measured over law depends least on the number of
ranks: what curves that all numbers of ranks share leave unexplained of the rows of a system decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from calibration.collectives.fit import Curves, correction, fit_curves
from calibration.collectives.laws import LEAF_RANKS, PAIR, RUNNERS
from calibration.collectives.points import Network, Points
from calibration.collectives.terms import TERMS

OF_EVERY_SETTING = tuple(term for term in TERMS if "setting" not in term.level)
OWN_PORTS = 0.0
MOST_PAIRS = (1.0, 2.0, 4.0)  # of ranks that fill the one port of their node; four are all of a node of eight
Unexplained = Callable[[Points, np.ndarray], np.ndarray]  # of points and their log ratios, what a fit leaves [R]


def networks(points: Points, measured: np.ndarray, known: np.ndarray) -> Network:
    """How the systems of the rows at the places `known` reach their network. `measured` [R] [s]."""

    def unexplained(own: Points, y: np.ndarray) -> np.ndarray:
        return correction(fit_curves(own, y, OF_EVERY_SETTING), own, OF_EVERY_SETTING) - y

    return _least_unexplained(unexplained, points, measured, known)


def networks_of_few(curves: Curves, points: Points, measured: np.ndarray) -> Network:
    """The same of a few rows, by what the curves leave of them but for a constant: they are too few to be fitted."""

    def unexplained(own: Points, y: np.ndarray) -> np.ndarray:
        left = correction(curves, own) - y
        return left - np.median(left)

    return _least_unexplained(unexplained, points, measured, np.arange(len(points)))


def _least_unexplained(unexplained: Unexplained, points: Points, measured: np.ndarray, known: np.ndarray) -> Network:
    """Of each system the network that leaves the least mean relative error of the rows that can tell it."""

    def error(rows: np.ndarray, network: Network) -> float:
        own = points.joined(network).take(rows)
        return float(np.abs(np.expm1(unexplained(own, np.log(measured[rows] / own.time)))).mean())

    pairs = {}
    for name, rows, most in _of_several_ranks(points, known):
        choices = [OWN_PORTS, *(each for each in MOST_PAIRS if each <= most)]
        errors = {each: error(rows, Network({name: each})) for each in choices}
        pairs[name] = min(choices, key=lambda each, errors=errors: errors[each])
    static = [
        name
        for name, rows in _beyond_a_leaf(points, known)
        if error(rows, Network(static_routes=(name,))) < error(rows, Network())
    ]
    return Network({name: each for name, each in pairs.items() if each != OWN_PORTS}, tuple(static))


def _of_several_ranks(points: Points, known: np.ndarray) -> Iterator[tuple[str, np.ndarray, float]]:
    """Systems with rows of a library over several nodes with several numbers of ranks a node, these rows, and the most
    pairs that were seen, beyond which nothing tells how many fill a port."""
    per_node = points.numbers["ranks"] / points.numbers["nodes"]
    for name, rows in _over_networks(points, known, "library"):
        if len(np.unique(per_node[rows])) > 1:
            yield name, rows, float(np.ceil(per_node[rows].max() / PAIR))


def _beyond_a_leaf(points: Points, known: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Systems with rows of normal exchanges over several nodes within a leaf switch and beyond it, and these rows."""
    for name, rows in _over_networks(points, known, "normal"):
        beyond = points.numbers["ranks"][rows] > LEAF_RANKS
        if beyond.any() and not beyond.all():
            yield name, rows


def _over_networks(points: Points, known: np.ndarray, runner: str) -> Iterator[tuple[str, np.ndarray]]:
    """Systems with rows of a runner over several nodes, and these rows."""
    numbers, system = points.numbers, points.named("system")
    over = known[(numbers["nodes"][known] > 1.0) & (numbers["runner"][known] == RUNNERS.index(runner))]
    for name in np.unique(system[over]):
        yield str(name), over[system[over] == name]
