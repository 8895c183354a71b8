"""Percentiles: the gamma tail beside SciPy's, their order, and their derivative."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.stats

from jaxperf.core.numerics import as_float
from jaxperf.serving.queueing.engine import Engine, Load, chunked
from jaxperf.serving.queueing.lengths import lengths_as
from jaxperf.serving.queueing.tail import gamma_tail, solved
from tests.serving.queueing.engines import most_of, percentiles, steady, straight_law

LENGTHS = {"kind": "uniform", "low": 16, "high": 2000}, {"kind": "uniform", "low": 10, "high": 400}


@pytest.mark.parametrize("shape", [0.5, 1.0, 3.0, 40.0])
def test_the_gamma_tail_is_scipys(shape: float) -> None:
    x = np.linspace(0.2, 8.0, 100)
    found = gamma_tail(as_float(x), as_float(1.0), as_float(1.0 / shape))
    np.testing.assert_allclose(found, scipy.stats.gamma.sf(x, shape, scale=1.0 / shape), atol=0.012)
    assert float(gamma_tail(as_float(-1.0), as_float(1.0), as_float(1.0))) == 1.0


def run(rate: float, level: float):
    """Means by name, and percentiles."""
    load = Load(rate, *map(lengths_as, LENGTHS))
    state = steady(chunked, straight_law(), load, Engine(128.0, 2048.0))
    means = {name: getattr(state, name) for name in ("ttft", "tpot", "e2e")}
    return means, percentiles(state, load, as_float(level))


def test_percentiles_are_in_order() -> None:
    levels = [run(12.0, level) for level in (0.5, 0.9, 0.99)]
    for name in ("ttft", "tpot", "e2e"):
        found = [float(each[1][name]) for each in levels]
        assert found[0] < found[1] < found[2]
        assert found[0] < 1.5 * float(levels[0][0][name]) < 1.5 * found[2]


def test_a_percentile_solves_its_equation_and_so_does_its_derivative() -> None:
    def quantile(mean):
        return solved(lambda x: gamma_tail(x, mean, 0.3 * mean), mean, 0.9)

    mean, step = as_float(0.7), 1e-4
    x, slope = jax.jit(jax.value_and_grad(quantile))(mean)
    assert float(gamma_tail(x, mean, 0.3 * mean)) == pytest.approx(0.1, rel=1e-6)
    assert float(slope) == pytest.approx(float(quantile(mean + step) - quantile(mean - step)) / (2.0 * step), rel=1e-4)


def test_an_overloaded_engine_has_none() -> None:
    means, tails = run(500.0, 0.99)
    assert all(np.isnan(float(value)) for value in (*means.values(), *tails.values()))


@pytest.mark.parametrize("rate", [1e-5, 1e-3, 1.0])
def test_a_percentile_of_an_engine_that_is_hardly_used_is_that_of_its_prompts(rate: float) -> None:
    """Lengths in classes: between two of them the tail is flat."""
    means, tails = run(rate, 0.99)
    assert float(means["ttft"]) < float(tails["ttft"]) < 2.5 * float(means["ttft"])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_request_of_one_token_ends_with_its_first(share: float) -> None:
    """Long prompts: most find nothing and take their own steps, few wait for another's; a gamma has neither."""
    prompt, ends = lengths_as({"kind": "fixed", "value": 8000}), []
    for tokens in (1, 2):
        lengths, engine = (prompt, lengths_as({"kind": "fixed", "value": tokens})), Engine(128.0, 2048.0)
        load = Load(share * most_of(chunked, straight_law(), lengths, engine), *lengths)
        ends.append(percentiles(steady(chunked, straight_law(), load, engine), load, as_float(0.99)))
    assert float(ends[0]["e2e"]) == pytest.approx(float(ends[0]["ttft"]), rel=1e-4)
    assert float(ends[1]["ttft"]) < float(ends[1]["e2e"]) < 1.1 * float(ends[1]["ttft"])
