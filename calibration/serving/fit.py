"""The scalars of engines and clients, fitted to measured latencies: a robust loss on logarithms, with shrinkage.

    minimize  sum_r w_r sum_o huber((log t_ro - log measured_ro) / NOISE_o) + sum_j penalty(u_j / deviation_j)

over the outputs o TTFT and TPOT, by L-BFGS-B (Byrd et al. 1995) in u / deviation on the compiled law. The penalty of
most numbers is z^2 / 2; of those of one model or one campaign (`scalars.TAILED`) it is that of Student's t,
(nu + 1) / 2 log(1 + z^2 / nu): most of them are alike and a few far off, which shall not pull at what all have in
common. Groups of like configurations count by the root of their size, so that no campaign of measurements decides
alone. No random number is in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from scipy.optimize import minimize

from calibration.serving.law import Rows, answers
from calibration.serving.layouts import Deployed
from calibration.serving.scalars import Design, tailed, values_of
from jaxperf.serving.steady import Steady

FITTED = ("ttft", "tpot")
NOISE = (0.2, 0.08)  # by which repeated runs and what no column states scatter [log 1]
STEPS = 200
MEMORY = 30  # steps that the approximation of the curvature remembers
FREEDOM = 2.0  # degrees, of the deviations that may be far off
# Weight of a row that does not say how its devices are divided between prefill and decode: with nothing held out such
# rows scatter three times as much as the others, and a variance is a square.
POOLS_UNSTATED = 1.0 / 9.0
GROUP_WEIGHT = 3.0  # of a group of one configuration; one of n counts as n / sqrt(n) of it

Fit = Callable[[np.ndarray, np.ndarray], np.ndarray]


def states_of(fitted: Float[Array, " T"], design: Design, rows: Rows) -> tuple[Steady, Float[Array, " rows"]]:
    """The steady states of all rows under fitted numbers, and their utilization."""
    places = {field: jnp.asarray(place) for field, place in design.places.items()}
    return answers(values_of(fitted, places), rows)


def log_times(fitted: Float[Array, " T"], design: Design, rows: Rows) -> Float[Array, "rows 2"]:
    """Logarithms of `FITTED` of all rows [log s]."""
    state, _ = states_of(fitted, design, rows)
    return jnp.stack([jnp.log(getattr(state, name)) for name in FITTED], axis=1)


def weights_of(points: Sequence[Deployed]) -> np.ndarray:
    """Weight of each configuration, 0 where its layout is in doubt [rows]."""
    groups = [(p.architecture, p.configuration.mode, p.configuration.engine) for p in points]
    sizes = Counter(groups)
    stated = np.array([POOLS_UNSTATED if p.configuration.mode == "disagg" else 1.0 for p in points])
    return np.array([GROUP_WEIGHT / np.sqrt(sizes[group]) for group in groups]) * stated * ~contradicted(points)


def contradicted(points: Sequence[Deployed]) -> np.ndarray:
    """Rows whose measurements stand to the last digit under another layout too: at most one of the labels is right, and
    nothing says which [rows]."""
    runs = [_run(point) for point in points]
    layouts = defaultdict(set)
    for run, p in zip(runs, points, strict=True):
        layouts[run].add((p.tensor, p.pipeline, p.data, p.expert, p.replicas))
    return np.array([len(layouts[run]) > 1 for run in runs], bool)


def _run(point: Deployed) -> str:
    """What was run and measured, without the layout; as text, in which NaN equals itself."""
    given = point.configuration
    return str((point.architecture, point.spec.name, given.engine, *given.load.values(), *given.measured.items()))


def measured_of(points: Sequence[Deployed]) -> np.ndarray:
    """Logarithms of the measured `FITTED`, NaN where none is stated and for a TPOT of one token [rows, 2] [log s]."""
    told = np.log([[p.configuration.measured.get(name, np.nan) for name in FITTED] for p in points])
    told[[p.output <= 1.0 for p in points], FITTED.index("tpot")] = np.nan
    return told


def fitter(design: Design, rows: Rows, measured: np.ndarray) -> Fit:
    """A function of the rows' weights [rows] and the prior deviations [T] that gives the fitted deviations [T],
    compiled once for all splits."""
    known, far = jnp.isfinite(measured), jnp.asarray(tailed(design.names))
    target = jnp.asarray(np.nan_to_num(measured))

    @jax.jit
    def loss(scaled: Array, weight: Array, prior: Array) -> tuple[Array, Array]:
        def value(scaled: Array) -> Array:
            residual = log_times(scaled * prior, design, rows) - target
            return weight @ row_losses(jnp.where(known, residual, 0.0)) + jnp.sum(penalties(scaled, far))

        return jax.value_and_grad(value)(scaled)

    def fit(weight: np.ndarray, prior: np.ndarray) -> np.ndarray:
        def both(scaled: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = loss(jnp.asarray(scaled), jnp.asarray(weight), jnp.asarray(prior))
            return float(value), np.asarray(slope, float)

        options = {"maxiter": STEPS, "maxcor": MEMORY}
        found = minimize(both, np.zeros(len(prior)), jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x) * prior

    return fit


def penalties(scaled: Float[Array, " T"], far: Array) -> Float[Array, " T"]:
    """The penalty of each deviation in units of its prior's; `far` [T]: whether it may be far off [1]."""
    normal = 0.5 * scaled**2
    return jnp.where(far, 0.5 * (FREEDOM + 1.0) * jnp.log1p(2.0 * normal / FREEDOM), normal)


def row_losses(residual: Float[Array, "rows 2"]) -> Float[Array, " rows"]:
    """Huber's loss of logarithms in units of `NOISE`, summed over the outputs [1]."""
    return optax.losses.huber_loss(residual / jnp.asarray(NOISE)[None]).sum(1)
