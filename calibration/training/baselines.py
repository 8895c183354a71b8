"""What people use instead of a model of the step: a utilization that holds for everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

UTILIZATIONS = {"roofline": 1.0, "mfu_0.5": 0.5, "mfu_0.4": 0.4}
CONSTANT = "constant"


def ideal_times(time: np.ndarray, mfu: np.ndarray) -> np.ndarray:
    """Times at full utilization: useful FLOP over the peak of the format [rows] [s]."""
    return time * mfu


def fixed(ideal: np.ndarray) -> dict[str, np.ndarray]:
    """Logarithms of the times at each utilization of `UTILIZATIONS` [rows] [log s]."""
    return {name: np.log(ideal / utilization) for name, utilization in UTILIZATIONS.items()}


def fitted_constant(
    ideal: np.ndarray, measured: np.ndarray, weight: np.ndarray, levels: Sequence[Sequence[str]]
) -> np.ndarray:
    """Logarithms of the times at the median utilization of the rows with weight that share the first level any of them
    has, else of all [rows] [log s].

    **Arguments:** `levels`: names by row, the closest kin first, such as software with format, then format.
    """
    used = np.isfinite(measured) & (weight > 0.0)
    excess = np.log(np.where(used, measured, ideal) / ideal)
    found = np.full(len(ideal), np.median(excess[used]) if used.any() else 0.0)
    for names in reversed(list(levels)):
        medians = _medians(excess[used], np.array(names)[used])
        found = np.array([medians.get(name, value) for name, value in zip(names, found, strict=True)])
    return np.log(ideal) + found


def _medians(values: np.ndarray, names: np.ndarray) -> Mapping[str, float]:
    return {str(name): float(np.median(values[names == name])) for name in np.unique(names)}
