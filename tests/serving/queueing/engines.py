"""Engines with made-up steps, for the tests of the steady state."""

from __future__ import annotations

import numpy as np

from jaxperf.core.numerics import as_float
from jaxperf.serving.queueing_law import StepLaw

REACH, GRAIN = 8192, 64.0


def straight_law(
    floor: float = 7e-3, token: float = 2.3e-5, decode: tuple[float, ...] = (4e-4, 0.0, 4e-8), start: float = 6e-4
) -> StepLaw:
    """linear(T) = max(floor + a little, token x T): memory-bound, then compute-bound, without stairs [s]."""
    starts = np.arange(REACH / GRAIN) * GRAIN
    linear = lambda tokens: np.maximum(floor * (1.0 + 1e-5 * tokens), token * tokens)  # noqa: E731
    return StepLaw(
        first=as_float(linear(starts + 1.0)),
        last=as_float(linear(starts + GRAIN)),
        grain=as_float(GRAIN),
        decode=as_float(decode),
        prefill=as_float((start, 0.0, 0.0, 0.0, 0.0)),
    )
