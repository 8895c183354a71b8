"""What rows of one device say of the residual of a fitted family there: a Gaussian process of the device's own.

It moves the family's prediction by its mean, and its standard deviation says how far each kernel lies from those rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from calibration.datasets.text import Column
from calibration.family import FittedFamily, Local
from calibration.fit import log_times, sample, sample_all
from calibration.gaussian_process import Places, Posterior, learned, left_out, prior
from calibration.inputs import Prepared
from calibration.intervals import ratio_width
from calibration.levels import NO_NAMES, Names
from calibration.model import LEAST_SCALE
from calibration.priors import NAMED_BY_LIBRARY

SAME = ("format", "framework", "stack")  # levels whose names make two rows of a device alike
MOST = 3000  # rows kept of a device: each prediction costs their square
LEARNED_ON = 256  # rows that the hyper-parameters are learned on: a step costs their cube
TAIL = 0.01  # share of the residuals at either end that count as the one at its inner edge
BLOCK = 1024  # rows predicted together


def moved(fitted: FittedFamily, spelled: Mapping[str, Column], device: str) -> np.ndarray:
    """Which rows of a device its `Local` speaks of [R]: of the cells that it has rows of.

    Where a library names its kernels, nobody knows the cell before the measurement: there also of cells never measured.
    """
    cells, here = np.asarray(spelled["cell"]).astype(str), np.asarray(spelled["device"]).astype(str) == device
    own = fitted.local[device].names.known["cell"]
    if fitted.family in NAMED_BY_LIBRARY:
        return here & ~np.isin(cells, np.setdiff1d(fitted.names.known["cell"], own))
    return here & np.isin(cells, own)


def predicted(local: Local, fitted: FittedFamily, data: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the residual of other rows of the device [R] [log 1]."""
    at, rows = placed(fitted, local.names, data), len(data.table)
    found = np.empty((2, rows))
    for start in range(0, rows, BLOCK):
        block = np.minimum(np.arange(start, start + BLOCK), rows - 1)  # the last one padded: one size is compiled
        mean, deviation = _predicted(local.posterior, at[block])
        found[0, block], found[1, block] = mean, deviation
    return found[0], found[1]


def stated(fitted: FittedFamily, data: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the predicted time [log s], and half-width of its 90 % interval [log 1], of every row [R]."""
    x, log_time = data.inputs(fitted.names, fitted.features), np.array(log_times(fitted, data))
    seen = np.asarray(x.levels["cell"]) < len(fitted.names.known["cell"])
    excess = np.asarray(jax.vmap(fitted.model.correction.excess)(x))
    width = fitted.spread.half_width(data.spelled, seen, excess)
    for device, local in fitted.local.items():
        rows = np.flatnonzero(moved(fitted, data.spelled, device))
        if len(rows):
            mean, deviation = predicted(local, fitted, data.take(rows))
            log_time[rows] += mean
            width[rows] = local.width[1] * deviation
    return log_time, width


def learn(
    fitted: FittedFamily, data: Prepared, residual: np.ndarray, deviation: float, before: Local | None = None
) -> Local:
    """From rows of one device and their residuals [R]; `deviation`: what residuals are expected to be without them.

    Rows of `before` stay, but for those of the cells that `data` has.
    """
    names = (before.names if before else NO_NAMES).extended(data.spelled)
    places, stack = placed(fitted, names, data), SAME.index("stack")
    if before:
        old = np.flatnonzero(~np.isin(before.places.names[:, stack], places.names[:, stack]))
        places = jax.tree.map(lambda *parts: np.concatenate(parts), before.places[old], places)
        residual = np.r_[before.residual[old], residual]
    kept = balanced(np.asarray(places.names)[:, stack], MOST)
    places, residual = places[kept], np.clip(residual[kept], *np.quantile(residual[kept], [TAIL, 1.0 - TAIL]))
    few = sample_all(len(kept), LEARNED_ON, 0)
    covariance = learned(prior(places.features.shape[1], deviation**2), places[few], residual[few])
    error, spread = left_out(covariance, places, residual, _shapes(fitted, places))
    return Local(names, places, residual, covariance, ratio_width(error / spread))


def placed(fitted: FittedFamily, names: Names, data: Prepared) -> Places:
    """Where rows lie: features in standard deviations of those that the family was fitted to."""
    columns = [data.names.index(name) for name in fitted.features]
    correction = fitted.model.correction
    scale = np.maximum(np.asarray(correction.scale), LEAST_SCALE)
    features = (data.features[:, columns] - np.asarray(correction.center)) / scale
    index = names.index(data.spelled)
    return Places(features.astype(jnp.result_type(float)), np.stack([index[level] for level in SAME], axis=1))


def _shapes(fitted: FittedFamily, places: Places) -> np.ndarray:
    """A number for the shape of each row, whatever its software and format: what is predicted is other shapes."""
    sizes = [name.startswith("log2 ") for name in fitted.features]
    return np.unique(places.features[:, sizes], axis=0, return_inverse=True)[1].reshape(-1)


def balanced(cells: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows, as many of every cell as that allows."""
    counts = np.unique(cells, return_counts=True)[1]
    shares = [share for share in range(1, most + 1) if np.minimum(counts, share).sum() <= most]
    return sample(cells, max(shares, default=1), 0)


@jax.jit
def _predicted(process: Posterior, places: Places) -> tuple[jax.Array, jax.Array]:
    return process(places)
