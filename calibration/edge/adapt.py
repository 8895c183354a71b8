"""An unknown device from a few of its networks: the posterior of its coefficients, in closed form.

With A [k, 1 + F] the measured networks and y their latencies over the device's scale, y = A c + noise of sigma^2, the
posterior of c under the prior N(m, L L^T) follows from one singular value decomposition of A L for every sigma. How
noisy a device is, its rows tell: levels are averaged by their marginal likelihoods (Rasmussen and Williams, "Gaussian
Processes for Machine Learning", ch. 2.2 and 5.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.edge.prior import Prior

NOISE = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)  # sigma, of the mean latency: from a GPU's to a busy phone's


@dataclass(frozen=True)
class Adapted:
    """`scale` [s]; `weights` [levels] of `NOISE`; `shift` [levels, R]: posterior means of the white coefficients u,
    c = m + L u; `directions` [R, k] and `told` [levels, k]: along them the rows took this share of the variance."""

    prior: Prior
    scale: float
    weights: np.ndarray
    shift: np.ndarray
    directions: np.ndarray
    told: np.ndarray

    def predict(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Latency [N] [s] and the standard deviation of its logarithm [N] [1] of networks with these features [N, F].

        Never below the least share of a mean latency that known devices show.
        """
        design = self.prior.design(features)
        reach = design @ self.prior.root
        means = (design @ self.prior.mean)[:, None] + reach @ self.shift.T  # [N, levels]
        left = (reach**2).sum(1)[:, None] - (reach @ self.directions) ** 2 @ self.told.T
        mean = means @ self.weights
        variance = (left + np.square(NOISE) + (means - mean[:, None]) ** 2) @ self.weights
        share = np.maximum(mean, self.prior.least)
        return self.scale * share, np.sqrt(np.maximum(variance, NOISE[0] ** 2)) / share


def adapt(prior: Prior, features: np.ndarray, latency: np.ndarray) -> Adapted:
    """The device on which networks with `features` [k, F] take `latency` [k] [s], k at least 1."""
    design = prior.design(features)
    usual = np.maximum(design @ prior.mean, prior.least)
    scale = float(latency.mean() / usual.mean())
    apart = latency / scale - design @ prior.mean
    left, sizes, right = np.linalg.svd(design @ prior.root, full_matrices=False)
    along = left.T @ apart
    beyond = max(0.0, float(apart @ apart - along @ along))
    noise = np.square(NOISE)[:, None]
    total = sizes**2 + noise  # [levels, k]
    missing = len(apart) - len(sizes)
    evidence = -0.5 * ((along**2 / total + np.log(total)).sum(1) + beyond / noise[:, 0] + missing * np.log(noise[:, 0]))
    weights = np.exp(evidence - evidence.max())
    shift = (sizes * along / total) @ right
    return Adapted(prior, scale, weights / weights.sum(), shift, right.T, sizes**2 / total)
