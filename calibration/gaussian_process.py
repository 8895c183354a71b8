"""Gaussian process regression of a residual over features and names (Rasmussen and Williams 2006, chapters 2 and 5).

    y = f + noise,    cov f(a), f(b) = c + m M(a, b) + sum over levels of [a and b have one name] (c_l + m_l M(a, b))

M: Matern 3/2 with a length for each feature (eq. 4.17). So all rows share something, and rows of one format, framework
or stack share more. The hyper-parameters are those of the highest marginal likelihood times log-normal priors.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg
from jaxtyping import Array, Float, Int

from jaxperf.core.numerics import as_float

STEPS = 120
RATE = 0.08
CONSTANT, SMOOTH = (0.2, 0.08, 0.08, 0.08), (0.2, 0.12, 0.12, 0.12)  # of the prior variance: all rows', each level's
NOISE = 0.04  # scatter that neighbours do not share, to begin with [log 1]
LEAST_VARIANCE = 1e-4  # of that scatter: measured times repeat to a percent
LEAST_SHARE = 1e-4  # of the whole variance that the scatter has, so that single precision can tell it from none
LENGTH_SPREAD, VARIANCE_SPREAD = 1.0, 1.5  # standard deviations of the priors of logarithms


class Places(eqx.Module):
    """Where rows lie: standardized `features` [R, F], and the index of each row's name at every level, `names` [R, L];
    another index is another name."""

    features: Float[Array | np.ndarray, "*rows F"]
    names: Int[Array | np.ndarray, "*rows L"]

    def __getitem__(self, rows: Any) -> Places:
        return Places(self.features[rows], self.names[rows])


class Covariance(eqx.Module):
    """Logarithms of `lengths` [F], of the variances `constant` and `smooth` [1 + L] (of all rows, then of each level),
    and of the variance of the `noise`."""

    lengths: Float[Array, " F"]
    constant: Float[Array, " L1"]
    smooth: Float[Array, " L1"]
    noise: Float[Array, ""]

    def __call__(self, a: Places, b: Places) -> Float[Array, "A B"]:
        """Covariance of two sets of rows, without noise."""
        matern = _matern(*(jnp.asarray(each.features) * jnp.exp(-self.lengths)[None] for each in (a, b)))
        constant, smooth = jnp.exp(self.constant), jnp.exp(self.smooth)
        total = constant[0] + smooth[0] * matern
        for level in range(a.names.shape[1]):
            same = (a.names[:, level, None] == b.names[None, :, level]).astype(matern.dtype)
            total = total + same * (constant[level + 1] + smooth[level + 1] * matern)
        return total

    @property
    def variance(self) -> Float[Array, ""]:
        """Of one row, without noise."""
        return jnp.sum(jnp.exp(self.constant)) + jnp.sum(jnp.exp(self.smooth))

    @property
    def noise_variance(self) -> Float[Array, ""]:
        return jnp.exp(self.noise) + jnp.maximum(LEAST_VARIANCE, LEAST_SHARE * self.variance)


def _matern(a: Float[Array, "A F"], b: Float[Array, "B F"]) -> Float[Array, "A B"]:
    """(1 + r) e^-r, r the square root of three times the distance."""
    squared = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None] - 2.0 * a @ b.T
    root = jnp.sqrt(3.0 * jnp.maximum(squared, 0.0) + 1e-10)  # the slope of the bare root is infinite at zero
    return (1.0 + root) * jnp.exp(-root)


def prior(features: int, variance: float) -> Covariance:
    """What is expected of residuals of so much variance over so many features."""
    return Covariance(
        lengths=as_float(np.full(features, 0.5 * np.log(features))),  # so that a typical pair is one length apart
        constant=as_float(np.log(variance * np.array(CONSTANT))),
        smooth=as_float(np.log(variance * np.array(SMOOTH))),
        noise=as_float(2.0 * np.log(NOISE)),
    )


def learned(start: Covariance, places: Places, residual: np.ndarray) -> Covariance:
    """The covariance with the highest posterior, from its prior's mean `start` (Adam); deterministic.

    Rows are padded to a power of two by rows that say nothing, so that few sizes are compiled.
    """
    rows = len(residual)
    size = max(64, 1 << (rows - 1).bit_length())
    padded = places[np.r_[np.arange(rows), np.zeros(size - rows, int)]]
    there = np.arange(size) < rows
    target = np.where(there, np.r_[residual, np.zeros(size - rows)], 0.0)
    with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by its integer step
        return _descend(start, jax.tree.map(jnp.asarray, padded), as_float(target), jnp.asarray(there))


@jax.jit
def _descend(start: Covariance, places: Places, target: Array, there: Array) -> Covariance:
    optimizer = optax.adam(RATE)
    both = there[:, None] & there[None, :]

    def loss(covariance: Covariance) -> Array:
        """Minus the logarithm of the marginal likelihood (eq. 5.8) and of the priors."""
        noise = jnp.where(there, covariance.noise_variance, 1.0)
        factor = jnp.linalg.cholesky(jnp.where(both, covariance(places, places), 0.0) + jnp.diag(noise))
        white = jax.scipy.linalg.solve_triangular(factor, target, lower=True)
        moved = jax.tree.map(lambda now, first: jnp.sum((now - first) ** 2), covariance, start)
        variances = moved.constant + moved.smooth + moved.noise
        priors = moved.lengths / LENGTH_SPREAD**2 + variances / VARIANCE_SPREAD**2
        return 0.5 * jnp.sum(white**2) + jnp.sum(jnp.log(jnp.diagonal(factor))) + 0.5 * priors

    def step(carry: Any, _: None) -> tuple[Any, None]:
        covariance, state = carry
        updates, state = optimizer.update(jax.grad(loss)(covariance), state)
        return (optax.apply_updates(covariance, updates), state), None

    first: Any = start
    return jax.lax.scan(step, (first, optimizer.init(first)), None, length=STEPS)[0][0]


class Posterior(eqx.Module):
    """What rows say of others: their `places`; `whitening` [R, R], the inverse Cholesky factor of their covariance with
    noise; `target` [R], that times their residuals."""

    covariance: Covariance
    places: Places
    whitening: Float[Array, "R R"]
    target: Float[Array, " R"]

    def __call__(self, places: Places) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        """Mean and standard deviation of a measurement at other places (eq. 2.25 and 2.26, noise included)."""
        white = self.covariance(places, self.places) @ self.whitening.T
        left = jnp.maximum(self.covariance.variance - jnp.sum(white**2, axis=1), 0.0)
        return white @ self.target, jnp.sqrt(left + self.covariance.noise_variance)


def posterior(covariance: Covariance, places: Places, residual: np.ndarray) -> Posterior:
    """Given rows and their residuals [R]; in double precision on the way."""
    whitening = _whitening(covariance, places)
    return Posterior(covariance, places, as_float(whitening), as_float(whitening @ residual))


def left_out(
    covariance: Covariance, places: Places, residual: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of each row predicted without any row of its group, how far its residual lies from the mean, and the standard
    deviation of that (eq. 5.12, of blocks of the inverse where a group has several rows) [R]. `groups` [R]: numbers."""
    whitening = _whitening(covariance, places)
    precision, weights = whitening.T @ whitening, whitening.T @ (whitening @ residual)
    error, deviation = np.empty((2, len(residual)))
    order = np.argsort(groups, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        block = np.linalg.inv(precision[np.ix_(rows, rows)])
        error[rows], deviation[rows] = block @ weights[rows], np.sqrt(block.diagonal())
    return error, deviation


def _whitening(covariance: Covariance, places: Places) -> np.ndarray:
    with jax.enable_x64(True):  # of rows side by side, single precision may leave no positive definite matrix
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (covariance, places.features))
        matrix = np.array(_between(wide[0], Places(wide[1], places.names)))
    matrix[np.diag_indices(len(matrix))] += float(covariance.noise_variance)
    factor = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True)
    return scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, overwrite_b=True)


@jax.jit
def _between(covariance: Covariance, places: Places) -> Array:
    return covariance(places, places)
