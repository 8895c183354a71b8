"""What is held out of a fit - shapes by their hash, hardware generations - and the error rows of a card."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import hwspecs
from calibration.datasets.schema import KernelTable
from calibration.intervals import interval_score
from calibration.kernels.inputs import Prepared
from calibration.kernels.regimes import regime

HELD_SHAPES = 10  # one shape of ten is held out


def shape_hash(table: KernelTable, salt: int = 0) -> np.ndarray:
    """A hash of each row's shape, the same for all devices and frameworks; another `salt` gives another hash."""
    mixed = np.full(len(table), salt, np.uint64)
    for name in sorted(table.shape):
        mixed = _mixed(mixed ^ np.ascontiguousarray(table.shape[name], np.float64).view(np.uint64))
    return mixed


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on every bit given: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).

    A whole number's bits are all in the upper half of its float64, and a product alone carries none of them down.
    """
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def held_shapes(table: KernelTable, salt: int = 0) -> np.ndarray:
    """Which rows have a shape that is held out; another `salt` holds out other shapes."""
    return shape_hash(table, salt) % np.uint64(HELD_SHAPES) == 0


def held_of_fit(table: KernelTable) -> np.ndarray:
    """Which rows a fit does not learn from: `held_shapes`, or none where that would leave no row to learn from."""
    held = held_shapes(table)
    return held & (not held.all())


def generation(device: str, directories: Sequence[str] = ()) -> str:
    """The hardware generation of a device: the family name of its architecture, such as "ampere" or "cdna"."""
    architecture = hwspecs.load(device, directories).architecture
    found = re.match(r"[a-z]+", architecture)
    return found.group() if found else architecture


def generations(table: KernelTable, directories: Sequence[str] = ()) -> np.ndarray:
    """The generation of every row's device."""
    distinct, which = np.unique(table.device.astype(str), return_inverse=True)
    return np.array([generation(name, directories) for name in distinct])[which]


def constants(learned: Prepared, scored: Prepared) -> np.ndarray:
    """What one fitted number knows of each scored row [R]: the median ratio of measured times to the roofline, on the
    learned rows of its device, or on all of them where there is none of it [1]."""
    ratio, own = learned.table.measured / learned.roofline, learned.table.device.astype(str)
    distinct, which = np.unique(scored.table.device.astype(str), return_inverse=True)
    found = [ratio[own == name] if (own == name).any() else ratio for name in distinct]
    return np.array([np.median(each) for each in found])[which]


def error_rows(
    data: Prepared, residual: np.ndarray, width: np.ndarray, constant: np.ndarray, split: str
) -> list[dict[str, Any]]:
    """Error rows of the card: one a device and format, beside them the roofline and the roofline times a constant.

    **Arguments:** `residual`: log predicted - log measured; `width`: half-width of the 90 % interval, both [R] [log 1];
    `constant`: see `constants` [R].
    """
    error = np.abs(np.expm1(residual))
    roof = np.abs(data.roofline / data.table.measured - 1.0)
    scaled = np.abs(constant * data.roofline / data.table.measured - 1.0)
    score = interval_score(residual, width)
    rows = []
    devices, formats = data.table.device.astype(str), data.table.dtype.astype(str)
    for device in np.unique(devices):
        for form in np.unique(formats[devices == device]):
            at = (devices == device) & (formats == form)
            figures = {
                "median": np.median(error[at]),
                "mean": error[at].mean(),
                "p90": np.quantile(error[at], 0.9),
                "roofline_median": np.median(roof[at]),
                "roofline_mean": roof[at].mean(),
                "constant_median": np.median(scaled[at]),
                "constant_mean": scaled[at].mean(),
                "coverage90": np.mean(np.abs(residual[at]) <= width[at]),
                "half_width": np.median(np.expm1(width[at])),
                "interval_score": score[at].mean(),
            }
            named = {"family": regime(data.table), "format": str(form), "device": str(device), "split": split}
            told = {name: round(100 * float(value), 2) for name, value in figures.items()}
            rows.append({**named, "rows": int(at.sum()), **told})
    return rows
