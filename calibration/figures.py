"""The figures that error tables give of residuals, the same for everything that is fitted and scored."""

from __future__ import annotations

import numpy as np


def figures(residual: np.ndarray) -> dict[str, float]:
    """Rows, mean, median and 90th percentile of |predicted / measured - 1| over the rows that have both [1].

    **Arguments:** `residual`: log predicted - log measured [rows], NaN where either is missing.
    """
    error = np.abs(np.expm1(residual[np.isfinite(residual)]))
    if not len(error):
        return {"rows": 0, "mean": float("nan"), "median": float("nan"), "p90": float("nan")}
    return {
        "rows": len(error),
        "mean": float(error.mean()),
        "median": float(np.median(error)),
        "p90": float(np.quantile(error, 0.9)),
    }
