"""The three shares of the power law, fitted to measured average and peak power.

    minimize  sum_runs  huber(log average / measured) + huber(log peak / measured)

by L-BFGS-B from several starts, each run once however often it was repeated. Runs under a power limit are never fitted.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float
from scipy.optimize import minimize

from calibration.power.points import Points, Priced, answers
from calibration.power.rows import Run
from jaxperf.core.numerics import Scalar
from jaxperf.serving.techniques.power import PowerLaw

POWERS = ("average_power", "peak_power")
NOISE = 0.05  # by which repeated runs and the meter scatter [log 1]
STARTS = ((0.3, 0.7, 0.3), (0.2, 0.3, 0.3), (0.15, 1.5, 0.5), (0.4, 1.0, 0.1))
BOUNDS = ((0.02, 1.0), (0.0, 5.0), (0.0, 5.0))


def measured_powers(runs: Sequence[Run]) -> np.ndarray:
    """Measured `POWERS` over the TDP, NaN where none is stated [runs, 2] [1]."""
    return np.array([[getattr(run, name) for name in POWERS] for run in runs])


def fit_law(priced: Sequence[Priced], measured: np.ndarray, shown: np.ndarray) -> PowerLaw:
    """The law of the runs that are `shown` [runs] and state a power."""
    used = np.isfinite(measured) & shown[:, None]
    target = np.log(np.where(used, measured, 1.0))
    parts = [(points, jnp.asarray(target[places]), jnp.asarray(used[places])) for places, points in priced]

    def both(shares: np.ndarray) -> tuple[float, np.ndarray]:
        values, slopes = zip(*(_loss(jnp.asarray(shares), *part) for part in parts), strict=True)
        return float(sum(values)), np.sum(np.asarray(slopes), axis=0)

    # A run at its TDP has no slope: from a single start all may end there.
    ends = [minimize(both, np.array(start), jac=True, method="L-BFGS-B", bounds=BOUNDS) for start in STARTS]
    return PowerLaw(*map(float, min(ends, key=lambda end: end.fun).x))


@jax.jit
@jax.value_and_grad
def _loss(
    shares: Float[Array, " 3"], points: Points, target: Float[Array, "runs 2"], used: Bool[Array, "runs 2"]
) -> Scalar:
    """The loss of the runs of one model, and its slope in the shares."""
    found = answers(PowerLaw(shares[0], shares[1], shares[2]), points, False)
    residual = jnp.log(jnp.stack([getattr(found, name) for name in POWERS], axis=1)) - target
    return jnp.sum(optax.losses.huber_loss(jnp.where(used, residual / NOISE, 0.0)))
