"""Gaussian process regression of a residual over features and names (Rasmussen and Williams 2006, chapters 2 and 5).

    y = f + noise,    cov f(a), f(b) = c + m M(a, b) + sum over levels of [a and b have one name] (c_l + m_l M(a, b))

M: Matern 3/2 with a length for each feature (eq. 4.17). So all rows share something, and rows of one format, framework,
kernel, stack or layer share more. How much layers differ and how much rows scatter is each stack's own: one library may
repeat to a percent what another, by chance, has tuned or not. How much rows scatter also follows their features: short
kernels do by what L2 happens to hold. The hyper-parameters are those of the highest marginal likelihood times
log-normal priors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from jaxperf.core.numerics import as_float

STEPS = 120
RATE = 0.08
CONSTANT, SMOOTH = (0.2, *5 * (0.06,)), (0.2, *5 * (0.09,))  # of the prior variance: all rows', each level's
UNTOLD = 1e-30  # of it that layers have, where too few rows are known for two to be of one
NOISE = 0.04  # scatter that neighbours do not share, to begin with [log 1]
LEAST_VARIANCE = 1e-4  # of that scatter: measured times repeat to a percent
LEAST_SHARE = 1e-4  # of the whole variance that the scatter has, so that single precision can tell it from none
LENGTH_SPREAD, VARIANCE_SPREAD = 0.5, 1.5  # standard deviations of the priors of logarithms
LAYERS_SPREAD, SCATTER_SPREAD = 2.0, 1.5  # the same of what is each stack's own
SLOPE_SPREAD = 0.3  # and of what a standard deviation of a feature makes of the scatter
MOST_SLOPED = 4.0  # all features together make no more or less of it than this [log 1]
STACK, LAYER = -2, -1  # levels of `Places.names`


class Places(eqx.Module):
    """Where rows lie: standardized `features` [R, F], and the index of each row's name at every level, `names` [R, L],
    the last two of its stack and of its layer, a part of that; another index is another name."""

    features: Float[Array | np.ndarray, "*rows F"]
    names: Int[Array | np.ndarray, "*rows L"]

    def __getitem__(self, rows: Any) -> Places:
        return Places(self.features[rows], self.names[rows])


class Covariance(eqx.Module):
    """Logarithms of `lengths` [F], of the variances `constant` and `smooth` [1 + L] (of all rows, then of each level),
    and of the variance of the `noise`; and of the factors that a stack has on those of its `layers` and on its noise,
    the `scatter` [S], by the index of its name: 0 of a name beyond the last, and of all where S is 0. `slope`: of the
    logarithm of the noise along every feature [F], or of none."""

    lengths: Float[Array, " F"]
    constant: Float[Array, " L1"]
    smooth: Float[Array, " L1"]
    noise: Float[Array, ""]
    layers: Float[Array, " S"]
    scatter: Float[Array, " S"]
    slope: Float[Array, " F0"]

    def __call__(self, a: Places, b: Places) -> Float[Array, "A B"]:
        """Covariance of two sets of rows, without noise."""
        center = jnp.mean(jnp.asarray(b.features), axis=0)  # far from zero, squares would hide small distances
        scaled = ((jnp.asarray(each.features) - center[None]) * jnp.exp(-self.lengths)[None] for each in (a, b))
        matern = _matern(*scaled)
        constant, smooth = jnp.exp(self.constant), jnp.exp(self.smooth)
        total = constant[0] + smooth[0] * matern
        for level in range(a.names.shape[1]):
            same = (a.names[:, level, None] == b.names[None, :, level]).astype(matern.dtype)
            if level - a.names.shape[1] == LAYER:
                same = same * jnp.exp(_of_stack(self.layers, a))[:, None]
            total = total + same * (constant[level + 1] + smooth[level + 1] * matern)
        return total

    def variance(self, places: Places) -> Float[Array, "*rows"]:
        """Of every row, without noise."""
        levels = jnp.exp(self.constant) + jnp.exp(self.smooth)
        return jnp.sum(levels[:LAYER]) + levels[LAYER] * jnp.exp(_of_stack(self.layers, places))

    def noise_variance(self, places: Places) -> Float[Array, "*rows"]:
        """Of every row."""
        least = jnp.maximum(LEAST_VARIANCE, LEAST_SHARE * self.variance(places))
        return jnp.exp(self.noise + _of_stack(self.scatter, places) + self._sloped(places)) + least

    def _sloped(self, places: Places) -> Float[Array, "*rows"]:
        if not len(self.slope):
            return jnp.zeros(places.names.shape[:-1])
        return jnp.clip(jnp.asarray(places.features) @ self.slope, -MOST_SLOPED, MOST_SLOPED)


def _of_stack(values: Float[Array, " S"], places: Places) -> Float[Array, "*rows"]:
    """What is each stack's own, of every row."""
    if not len(values):
        return jnp.zeros(places.names.shape[:-1])
    return jnp.take(values, places.names[..., STACK], mode="fill", fill_value=0.0)


def _matern(a: Float[Array, "A F"], b: Float[Array, "B F"]) -> Float[Array, "A B"]:
    """(1 + r) e^-r, r the square root of three times the distance."""
    squared = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None] - 2.0 * a @ b.T
    root = jnp.sqrt(3.0 * jnp.maximum(squared, 0.0) + 1e-10)  # the slope of the bare root is infinite at zero
    return (1.0 + root) * jnp.exp(-root)


def prior(features: int, variance: float, stacks: int = 0) -> Covariance:
    """What is expected of residuals of so much variance over so many features; of rows that are enough to tell layers
    and stacks apart, and how they scatter along features, with the number of `stacks` (padded to a power of two, so
    that few sizes are compiled)."""
    none = as_float(np.zeros(max(64, 1 << (stacks - 1).bit_length()) if stacks else 0))
    told = np.r_[np.ones(len(CONSTANT) - 1), 1.0 if stacks else UNTOLD]
    return Covariance(
        lengths=as_float(np.full(features, 0.5 * np.log(features))),  # so that a typical pair is one length apart
        constant=as_float(np.log(variance * told * CONSTANT)),
        smooth=as_float(np.log(variance * told * SMOOTH)),
        noise=as_float(2.0 * np.log(NOISE)),
        layers=none,
        scatter=none,
        slope=as_float(np.zeros(features if stacks else 0)),
    )


def learned(
    start: Covariance, places: Places, residual: np.ndarray, sets: Sequence[np.ndarray], surety: float = 1.0
) -> Covariance:
    """The covariance with the highest posterior, from its prior's mean `start` (Adam); deterministic.

    `surety`: what the priors' standard deviations are divided by [1].

    The likelihood is the product of those of `sets` of rows, each by itself (composite likelihood; Varin et al. 2011).
    All are padded to one power of two by rows that say nothing, so that few sizes are compiled.
    """
    size = max(64, 1 << (max(map(len, sets)) - 1).bit_length())
    rows = np.stack([np.r_[each, np.zeros(size - len(each), int)] for each in sets])
    there = np.stack([np.arange(size) < len(each) for each in sets])
    target = np.where(there, residual[rows], 0.0)
    with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by its integer step
        given = jax.tree.map(jnp.asarray, places[rows])
        return _descend(start, given, as_float(target), jnp.asarray(there), as_float(surety), STEPS)


@functools.partial(jax.jit, static_argnames="steps")
def _descend(start: Covariance, places: Places, target: Array, there: Array, surety: Array, steps: int) -> Covariance:
    optimizer = optax.adam(RATE)

    def loss(covariance: Covariance) -> Array:
        """Minus the logarithm of the likelihood of all sets and of the priors."""
        surprise = jax.vmap(_surprise, in_axes=(None, 0, 0, 0))(covariance, places, target, there)
        moved = jax.tree.map(lambda now, first: jnp.sum((now - first) ** 2), covariance, start)
        variances = moved.constant + moved.smooth + moved.noise
        own = moved.layers / LAYERS_SPREAD**2 + moved.scatter / SCATTER_SPREAD**2 + moved.slope / SLOPE_SPREAD**2
        priors = moved.lengths / LENGTH_SPREAD**2 + variances / VARIANCE_SPREAD**2 + own
        return jnp.sum(surprise) + 0.5 * surety**2 * priors

    def step(carry: Any, _: None) -> tuple[Any, None]:
        covariance, state = carry
        updates, state = optimizer.update(jax.grad(loss)(covariance), state)
        return (optax.apply_updates(covariance, updates), state), None

    first: Any = start
    return jax.lax.scan(step, (first, optimizer.init(first)), None, length=steps)[0][0]


def _surprise(covariance: Covariance, places: Places, target: Array, there: Array) -> Array:
    """Minus the logarithm of the marginal likelihood of one set of rows (eq. 5.8)."""
    white, factor = whitened(covariance, places, there, target[:, None])
    return 0.5 * jnp.sum(white**2) + jnp.sum(jnp.log(jnp.diagonal(factor)))


def whitened(
    covariance: Covariance, places: Places, there: Bool[Array, " R"], columns: Float[Array, "R C"]
) -> tuple[Float[Array, "R C"], Float[Array, "R R"]]:
    """The Cholesky factor of the rows' covariance with noise, and its inverse times `columns`; rows that are not
    `there` are independent of all others."""
    both = there[:, None] & there[None, :]
    noise = jnp.where(there, covariance.noise_variance(places), 1.0)
    factor = jnp.linalg.cholesky(jnp.where(both, covariance(places, places), 0.0) + jnp.diag(noise))
    return jax.scipy.linalg.solve_triangular(factor, columns, lower=True), factor
