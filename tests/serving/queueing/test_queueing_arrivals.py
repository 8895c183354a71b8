"""Bursts: what an arrival finds, beside drawn arrivals, GI/M/1's root, Lindley's recursion and the simulator."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.serving.plan.points import Traffic
from jaxperf.serving.plan.request import Request
from jaxperf.serving.queueing.arrivals import after_arrival, cluster, queue_found
from jaxperf.serving.queueing.engine import Engine, Load, chunked
from jaxperf.serving.queueing.lengths import lengths_as, lengths_of
from jaxperf.serving.queueing.pools import no_prompts
from jaxperf.serving.simulator.workloads import draw_lengths
from tests.serving.queueing.engines import even_law, percentiles, steady


def test_what_many_engines_are_given_at_random_is_less_bursty() -> None:
    """c^2 of what each of k is given is 1 + (c^2 - 1) / k: drawn, and what a plan's engines are asked for."""
    request = Request(load_model("gpt2"), 100, 10, {}, ["bf16"], arrival_cv=3.0)
    traffic = Traffic(*request.lengths(), request.arrival_variation)
    assert float(traffic.at(1.0).variation) == 9.0
    times = np.cumsum(gaps(9.0, 1.0, 800_000))
    between = np.diff(times[np.random.default_rng(7).random(len(times)) < 0.25])
    assert float(traffic.at(1.0, 4.0).variation) == 3.0
    assert between.var() / between.mean() ** 2 == pytest.approx(3.0, rel=0.05)


def gaps(variation: float, rate: float, count: int) -> np.ndarray:
    return np.random.default_rng(5).gamma(1.0 / variation, variation / rate, count)


@pytest.mark.parametrize("variation", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("expected", [0.1, 1.0, 10.0])
def test_what_comes_after_an_arrival_is_what_is_drawn(variation: float, expected: float) -> None:
    times = np.concatenate([[0.0], np.cumsum(gaps(variation, 1.0, 400_000))])[:300_000]
    ends = times + np.random.default_rng(6).exponential(expected, len(times))
    drawn = (np.searchsorted(times, ends[:200_000]) - 1 - np.arange(200_000)).mean()
    assert float(after_arrival(as_float(expected), as_float(variation))) == pytest.approx(drawn, rel=0.05)


def test_a_cluster_has_half_of_what_varies_more_than_poissons() -> None:
    for variation in (0.25, 1.0, 4.0, 9.0):
        found = float(cluster(as_float(1e5), as_float(variation)))
        assert found == pytest.approx(0.5 * (variation - 1.0), abs=1e-3)


@pytest.mark.parametrize("variation", [0.25, 1.0, 2.25, 4.0, 9.0, 25.0])
def test_the_queue_in_front_of_exponential_work_is_the_root(variation: float) -> None:
    for utilization in (0.1, 0.3, 0.5, 0.7, 0.9, 0.98):
        rest = lambda busy, rho=utilization: busy - (1.0 + variation / rho * (1.0 - busy)) ** (-1.0 / variation)  # noqa: E731
        busy = scipy.optimize.root_scalar(rest, bracket=(0.0, 1.0 - 1e-7)).root
        found = float(queue_found(as_float(utilization), as_float(variation)))
        assert found == pytest.approx(busy / (1.0 - busy), rel=0.02 if variation < 1.0 else 0.005)


@pytest.mark.parametrize(("variation", "at_the_end"), [(4.0, 0.2), (9.0, 0.3)])
def test_prompts_of_one_step_each_wait_as_lindley_says(variation: float, at_the_end: float) -> None:
    """W' = max(W + S - gap, 0), where a step is one prompt and nothing else: light loads' 99th percentiles are low."""
    service, prompt, one = 0.1, lengths_as({"kind": "fixed", "value": 1000}), lengths_as({"kind": "fixed", "value": 1})
    law = even_law(1e-6, (0.0,) * 3, (0.0, service / 1000, 0.0, 0.0, 0.0))
    for utilization in (0.1, 0.3, 0.6, 0.8):
        work = np.concatenate([[0.0], np.cumsum(service - gaps(variation, utilization / service, 400_000))])
        drawn = work - np.minimum.accumulate(work)
        load = Load(utilization / service, prompt, one, variation)
        found = steady(chunked, law, load, Engine(8.0, 1000.0))
        assert float(found.ttft) - service == pytest.approx(drawn.mean(), rel=0.06)
        assert float(found.meets) == pytest.approx((drawn > 0.0).mean(), rel=0.06)
        end = float(percentiles(found, load, as_float(0.99))["ttft"]) - service
        assert end == pytest.approx(np.quantile(drawn, 0.99), rel=at_the_end)


def test_arrivals_of_no_stated_variation_are_poissons() -> None:
    """The equations without bursts are those with a coefficient of variation of 1, latencies and percentiles alike."""
    law = even_law(1e-3, (1e-4, 1e-5, 1e-9), (0.0, 1e-5, 0.0, 0.0, 0.0))
    prompt, output = (lengths_as({"kind": "uniform", "low": 10, "high": high}) for high in (2000, 400))
    loads = [Load(rate, prompt, output, variation) for rate in (1.0, 40.0) for variation in (None, 1.0)]
    found = [(steady(chunked, law, load, Engine(64.0, 1000.0)), load) for load in loads]
    seen = np.array([[s.ttft, s.tpot, s.meets, *percentiles(s, load, as_float(0.99)).values()] for s, load in found])
    assert np.isfinite(seen).all() and seen[::2] == pytest.approx(seen[1::2], rel=1e-5)


@pytest.mark.parametrize("variation", [0.25, 4.0])
def test_the_number_in_decode_varies_as_drawn_arrivals_do(variation: float) -> None:
    """Steps of one length and outputs of another: N is how many came in a life."""
    step, rate, output = 1e-2, 20.0, 201
    law, kind = even_law(step, (0.0,) * 3, (0.0,) * 5), {"kind": "fixed", "value": output}
    found = steady(no_prompts, law, Load(rate, lengths_as(kind), lengths_as(kind), variation), Engine(1e6, 8192.0))
    times = np.cumsum(gaps(variation, rate, 400_000))
    drawn = np.histogram(times, np.arange(0.0, times[-1], step * (output - 1)))[0]
    assert float(found.batch) == pytest.approx(drawn.mean(), rel=0.02)
    assert float(found.spread) == pytest.approx(drawn.var(), rel=0.1)


def test_two_lives_are_together_for_the_shorter_one() -> None:
    assert float(lengths_as({"kind": "fixed", "value": 300}).together) == pytest.approx(1.0)
    assert float(lengths_as({"kind": "uniform", "low": 1, "high": 2000}).together) == pytest.approx(2.0 / 3.0, rel=0.05)
    exponential = 1.0 + np.random.default_rng(7).exponential(1000.0, 20_000)
    assert float(lengths_of(exponential).together) == pytest.approx(0.5, rel=0.1)


def test_classes_keep_what_long_tails_do_to_queues() -> None:
    """Third moments, and the shorter of two."""
    values = draw_lengths(np.random.default_rng(0), {"kind": "lognormal", "mean": 300, "cv": 1.5}, 1 << 14, "lengths")
    lengths, values = lengths_of(values), values.astype(float)
    third = jnp.sum(lengths.share * (lengths.tokens**3 + 3.0 * lengths.tokens * lengths.inside(lengths.tokens)))
    assert float(third) == pytest.approx(np.mean(values**3), rel=0.05)
    shorter = np.minimum(values, np.random.default_rng(1).permutation(values)).mean()
    assert float(lengths.together) == pytest.approx(shorter / values.mean(), rel=0.02)
