"""How the nodes of a system reach their network: each rank by a port of its own, or all by one port.

No table says it. With the right one of the two laws, measured over law depends least on the number of ranks: what
curves that all numbers of ranks share leave unexplained of the rows of a system decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np

from calibration.collectives.fit import Curves, correction, fit_curves
from calibration.collectives.laws import RUNNERS
from calibration.collectives.points import Points
from calibration.collectives.terms import TERMS

OF_EVERY_SETTING = tuple(term for term in TERMS if "setting" not in term.level)


def shared_ports(points: Points, measured: np.ndarray, known: np.ndarray) -> tuple[str, ...]:
    """The systems whose nodes share one port, as the rows `known` with several numbers of ranks a node tell.

    **Arguments:** `measured` [R] [s]; `known`: places of the rows to learn from.
    """

    def unexplained(own: Points, y: np.ndarray) -> np.ndarray:
        return correction(fit_curves(own, y, OF_EVERY_SETTING), own, OF_EVERY_SETTING) - y

    return _less_unexplained(unexplained, points, measured, known)


def ports_of_few(curves: Curves, points: Points, measured: np.ndarray) -> tuple[str, ...]:
    """The same of a few rows, by what the curves leave of them but for a constant: they are too few to be fitted."""

    def unexplained(own: Points, y: np.ndarray) -> np.ndarray:
        left = correction(curves, own) - y
        return left - np.median(left)

    return _less_unexplained(unexplained, points, measured, np.arange(len(points)))


def _less_unexplained(
    unexplained: Callable[[Points, np.ndarray], np.ndarray], points: Points, measured: np.ndarray, known: np.ndarray
) -> tuple[str, ...]:
    """The systems of which less is unexplained with a shared port, by the mean relative error of its rows."""

    def error(rows: np.ndarray, shared: Collection[str]) -> float:
        own = points.joined(shared).take(rows)
        return float(np.abs(np.expm1(unexplained(own, np.log(measured[rows] / own.time)))).mean())

    return tuple(name for name, rows in _over_networks(points, known) if error(rows, (name,)) < error(rows, ()))


def _over_networks(points: Points, known: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Systems with rows over several nodes with several numbers of ranks a node, and these rows."""
    numbers, system = points.numbers, points.named("system")
    per_node = numbers["ranks"] / numbers["nodes"]
    over = known[(numbers["nodes"][known] > 1.0) & (numbers["runner"][known] == RUNNERS.index("library"))]
    for name in np.unique(system[over]):
        rows = over[system[over] == name]
        if len(np.unique(per_node[rows])) > 1:
            yield str(name), rows
