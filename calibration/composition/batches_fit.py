"""The scalars of the step, fitted to measured batches: least squares on the logarithm of the time, with priors.

    minimize  sum ((log t - log measured) / NOISE)^2 + sum ((scalar - mean) / deviation)^2

With two labels a batch and a dozen batches the priors matter: they hold what no label speaks of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.composition.batches_step import ENERGY_PRIOR, JOULE, PRIORS, Point, step_times
from jaxperf.core.numerics import stack
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer

NOISE = 0.05  # what the model is expected to miss a label by [log 1]; runs repeat to 0.3 %
STEPS = 20
BINDING = -26.5  # logarithm of 3.1 pJ a FLOP, at which every power limit binds
LONGEST_STEP = 0.5  # of a scalar in one iteration [log 1]
ROWS = 8  # batches are padded to a multiple of this, so that tables of similar size share their compiled form


def priors(kinds: Sequence[str]) -> dict[str, tuple[float, float]]:
    """(mean, deviation) of every scalar, those of the kinds' energies included."""
    return {**PRIORS, **{JOULE + name: ENERGY_PRIOR for name in kinds}}


@dataclass(frozen=True)
class Group:
    """The batches of one model: their places, their stacked points, and the two functions of the scalars [T]:
    logarithms of the times [rows, 2], and those with their Jacobian [rows, 2, T]."""

    at: np.ndarray
    points: Point
    times: Callable[[Array, Point], Array]
    both: Callable[[Array, Point], tuple[Array, Array]]


def groups_of(points: Sequence[Point], models: Sequence[ModelConfig], names: Sequence[str]) -> list[Group]:
    """Batches by model; each model is compiled once."""
    groups = []
    for model in dict.fromkeys(map(id, models)):
        at = np.flatnonzero([id(each) == model for each in models])
        times = _log_times(models[at[0]], names)

        def both(
            scalars: Float[Array, " T"], points: Point, times: Callable[[Array, Point], Array] = times
        ) -> tuple[Array, Array]:
            return times(scalars, points), jax.jacfwd(times)(scalars, points)

        groups.append(Group(at, _stacked(points, at), jax.jit(times), jax.jit(both)))
    return groups


def with_points(groups: Sequence[Group], points: Sequence[Point]) -> list[Group]:
    """The same batches, compiled before, at other points."""
    return [dataclasses.replace(group, points=_stacked(points, group.at)) for group in groups]


def _stacked(points: Sequence[Point], at: np.ndarray) -> Point:
    """The points of a model; the last one again fills the last rows."""
    padded = np.concatenate([at, np.repeat(at[-1], -len(at) % ROWS)])
    return stack([points[place] for place in padded])


def _log_times(model: ModelConfig, names: Sequence[str]) -> Callable[[Array, Point], Float[Array, "rows 2"]]:
    network = transformer(model)

    def times(scalars: Float[Array, " T"], points: Point) -> Float[Array, "rows 2"]:
        named = dict(zip(names, scalars, strict=True))
        return jnp.log(jax.vmap(lambda point: step_times(network, named, point))(points))

    return times


def log_times(groups: Sequence[Group], scalars: np.ndarray, rows: int) -> Float[np.ndarray, "rows 2"]:
    """Logarithms of (prefill, decode step) of all batches [log s]."""
    found = np.full((rows, 2), np.nan)
    for group in groups:
        found[group.at] = np.asarray(group.times(jnp.asarray(scalars), group.points))[: len(group.at)]
    return found


def fit_scalars(
    groups: Sequence[Group],
    measured: Float[np.ndarray, "rows 2"],
    kept: np.ndarray,
    prior: Mapping[str, tuple[float, float]],
) -> Float[np.ndarray, " T"]:
    """The scalars that the batches `kept` [rows] and the priors make most likely; `measured` [s].

    Where a power limit does not bind, its energy has no slope; so the search starts twice, at the priors and with every
    limit binding, and the better end counts.
    """
    mean, deviation = (np.array(column) for column in zip(*prior.values(), strict=True))
    target = np.log(measured)
    used = np.isfinite(target) & kept[:, None]

    def system(scalars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and their Jacobian."""
        log_time, slope = _linearized(groups, scalars, measured.shape[0])
        away = np.concatenate([(log_time[used] - target[used]) / NOISE, (scalars - mean) / deviation])
        return away, np.concatenate([slope[used] / NOISE, np.diag(1.0 / deviation)])

    binding = np.array([BINDING if name.startswith(JOULE) else start for name, start in zip(prior, mean, strict=True)])
    ends = [_descended(system, start) for start in (mean, binding)]
    return min(ends, key=lambda end: end[0])[1]


def _descended(
    system: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], scalars: np.ndarray
) -> tuple[float, np.ndarray]:
    """(sum of squares, scalars) where Levenberg and Marquardt's steps end (Marquardt 1963)."""
    away, slope = system(scalars)
    damping = 1e-2
    for _ in range(STEPS):
        normal = slope.T @ slope
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope.T @ away)
        tried = system(scalars + np.clip(step, -LONGEST_STEP, LONGEST_STEP))
        if tried[0] @ tried[0] < away @ away:
            scalars = scalars + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
            away, slope = tried
            damping /= 4.0
        else:
            damping *= 8.0
    return float(away @ away), scalars


def _linearized(groups: Sequence[Group], scalars: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    log_time, slope = np.zeros((rows, 2)), np.zeros((rows, 2, len(scalars)))
    for group in groups:
        values, slopes = group.both(jnp.asarray(scalars), group.points)
        log_time[group.at] = np.asarray(values)[: len(group.at)]
        slope[group.at] = np.asarray(slopes)[: len(group.at)]
    return log_time, slope


def held_out(
    groups: Sequence[Group],
    shown: Sequence[Group],
    measured: Float[np.ndarray, "rows 2"],
    folds: Sequence[str],
    prior: Mapping[str, tuple[float, float]],
) -> Float[np.ndarray, "rows 2"]:
    """Logarithms of the times of every batch by scalars fitted without its fold [log s].

    **Arguments:** `groups`: to fit on; `shown`: the same batches as they are predicted, see `with_points`; `folds`
    [rows]: the name of each batch's fold.
    """
    found = np.full(measured.shape, np.nan)
    which = np.array(folds)
    for name in dict.fromkeys(folds):
        scalars = fit_scalars(groups, measured, which != name, prior)
        own = which == name
        found[own] = log_times(shown, scalars, len(which))[own]
    return found
