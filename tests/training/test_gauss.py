"""Both tails of a normal score, and the grid that is read without a search."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from jaxperf.core.numerics import as_float
from jaxperf.training.stochastic.gauss import log_cdf, tails
from jaxperf.training.stochastic.grid import evenly

SCORES = np.linspace(-30.0, 30.0, 241)


def test_each_tail_is_precise_where_it_is_small() -> None:
    lower, upper = tails(as_float(SCORES))
    np.testing.assert_allclose(lower, ndtr(SCORES), rtol=1e-12)
    np.testing.assert_allclose(upper, ndtr(-SCORES), rtol=1e-12)
    np.testing.assert_allclose(log_cdf(as_float(SCORES)), log_ndtr(SCORES), rtol=1e-11)


@pytest.mark.parametrize("score", [-1e-9, 0.0, 1e-9])
def test_slopes_meet_where_the_branches_do(score: float) -> None:
    density = 1.0 / np.sqrt(2.0 * np.pi)
    np.testing.assert_allclose(jax.jacobian(tails)(as_float(score)), (density, -density), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(log_cdf)(as_float(score)), 2.0 * density, rtol=1e-8)


@given(
    start=st.floats(-1e3, 1e3),
    width=st.floats(1e-3, 1e3),
    inside=st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=5),
    values=st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=9),
)
def test_an_even_grid_is_read_as_interp_reads_it(
    start: float, width: float, inside: list[float], values: list[float]
) -> None:
    grid = start + width * np.linspace(0.0, 1.0, len(values))
    x = start + width * np.asarray(inside)
    ours = evenly(jnp.asarray(x), jnp.asarray(grid), jnp.asarray(values))
    np.testing.assert_allclose(ours, np.interp(x, grid, values), rtol=1e-9, atol=1e-6)
