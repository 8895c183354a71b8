"""The interval of a kind of collective that nobody measured: by what the law alone is off on the kinds that were.

A kind is an operation, its runner and how ranks are joined; the law errs alike within one and mostly is too fast. So
every kind weighs the same, whatever its rows, and either end has its own quantile, at the level that holds what it
should of the kinds that are left out one by one.
"""

from __future__ import annotations

import numpy as np

HELD = 0.9  # of a kind that was left out, in the mean over kinds
MISSED = tuple(place / 200 for place in range(10, 0, -1))  # of either end, from one half of 1 - HELD down


def law_ends(residual: np.ndarray, kind: np.ndarray) -> tuple[float, float]:
    """(below, above) a time of the law: what is measured lies from time / exp(below) to time x exp(above).

    **Arguments:** `residual`: log law - log measured [rows]; `kind` of each [rows].
    """
    missed = next((each for each in MISSED if _held(residual, kind, each) >= HELD), MISSED[-1])
    lowest, highest = _quantiles(residual, kind, missed)
    return highest, -lowest


def _held(residual: np.ndarray, kind: np.ndarray, missed: float) -> float:
    """Share of the rows of a kind between the quantiles of the others, in the mean over kinds."""
    shares = []
    for name in np.unique(kind):
        own = kind == name
        if own.all():
            return 0.0
        lowest, highest = _quantiles(residual[~own], kind[~own], missed)
        shares.append(np.mean((residual[own] >= lowest) & (residual[own] <= highest)))
    return float(np.mean(shares)) if shares else 0.0


def _quantiles(residual: np.ndarray, kind: np.ndarray, missed: float) -> tuple[float, float]:
    """The residuals that `missed` of all weight are at or below, and above; every kind weighs the same."""
    _, place, count = np.unique(kind, return_inverse=True, return_counts=True)
    order = np.argsort(residual)
    below = np.cumsum((1.0 / count)[place][order]) / len(count)
    last = len(residual) - 1
    ends = (min(int(np.searchsorted(below, level)), last) for level in (missed, 1.0 - missed))
    lowest, highest = (float(residual[order[end]]) for end in ends)
    return lowest, highest
