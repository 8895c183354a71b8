"""How the nodes of a system reach their network: each rank by a port of its own, or all by one port.

No table says it. With the right one of the two laws, measured over law depends least on the number of ranks: what
curves that all numbers of ranks share leave unexplained of the rows of a system decides.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from calibration.collectives.fit import correction, fit_curves
from calibration.collectives.laws import RUNNERS
from calibration.collectives.points import Points
from calibration.collectives.terms import TERMS

OF_EVERY_SETTING = tuple(term for term in TERMS if "setting" not in term.level)


def shared_ports(points: Points, measured: np.ndarray, known: np.ndarray) -> tuple[str, ...]:
    """The systems whose nodes share one port, as the rows `known` with several numbers of ranks a node tell.

    **Arguments:** `measured` [R] [s]; `known`: places of the rows to learn from.
    """
    numbers, system = points.numbers, points.named("system")
    per_node = numbers["ranks"] / numbers["nodes"]
    over = known[(numbers["nodes"][known] > 1.0) & (numbers["runner"][known] == RUNNERS.index("library"))]
    found = []
    for name in np.unique(system[over]):
        rows = over[system[over] == name]
        several = len(np.unique(per_node[rows])) > 1
        if several and _unexplained(points, measured, rows, (name,)) < _unexplained(points, measured, rows, ()):
            found.append(str(name))
    return tuple(found)


def _unexplained(points: Points, measured: np.ndarray, rows: np.ndarray, shared: Collection[str]) -> float:
    """Mean relative error that curves without settings leave in the rows they are fitted to [1]."""
    own = points.joined(shared).take(rows)
    y = np.log(measured[rows] / own.time)
    curves = fit_curves(own, y, OF_EVERY_SETTING)
    return float(np.abs(np.expm1(correction(curves, own, OF_EVERY_SETTING) - y)).mean())
