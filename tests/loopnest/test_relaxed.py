"""The relaxed map space: exact values, the slopes of the softmax behind them, and none from what is without limit."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.loopnest.constraints import LevelConstraints
from jaxperf.loopnest.mapspace import MapSpace, build_space, factors_of
from jaxperf.loopnest.relaxed import _straight_factors, most_slots, over, stationary_orders
from jaxperf.loopnest.shapes import gemm


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    """Slopes are compared with differences, which takes 64 bits."""
    with jax.enable_x64(True):
        yield


def space() -> MapSpace:
    problem, names = gemm(12.0, 5.0, 8.0)
    limits = {
        "memory": LevelConstraints(mesh_x=4, spatial_x=("M",)),
        "registers": LevelConstraints(temporal=("M", "K")),
    }
    return build_space(problem, names, ("registers", "memory"), ((True,) * 3,) * 2, limits)


def factor_logs(logits: jax.Array) -> jax.Array:
    """ln of all factors, slot after slot."""
    return jnp.stack([jnp.log(factor) for row in _straight_factors(space(), logits)[1] for factor in row])


def mean_logs(logits: np.ndarray) -> np.ndarray:
    """Mean of ln prime in every slot, for primes that are in each with the softmax of their logits."""
    at, found = space(), []
    for d, slots in enumerate(at.structure.slots):
        shares = np.exp(logits[d, :, : len(slots)])
        shares /= shares.sum(axis=-1, keepdims=True)
        found.append(np.log(np.asarray(at.primes[d])) @ shares)
    return np.concatenate(found)


@settings(max_examples=4)
@given(st.integers(0, 10**6))
def test_values_are_exact_and_slopes_are_of_the_mean(seed: int) -> None:
    at, rng = space(), np.random.default_rng(seed)
    logits = rng.normal(size=(*at.primes.shape, most_slots(at)))
    place, factors = _straight_factors(at, jnp.asarray(logits))
    for row, exact, bound in zip(factors, factors_of(at, place), (1, 12, 5, 8), strict=True):
        assert [float(each) for each in row] == [float(each) for each in exact]
        assert np.prod([float(each) for each in row]) == bound
    direction = rng.normal(size=logits.shape)
    _, slope = jax.jvp(factor_logs, (jnp.asarray(logits),), (jnp.asarray(direction),))
    step = 1e-6 * direction
    difference = (mean_logs(logits + step) - mean_logs(logits - step)) / 2e-6
    assert np.asarray(slope) == pytest.approx(difference, abs=1e-8)


def test_what_is_without_limit_has_no_slope() -> None:
    for there, beyond, slope in ((jnp.inf, 0.0, 0.0), (2.0, np.log(1.5), 1.0 / 3.0), (4.0, 0.0, 0.0)):
        value, found = jax.value_and_grad(over)(jnp.asarray(3.0), jnp.asarray(there))
        assert float(value) == pytest.approx(beyond) and float(found) == pytest.approx(slope)


def test_an_order_for_every_operand_that_may_stay() -> None:
    problem, names = gemm(12.0, 5.0, 8.0)
    innermost = {names.dimensions[int(np.argmin(ranks))] for ranks in stationary_orders(problem)}
    assert innermost == {"M", "N", "K"}  # B, A and Z stay while these run; B of the batch indexes all three
