"""Prediction intervals from residuals on what was held out: conformal quantiles, wider outside what was measured.

A kernel of a cell that was measured gets the quantile of that cell's residuals on shapes held out; one of a device
never measured that of the devices of other generations, each held out in turn. Outside the measured range of its
features the half-width grows in proportion to the distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

LEVELS_OF_TRUST = (0.5, 0.9)
LEAST_ROWS = 30  # a cell with fewer held-out rows uses its device's quantile, a device with fewer the family's
PRIOR_ROWS = 20.0  # of a device that the transfer's width counts for
UNKNOWN = (0.7, 1.6)  # without any held-out residual: a factor 2 and a factor 5 [log 1]
Width = tuple[float, float]


@dataclass(frozen=True)
class Spread:
    """Half-widths of the 50 % and the 90 % interval [log 1]: of measured cells by name, of the other rows of measured
    devices, and of devices never measured."""

    cells: Mapping[str, Width] = field(default_factory=lambda: MappingProxyType({}))
    measured: Width = UNKNOWN
    transfer: Width = UNKNOWN

    def half_width(self, cells: np.ndarray, measured: np.ndarray, excess: np.ndarray, level: int = 1) -> np.ndarray:
        """Half-width of every row [log 1]. `measured` [R]: its cell was; `excess` [R]: see `Correction.excess`."""
        distinct, which = np.unique(cells.astype(str), return_inverse=True)
        inside = np.array([self.cells.get(name, self.measured)[level] for name in distinct])
        return np.where(measured, inside[which], self.transfer[level]) * (1.0 + excess)


def quantiles(residual: np.ndarray) -> Width:
    """Conformal quantiles of |residual|: the ceil((n + 1) q)-th smallest (Vovk et al. 2005; Lei et al. 2018)."""
    ordered = np.sort(np.abs(residual))
    if not len(ordered):
        return UNKNOWN
    place = [min(len(ordered) - 1, int(np.ceil((len(ordered) + 1) * q)) - 1) for q in LEVELS_OF_TRUST]
    return float(ordered[place[0]]), float(ordered[place[1]])


def by_cell(residual: np.ndarray, cells: np.ndarray) -> dict[str, Width]:
    """Quantiles of each cell with enough rows."""
    distinct, which = np.unique(cells.astype(str), return_inverse=True)
    groups = {name: residual[which == position] for position, name in enumerate(distinct)}
    return {name: quantiles(each) for name, each in groups.items() if len(each) >= LEAST_ROWS}


def measured_widths(residual: np.ndarray, cells: np.ndarray, devices: np.ndarray) -> dict[str, Width]:
    """Quantiles of each cell with enough rows; of the others those of their device, where that has enough."""
    found: dict[str, Width] = {}
    for device in np.unique(devices.astype(str)):
        own = devices.astype(str) == device
        if own.sum() >= LEAST_ROWS:
            found |= dict.fromkeys(np.unique(cells[own].astype(str)).tolist(), quantiles(residual[own]))
            found |= by_cell(residual[own], cells[own])
    return found


def adapted_widths(residual: np.ndarray, cells: np.ndarray, transfer: Width) -> dict[str, Width]:
    """Half-widths of the cells of one device, by a few rows each predicted without it.

    A cell with enough rows has quantiles of its own, the others those of all rows; both lie between these and the
    transfer's, by the number of rows.
    """
    own, together = by_cell(residual, cells), quantiles(residual)
    weight = len(residual) / (len(residual) + PRIOR_ROWS)
    return {name: _between(own.get(name, together), transfer, weight) for name in np.unique(cells.astype(str)).tolist()}


def _between(own: Width, other: Width, weight: float) -> Width:
    """Geometric means, `own` with a weight; at least a thousandth."""
    half, most = (max(a, 1e-3) ** weight * max(b, 1e-3) ** (1.0 - weight) for a, b in zip(own, other, strict=True))
    return half, most


def pooled(groups: list[np.ndarray]) -> Width:
    """The mean over groups of their quantiles: no group decides by its size."""
    if not groups:
        return UNKNOWN
    each = np.array([quantiles(group) for group in groups])
    return float(each[:, 0].mean()), float(each[:, 1].mean())


def interval_score(residual: np.ndarray, width: np.ndarray, level: float = LEVELS_OF_TRUST[1]) -> np.ndarray:
    """Width of an interval of half-width `width`, plus 2 / (1 - level) times what lies outside (Gneiting and Raftery
    2007): neither a wide interval nor a missed one scores well [log 1]."""
    return 2.0 * width + 2.0 / (1.0 - level) * np.maximum(np.abs(residual) - width, 0.0)
