"""Time that does not fall as bytes grow: less is never slower than more, for it can be sent padded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibration.collectives.points import Points

SIZES = np.arange(8.0, 34.0, 0.5)  # binary logarithms of what is looked at: on the knots of the curves, and between
AT_ONCE = 4096  # groups


def least_of_larger(points: Points, time: np.ndarray, time_of: Callable[[Points], np.ndarray]) -> np.ndarray:
    """t(S) = min of t(S') over S' >= S [R] [s]: the least that `time_of` says of larger sizes where that is below the
    row's own `time`, and no less than it is at the next smaller of `SIZES`."""
    _, first, which = np.unique(points.group, return_index=True, return_inverse=True)
    parts = [_at_sizes(points.take(first[at : at + AT_ONCE]), time_of) for at in range(0, len(first), AT_ONCE)]
    times = np.concatenate(parts)
    least = np.minimum.accumulate(times[:, ::-1], axis=1)[:, ::-1]
    bounds = np.c_[np.zeros(len(least)), least, np.full(len(least), np.inf)]
    place = np.searchsorted(SIZES, points.coordinates["size"])
    return np.clip(time, bounds[which, place], bounds[which, place + 1])


def _at_sizes(few: Points, time_of: Callable[[Points], np.ndarray]) -> np.ndarray:
    """The time of each row at every one of `SIZES` [R, sizes] [s]."""
    factor = 2.0 ** (SIZES - few.coordinates["size"][:, None])
    larger = few.take(np.repeat(np.arange(len(few)), len(SIZES))).times(factor.ravel())
    return time_of(larger).reshape(factor.shape)
