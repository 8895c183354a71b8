"""The scalars of the step, fitted to measured steps: a robust loss on the logarithm of the time, with shrinkage.

    minimize  sum_r w_r huber((log t_r - log measured_r) / noise_r) + 1/2 sum_j (u_j / deviation_j)^2

by L-BFGS through the compiled step (Liu and Nocedal 1989; Huber 1964). The weights are traced, so that every split of
the rows runs the same program; there is no random number in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from calibration.training.points import Known, Point
from calibration.training.scalars import Design, efficiencies_of
from jaxperf.training.step import TrainingStep, training_step

NOISE = 0.06  # what releases of one configuration differ by, median [log 1]
EXPLORED_NOISE = 0.1  # of runs with experts or formats below 16 bits, so that they do not bend what all runs share
BLOCK = 64
STEPS = 300
CONVERGED = 1e-4  # norm of the gradient of the loss


@dataclass(frozen=True)
class Rows:
    """Rows as the compiled functions take them: stacked points, places of their levels, where fields start; the last
    row again up to a multiple of `BLOCK`, so that small tables share their compiled form; `count` without those."""

    count: int
    points: Point
    places: Mapping[str, Array]
    starts: Mapping[str, Array]


def rows_of(known: Known, design: Design, starts: Mapping[str, np.ndarray]) -> Rows:
    """The rows of known runs, leaves [rows]."""
    count = len(known.points)
    padded = np.minimum(np.arange(count + -count % BLOCK), count - 1)
    points = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)[padded]), *known.points)
    places = {field: jnp.asarray(place[:, padded]) for field, place in design.places.items()}
    each = {field: jnp.asarray(start[padded] if start.ndim else start) for field, start in starts.items()}
    return Rows(count, points, places, each)


def steps_of(fitted: Float[Array, " T"], rows: Rows) -> TrainingStep:
    """The steps of all rows, leaves [rows]."""
    steps = _steps(fitted, rows.points, rows.places, rows.starts)
    return jax.tree.map(lambda leaf: leaf[: rows.count], steps)


@jax.jit
def _steps(fitted: Array, points: Point, places: Mapping[str, Array], starts: Mapping[str, Array]) -> TrainingStep:
    efficiencies = efficiencies_of(fitted, places, starts)
    return jax.vmap(training_step)(points.model, points.layout, points.device, efficiencies)


Fit = Callable[[np.ndarray], np.ndarray]


def fitter(rows: Rows, deviation: np.ndarray, measured: np.ndarray, explored: np.ndarray) -> Fit:
    """A function of the rows' weights [rows] that gives the fitted deviations [T].

    **Arguments:** `deviation` [T]: of the prior; `measured` [rows] [s], NaN where there is none (weight 0);
    `explored` [rows]: what the step describes less well.
    """
    known = np.isfinite(measured)
    target = _padded(np.log(np.where(known, measured, 1.0)), rows)
    noise = _padded(np.where(explored, EXPLORED_NOISE, NOISE), rows)
    prior = jnp.asarray(deviation)

    def fit(weight: np.ndarray) -> np.ndarray:
        used = jnp.asarray(np.pad(np.where(known, weight, 0.0), (0, -rows.count % BLOCK)))
        with jax.numpy_dtype_promotion("standard"):  # optax adds integers of different widths
            return np.asarray(_solved(used, target, noise, prior, rows.points, rows.places, rows.starts))

    return fit


def _padded(values: np.ndarray, rows: Rows) -> Array:
    """Values by row, the last again beyond it."""
    return jnp.asarray(np.pad(values, (0, -rows.count % BLOCK), mode="edge"))


@jax.jit
def _solved(
    weight: Array,
    target: Array,
    noise: Array,
    prior: Array,
    points: Point,
    places: Mapping[str, Array],
    starts: Mapping[str, Array],
) -> Float[Array, " T"]:
    """The deviations at the least loss."""

    def loss(fitted: Array) -> Array:
        residual = (jnp.log(_steps(fitted, points, places, starts).unchecked_time) - target) / noise
        away = optax.losses.huber_loss(jnp.where(weight > 0.0, residual, 0.0))
        return weight @ away + 0.5 * jnp.sum((fitted / prior) ** 2)

    solver = optax.lbfgs()
    both = optax.value_and_grad_from_state(loss)

    def step(carry: tuple[Array, optax.OptState]) -> tuple[Array, optax.OptState]:
        fitted, state = carry
        value, slope = both(fitted, state=state)
        update, state = solver.update(slope, state, fitted, value=value, grad=slope, value_fn=loss)
        return optax.apply_updates(fitted, update), state  # type: ignore[return-value]

    def unfinished(carry: tuple[Array, optax.OptState]) -> Array:
        state = carry[1]
        count, slope = (optax.tree_utils.tree_get(state, name) for name in ("count", "grad"))
        return (count == 0) | ((count < STEPS) & (optax.tree_utils.tree_norm(slope) > CONVERGED))

    start = jnp.zeros_like(prior)
    return jax.lax.while_loop(unfinished, step, (start, solver.init(start)))[0]
