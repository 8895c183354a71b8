"""Prediction intervals from residuals on what was held out: conformal quantiles, wider outside what was measured.

A kernel of a cell that was measured gets the quantile of that cell's residuals on shapes held out; one of a device
never measured that of its format on the devices of other generations, each held out in turn. Outside the measured
range of its features the half-width grows with the square root of the distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from scipy.special import stdtrit

from calibration.datasets.text import Column
from jaxperf.core.numerics import Scalar

LEVELS_OF_TRUST = (0.5, 0.9)
LEAST_QUANTILE = 9  # held-out rows that a 90 % quantile needs: of fewer, the ceil((n + 1) 0.9)-th is beyond the last
LEAST_ROWS = 30  # a cell with fewer held-out rows uses its device's quantile, a device with fewer the family's
PRIOR_SHAPES = 20.0  # of a device that Student's distribution counts for
NORMAL = (0.6745, 1.6449)  # quantiles of |z| at these levels
UNKNOWN = (0.7, 1.6)  # without any held-out residual: a factor 2 and a factor 5 [log 1]
Width = tuple[float, float]


@dataclass(frozen=True)
class Spread:
    """Half-widths of the 50 % and the 90 % interval [log 1]: of measured cells by name, of the other rows of measured
    devices, of formats on devices never measured by name, and of other formats there."""

    cells: Mapping[str, Width] = field(default_factory=lambda: MappingProxyType({}))
    measured: Width = UNKNOWN
    formats: Mapping[str, Width] = field(default_factory=lambda: MappingProxyType({}))
    transfer: Width = UNKNOWN

    def half_width(self, spelled: Mapping[str, Column], measured: np.ndarray, excess: np.ndarray) -> np.ndarray:
        """Half-width of the 90 % interval of every row [log 1]. `spelled`: names of the rows at each level
        (`calibration.kernels.levels`); `measured` [R]: its cell was; `excess` [R]: see `Correction.excess`."""
        inside = _looked_up(spelled["cell"], self.cells, self.measured)
        outside = _looked_up(spelled["format"], self.formats, self.transfer)
        return np.where(measured, inside, outside) * growth(excess)


def _looked_up(names: Column, known: Mapping[str, Width], other: Width) -> np.ndarray:
    distinct, which = np.unique(np.asarray(names).astype(str), return_inverse=True)
    return np.array([known.get(name, other)[1] for name in distinct])[which]


def growth(excess: np.ndarray | Scalar) -> np.ndarray | Scalar:
    """How an interval grows with the distance from what was measured, in standard deviations of a feature: as a random
    walk does, by the square root [1]."""
    return (1.0 + excess) ** 0.5


def quantiles(residual: np.ndarray, groups: int | None = None) -> Width:
    """Conformal quantiles of |residual|: of n rows the ceil((n + 1) q)-th smallest (Vovk et al. 2005; Lei et al. 2018);
    where rows come in G `groups` that are alike inside, the ceil(n q (G + 1) / G)-th."""
    ordered, rows = np.sort(np.abs(residual)), len(residual)
    if not rows:
        return UNKNOWN
    units = groups or rows
    percents = [round(100 * level) for level in LEVELS_OF_TRUST]  # in whole numbers, so that none is rounded up twice
    place = [min(rows, -(-rows * (units + 1) * percent // (100 * units))) - 1 for percent in percents]
    return float(ordered[place[0]]), float(ordered[place[1]])


def held_out_widths(residual: np.ndarray) -> Width:
    """The quantiles of |residual|, or of fewer rows than these need the wider ones of Student's distribution."""
    half, most = widened(quantiles(residual), residual)
    return half, most


def widened(width: Sequence[float], residual: np.ndarray) -> Sequence[float]:
    """Half-widths, at least those of Student's distribution where the residuals are fewer than `LEAST_QUANTILE`: of n
    normal ones with mean 0 and root mean square s, the next is within s t_n at a level as often as it says [log 1]."""
    rows = len(residual)
    if not 0 < rows < LEAST_QUANTILE:
        return width
    scale = float(np.sqrt(np.mean(np.square(residual))))
    usual = scale * stdtrit(rows, (1.0 + np.array(LEVELS_OF_TRUST)) / 2.0)
    return np.maximum(width, usual).tolist()


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


def ratio_width(ratio: np.ndarray, shapes: np.ndarray) -> Width:
    """Half-widths in predictive standard deviations, by the residuals of a few rows over theirs, each row predicted
    without its shape [1]: between the quantiles of these and Student's.

    Rows of one shape say much the same, so that G shapes count as G observations: in the weight of the quantiles, in
    Student's degrees of freedom, and in the correction (G + 1) / G of the level. `shapes` [R]: a number for each.
    """
    groups = len(np.unique(shapes))
    weight = groups / (groups + PRIOR_SHAPES)
    own = np.maximum(quantiles(ratio, groups), 1e-2)
    usual = stdtrit(groups, (1.0 + np.array(LEVELS_OF_TRUST)) / 2.0)
    half, most = (own**weight * usual ** (1.0 - weight)).tolist()
    return half, most


def _mean(widths: Sequence[Width]) -> Width:
    half, most = np.mean(widths, axis=0).tolist()
    return half, most


def transfer_spread(residuals: Sequence[np.ndarray], formats: Sequence[np.ndarray]) -> Spread:
    """What generations held out say of another: the mean of their quantiles, so that none decides by its size; of a
    format the mean of that and of its own, since another generation may run a format unlike those that have it.

    **Arguments:** of each generation, the residuals [R] [log 1] and the formats [R] of its rows.
    """
    if not residuals:
        return Spread()
    whole = _mean([held_out_widths(each) for each in residuals])
    widths: dict[str, list[Width]] = {}
    for residual, names in zip(residuals, formats, strict=True):
        for name, width in by_cell(residual, names).items():
            widths.setdefault(name, []).append(width)
    return Spread(formats={name: _mean([whole, _mean(own)]) for name, own in sorted(widths.items())}, transfer=whole)


def interval_score(residual: np.ndarray, width: np.ndarray, level: float = LEVELS_OF_TRUST[1]) -> np.ndarray:
    """Width of an interval of half-width `width`, plus 2 / (1 - level) times what lies outside (Gneiting and Raftery
    2007): neither a wide interval nor a missed one scores well [log 1]."""
    return 2.0 * width + 2.0 / (1.0 - level) * np.maximum(np.abs(residual) - width, 0.0)
