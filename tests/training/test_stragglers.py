"""The slowest of equal ranks: against exact means, sampling, and the distribution of a whole step."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import log_ndtr

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.model_build import training_model
from jaxperf.training.search.terms import METRICS
from jaxperf.training.step import training_step
from jaxperf.training.stochastic.cluster import Variation, assumed_variation, step_distribution
from jaxperf.training.stochastic.grid import moments
from jaxperf.training.stochastic.step import synchronization
from jaxperf.training.stragglers import slowest_score, straggling_time
from tests.devices import H100, QUICK

SPREAD = float(assumed_training_efficiencies().rank_spread)


def exact_mean(ranks: float) -> float:
    """The mean of the largest of `ranks` standard normals, by quadrature of n phi Phi^(n - 1)."""
    x = jnp.linspace(-9.0, 14.0, 20001)
    density = ranks * jnp.exp(-0.5 * x * x + (ranks - 1.0) * log_ndtr(x)) / math.sqrt(2.0 * math.pi)
    return float(jnp.trapezoid(x * density, x))


@pytest.mark.parametrize(
    ("ranks", "tolerance"), [(2, 0.05), (3, 0.03), (8, 0.01), (64, 0.01), (4096, 0.01), (1e5, 0.01)]
)
def test_the_mean_of_the_slowest(ranks: float, tolerance: float) -> None:
    found = float(slowest_score(as_float(ranks)))
    assert found == pytest.approx(exact_mean(ranks), rel=tolerance)
    assert found < math.sqrt(2.0 * math.log(ranks))


def test_one_rank_waits_for_nobody_and_slopes_are_finite() -> None:
    assert float(straggling_time(as_float(3.0), as_float(1.0), as_float(0.05))) == pytest.approx(0.0, abs=1e-12)
    slopes = jax.grad(straggling_time, argnums=(0, 1, 2))(as_float(3.0), as_float(1.0), as_float(0.05))
    assert all(np.isfinite(float(slope)) for slope in slopes) and float(slopes[1]) > 0.0


step = jax.jit(training_step, compiler_options=QUICK)
MODEL = training_model(load_model("llama-3-8b"))


def step_terms(**fields: Any) -> tuple[dict[str, jax.Array], Layout]:
    """The metrics of a step of a small model by their names, and its layout."""
    layout = training_layout(global_batch=512, sequence=4096, **fields)
    found = step(MODEL, layout, H100, assumed_training_efficiencies())
    return {name: functools.reduce(getattr, name.split("."), found) for name in METRICS}, layout


@pytest.mark.long
@pytest.mark.parametrize(
    "fields", [{"data": 64.0, "zero": 1.0}, {"data": 32.0, "tensor": 8.0}, {"data": 8.0, "pipeline": 8.0}]
)
def test_the_step_and_its_distribution_wait_as_long(fields: dict[str, float]) -> None:
    """One rank spread feeds both: the mean of the distribution without other variation is the step's time."""
    terms, layout = step_terms(**fields)
    waits = synchronization(MODEL.layers, layout, terms)
    time, straggling = float(terms["time"]), float(terms["straggling"])
    assert float(waits.nominal) == pytest.approx(time - straggling, rel=1e-9)
    still = Variation(static=SPREAD, dynamic=0.0, common=0.0, network=0.0, domain=jnp.inf)
    mean, _ = moments(jax.jit(step_distribution)(waits, still))
    assert float(mean - waits.nominal) == pytest.approx(straggling, rel=0.1)
    assert float(mean) == pytest.approx(time, rel=0.01)


def test_the_assumed_spread_is_one_number() -> None:
    assert float(assumed_variation().static) == SPREAD
    ends = [float(assumed_variation(level).static) for level in (0, 2)]
    assert ends == [float(assumed_training_efficiencies(level).rank_spread) for level in ("high", "low")]


def test_more_ranks_never_wait_less() -> None:
    terms = [step_terms(data=float(n))[0] for n in (1, 2, 8, 64)]
    shares = [float(row["straggling"] / (row["unchecked_time"] - row["straggling"])) for row in terms]
    assert shares == sorted(shares) and shares[0] == pytest.approx(0.0, abs=1e-12)
