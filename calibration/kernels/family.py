"""A fitted family of kernels: its model, the names it knows, its intervals, and the devices it was adapted to."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import numpy as np

from calibration.intervals import Spread, Width
from calibration.kernels.gaussian_process import Covariance, Places
from calibration.kernels.levels import Names
from calibration.kernels.model import KernelModel
from calibration.kernels.neighbours import Neighbours


@dataclass(frozen=True, eq=False)
class Local:
    """Rows of one device: their `places`, with the `names` these index, and their `residual`, log measured - log
    predicted [R]. `width`: half-widths of the intervals in standard deviations of the `covariance`'s process [1]."""

    names: Names
    places: Places
    residual: np.ndarray
    covariance: Covariance
    width: Width

    @functools.cached_property
    def process(self) -> Neighbours:
        return Neighbours(self.covariance, jax.tree.map(np.asarray, self.places), self.residual)

    def is_far(self, places: Places, deviation: np.ndarray) -> np.ndarray:
        """Whether the rows leave more than half of the variance there was before them at other places [N]."""
        left = deviation**2 - np.asarray(self.covariance.noise_variance(places))
        return left > 0.5 * np.asarray(self.covariance.variance(places))


@dataclass(frozen=True)
class FittedFamily:
    """A model and the names it knows; `local`: what it was adapted to, by the names of devices."""

    family: str
    features: tuple[str, ...]
    names: Names
    model: KernelModel
    spread: Spread
    local: Mapping[str, Local] = field(default_factory=dict)

    def known(self, level: str) -> list[str]:
        """Names of a level that the family was fitted or adapted to."""
        adapted = [name for local in self.local.values() for name in local.names.known[level]]
        return [*self.names.known[level], *adapted]
