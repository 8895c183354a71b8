"""What measured devices say of another: the latency of a network is a sum of what its parts cost on a device.

    latency_d(x) = s_d (c_d . x),    c_d ~ N(m, S),    S = a V + e diag(m^2 + v) + t^2 m m^T

with x the features of the network, standardized; s_d the mean latency of the device; m, V and v mean, covariance and
variances of the coefficients of all known devices and of three ideal ones, the corners of the roofline: bound by
arithmetic alone, by memory alone, and by the start of each kernel. `a` says how far an unknown device may lie along
what tells the known ones apart, `e` how far beside it, and `t` how well few rows tell its mean latency. A hierarchical
linear model as of Lindley and Smith, JRSS B 34 (1972); efficiencies of operations as a prior in the place of HELP's
meta-learning (Lee et al., NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

TRIMMED = 0.01  # of a device's latencies at either end: a board that was busy took a thousandth or ten times of them
SCALE = 0.1  # `t`
IDEAL = 3  # devices
RARE = 0.1  # of the devices: those with lower shares have measurements that broke off


class Freedom(NamedTuple):
    """`along` (a) and `beside` (e) of the covariance; `ridge`: of the known devices' own fits, in rows a row [1]."""

    along: float
    beside: float
    ridge: float


@dataclass(frozen=True)
class Prior:
    """Known devices: `center`, `spread` [F] of the features; `coefficients` [D + 3, 1 + F] [1]: shares of the mean
    latency, that of the constant first, at the end those of the ideal devices; `scale` [D] [s]: the mean latencies;
    `least` [1]: a share of it that hardly any device falls below."""

    devices: tuple[str, ...]
    center: np.ndarray
    spread: np.ndarray
    coefficients: np.ndarray
    scale: np.ndarray
    least: float
    freedom: Freedom

    @property
    def mean(self) -> np.ndarray:
        """m [1 + F]."""
        return self.coefficients.mean(0)

    @cached_property
    def root(self) -> np.ndarray:
        """L with S = L L^T [1 + F, D + 3 + 1 + F + 1]."""
        mean = self.mean
        apart = (self.coefficients - mean) * np.sqrt(self.freedom.along / (len(self.coefficients) - 1))
        beside = self.freedom.beside * (mean**2 + self.coefficients.var(0))
        return np.column_stack([apart.T, np.diag(np.sqrt(beside)), SCALE * mean])

    def design(self, features: np.ndarray) -> np.ndarray:
        """`standardized` features [N, 1 + F]."""
        return standardized(features, self.center, self.spread)

    def latency(self, device: str, features: np.ndarray) -> np.ndarray:
        """Of networks with these features [N, F] on a known device [N] [s]."""
        place = self.devices.index(device)
        return self.scale[place] * np.maximum(self.design(features) @ self.coefficients[place], self.least)

    def without(self, devices: Sequence[str]) -> Prior:
        """The prior of the other devices."""
        kept = [place for place, name in enumerate(self.devices) if name not in devices]
        names = tuple(self.devices[place] for place in kept)
        ideal = range(len(self.devices), len(self.coefficients))
        coefficients = self.coefficients[[*kept, *ideal]]
        return Prior(names, self.center, self.spread, coefficients, self.scale[kept], self.least, self.freedom)


def fit_prior(
    devices: Sequence[str], features: np.ndarray, work: np.ndarray, latency: np.ndarray, freedom: Freedom
) -> Prior:
    """Each device's coefficients by ridge regression on all networks at once.

    **Arguments:** `features` [N, F]; `work` [N, 3]: what the ideal devices' latencies go with; `latency` [N, D] [s].
    """
    center, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 1e-9, spread, 1.0)  # of what never varies, nothing is learned
    ends = np.quantile(latency, [TRIMMED, 1.0 - TRIMMED], axis=0)
    scale = np.clip(latency, *ends).mean(0)
    shares = np.column_stack([np.clip(latency, *ends) / scale, work / work.mean(0)])
    design = standardized(features, center, spread)
    penalty = freedom.ridge * len(features) * np.eye(design.shape[1])
    coefficients = np.linalg.solve(design.T @ design + penalty, design.T @ shares).T
    return Prior(
        tuple(devices), center, spread, coefficients, scale, float(np.quantile(ends[0] / scale, RARE)), freedom
    )


def standardized(features: np.ndarray, center: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Features [N, F] about their center in units of their spread, behind a constant [N, 1 + F]."""
    return np.column_stack([np.ones(len(features)), (features - center) / spread])
