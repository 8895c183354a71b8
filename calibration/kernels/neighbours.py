"""A Gaussian process told by the nearest rows alone (Vecchia 1988; Datta et al. 2016, "nearest-neighbor Gaussian
process").

What rows far away could add, nearer ones have said: the exact process takes the cube of the number of its rows, this
one the same for every row that it predicts. Of no more rows than `NEAREST` it is the exact one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.spatial import KDTree

from calibration.kernels.blocks import blocks
from calibration.kernels.gaussian_process import LAYER, STACK, Covariance, Places, whitened

NEAREST = 64  # rows that a prediction is made from
NESTED = (LAYER, STACK)  # levels whose rows are searched by themselves
AT_ONCE = 64  # rows that are predicted together: a device is adapted to so few, each of which has a matrix of its own


@dataclass(frozen=True)
class Search:
    """Some of the `rows` [S], found by their features over the lengths of the covariance."""

    rows: np.ndarray
    tree: KDTree

    def __call__(self, at: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest rows of every place [N, most], and which of them there are."""
        _, index = self.tree.query(at, k=np.arange(1, most + 1), workers=-1)
        there = index < len(self.rows)
        return self.rows[np.where(there, index, 0)], there


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The process of a `covariance`, given the `residual` of rows at `places` [R]."""

    covariance: Covariance
    places: Places
    residual: np.ndarray

    def predicted(self, places: Places) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of a measurement at other places [N], noise included."""
        found = np.empty((2, len(places.names)))
        for block, padded in blocks(len(places.names), AT_ONCE):
            at = places[padded]
            found[:, block] = self._conditional(at, *self.nearest(at))[:, : len(block)]
        return found[0], found[1]

    def left_out(self, rows: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of some rows, each predicted without any row of its group, how far its residual lies from the mean, and the
        standard deviation of that [N]. `groups` [R]: a number for the group of every row."""
        found = np.empty((2, len(rows)))
        for block, padded in blocks(len(rows), AT_ONCE):
            at = self.places[rows[padded]]
            near, there = self._candidates(at, 2 * NEAREST)
            there &= groups[near] != groups[rows[padded], None]
            found[:, block] = self._conditional(at, *self._closest(at, near, there))[:, : len(block)]
        return self.residual[rows] - found[0], found[1]

    def nearest(self, places: Places) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the highest covariance with each place [N, NEAREST], and which of them there are."""
        return self._closest(places, *self._candidates(places, NEAREST))

    def _candidates(self, places: Places, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows near each place and which of them there are, each once: of its own layer, of its stack, and of all."""
        at, known, asked = self._scaled(places), np.asarray(self.places.names), np.asarray(places.names)
        found = [self._own(level, at, asked[:, level], most) for level in NESTED] + [self._all(at, most)]
        for (rows, there), level in zip(found[1:], NESTED, strict=True):
            there &= known[rows, level] != asked[:, level, None]
        rows, there = zip(*found, strict=True)
        return np.concatenate(rows, axis=1), np.concatenate(there, axis=1)

    def _own(self, level: int, at: np.ndarray, names: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest rows of the name of every place at a level [N, most], and which of them there are."""
        found, there = np.zeros((len(at), most), int), np.zeros((len(at), most), bool)
        for name in np.intersect1d(names, list(self._named[level])).tolist():
            which = np.flatnonzero(names == name)
            found[which], there[which] = self._named[level][name](at[which], most)
        return found, there

    def _closest(self, places: Places, near: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.asarray(_ranked(self.covariance, places, self.places[near], there))
        return np.take_along_axis(near, chosen, 1), np.take_along_axis(there, chosen, 1)

    def _conditional(self, places: Places, near: np.ndarray, there: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):  # of rows side by side, single precision may leave no positive definite matrix
            wide = jax.tree.map(
                lambda leaf: np.asarray(leaf, float if leaf.dtype.kind == "f" else int),
                (self.covariance, places, self.places[near]),
            )
            return np.asarray(_given(*wide, self.residual[near].astype(float), there))

    def _scaled(self, places: Places) -> np.ndarray:
        return np.asarray(places.features) * np.exp(-np.asarray(self.covariance.lengths))

    @functools.cached_property
    def _all(self) -> Search:
        return Search(np.arange(len(self.residual)), KDTree(self._scaled(self.places)))

    @functools.cached_property
    def _named(self) -> dict[int, dict[int, Search]]:
        """Of each of the `NESTED` levels, the rows of every name."""
        return {level: self._of_names(np.asarray(self.places.names)[:, level]) for level in NESTED}

    def _of_names(self, names: np.ndarray) -> dict[int, Search]:
        scaled, order = self._scaled(self.places), np.argsort(names, kind="stable")
        distinct, first = np.unique(names[order], return_index=True)
        parts = zip(distinct.tolist(), np.split(order, first[1:]), strict=True)
        return {name: Search(rows, KDTree(scaled[rows])) for name, rows in parts}


@jax.jit
def _ranked(covariance: Covariance, places: Places, near: Places, there: Array) -> Int[Array, "N K"]:
    """Places among their candidates of those with the highest covariance."""

    def one(at: Places, near: Places, there: Array) -> Array:
        cross = jnp.where(there, covariance(_alone(at), near)[0], -jnp.inf)
        return jax.lax.top_k(cross, NEAREST)[1]

    return jax.vmap(one)(places, near, there)


@jax.jit
def _given(
    covariance: Covariance, places: Places, near: Places, residual: Array, there: Bool[Array, "N K"]
) -> Float[Array, "2 N"]:
    """Mean and standard deviation at each place (Rasmussen and Williams 2006, eq. 2.25 and 2.26, noise included)."""

    def one(at: Places, near: Places, residual: Array, there: Array) -> Array:
        columns = jnp.stack([covariance(_alone(at), near)[0], residual], axis=1)
        white, _ = whitened(covariance, near, there, jnp.where(there[:, None], columns, 0.0))
        left = jnp.maximum(covariance.variance(at) - jnp.sum(white[:, 0] ** 2), 0.0)
        return jnp.stack([white[:, 0] @ white[:, 1], jnp.sqrt(left + covariance.noise_variance(at))])

    return jax.vmap(one, out_axes=1)(places, near, residual, there)


def _alone(at: Places) -> Places:
    return Places(at.features[None], at.names[None])
