"""A device from a few of its networks: the closed form against the textbook's, and what it must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.edge.adapt import NOISE, adapt
from calibration.edge.prior import Freedom, Prior, fit_prior
from calibration.edge.spaces import SPACES

SPACE = SPACES["nasbench201"]
CELLS = np.random.default_rng(3).integers(0, 5, (600, 6))
FEATURES, WORK = SPACE.features(CELLS), SPACE.work(CELLS)
FREEDOM = Freedom(1.0, 0.05, 1e-3)


def device(share: tuple[float, float, float], scale: float = 0.01) -> np.ndarray:
    """Latencies [600] [s] of a device bound in these shares by arithmetic, memory and the start of kernels."""
    return scale * (WORK / WORK.mean(0)) @ np.array(share)


DEVICES = {"gpu": device((0.2, 0.1, 0.7)), "cpu": device((0.6, 0.3, 0.1)), "phone": device((0.4, 0.6, 0.0), 0.05)}


@pytest.fixture(scope="module")
def prior() -> Prior:
    return fit_prior(list(DEVICES), FEATURES, WORK, np.column_stack(list(DEVICES.values())), FREEDOM)


def test_the_posterior_is_that_of_a_gaussian_process(prior: Prior) -> None:
    """Rasmussen and Williams (2006), equations 2.25, 2.26 and 2.30, for each level of noise."""
    own, other = slice(0, 12), slice(100, 140)
    noise = np.random.default_rng(0).normal(1.0, 0.03, 12)
    latency = device((0.5, 0.2, 0.3))[own] * noise
    found = adapt(prior, FEATURES[own], latency)
    a, z = prior.design(FEATURES[own]), prior.design(FEATURES[other])
    covariance = prior.root @ prior.root.T
    apart = latency / found.scale - a @ prior.mean
    means, variances, evidence = [], [], []
    for sigma in NOISE:
        k = a @ covariance @ a.T + sigma**2 * np.eye(12)
        means.append(z @ prior.mean + z @ covariance @ a.T @ np.linalg.solve(k, apart))
        left = covariance - covariance @ a.T @ np.linalg.solve(k, a @ covariance)
        variances.append(np.einsum("nf,fg,ng->n", z, left, z) + sigma**2)
        evidence.append(-0.5 * (apart @ np.linalg.solve(k, apart) + np.linalg.slogdet(k)[1]))
    weights = np.exp(np.array(evidence) - max(evidence))
    weights /= weights.sum()
    mean = weights @ np.array(means)
    variance = weights @ (np.array(variances) + (np.array(means) - mean) ** 2)
    time, spread = found.predict(FEATURES[other])
    assert found.weights == pytest.approx(weights)
    assert time == pytest.approx(found.scale * mean)
    assert spread == pytest.approx(np.sqrt(variance) / mean, rel=1e-6)


def test_more_networks_than_features(prior: Prior) -> None:
    latency = device((0.3, 0.3, 0.4))
    time, spread = adapt(prior, FEATURES[:400], latency[:400]).predict(FEATURES[400:])
    assert np.abs(time / latency[400:] - 1.0).max() < 0.01 and spread.max() < 0.05


@pytest.mark.parametrize("share", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.1, 0.1, 0.8)])
def test_ten_networks_tell_a_device_unlike_the_known_ones(prior: Prior, share: tuple[float, float, float]) -> None:
    latency = device(share, 0.2)
    time, _ = adapt(prior, FEATURES[:10], latency[:10]).predict(FEATURES[100:])
    assert np.median(np.abs(time / latency[100:] - 1.0)) < 0.02


@given(factor=st.floats(1e-6, 1e6), order=st.permutations(range(8)))
def test_units_and_order_change_nothing(prior: Prior, factor: float, order: list[int]) -> None:
    latency = device((0.2, 0.6, 0.2))
    time, spread = adapt(prior, FEATURES[:8], latency[:8]).predict(FEATURES[50:60])
    again, same = adapt(prior, FEATURES[:8][order], factor * latency[:8][order]).predict(FEATURES[50:60])
    assert again == pytest.approx(factor * time, rel=1e-9) and same == pytest.approx(spread, rel=1e-6)


def test_a_latency_stays_above_zero_whatever_was_measured(prior: Prior) -> None:
    latency = np.array([1e-6, 5.0, 1e-6])
    time, spread = adapt(prior, FEATURES[:3], latency).predict(FEATURES)
    assert time.min() > 0.0 and np.isfinite(spread).all()


def test_more_networks_leave_less_open(prior: Prior) -> None:
    latency = device((0.2, 0.6, 0.2))
    spreads = [np.median(adapt(prior, FEATURES[:k], latency[:k]).predict(FEATURES[300:])[1]) for k in (1, 3, 10, 100)]
    assert spreads == sorted(spreads, reverse=True)


def test_without_a_device_the_ideal_ones_stay(prior: Prior) -> None:
    others = prior.without(["cpu"])
    assert others.devices == ("gpu", "phone") and len(others.coefficients) == 2 + 3
    assert others.coefficients[-3:].tolist() == prior.coefficients[-3:].tolist()
    assert others.latency("phone", FEATURES[:5]) == pytest.approx(prior.latency("phone", FEATURES[:5]))
