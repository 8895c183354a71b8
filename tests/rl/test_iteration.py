"""Phases and the iteration they make: closed forms, limits, slopes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.device import load_device
from jaxperf.core.numerics import as_float
from jaxperf.rl.iteration import Phases, iteration_time
from jaxperf.rl.phases import gathered_beside, gathering_time, scoring_time, sending_time

SECONDS = st.floats(0.0, 1e4)
WEIGHTS = 14e9


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_beside_one_another_is_between_the_longest_and_the_sum(
    generate: float, score: float, train: float, weights: float
) -> None:
    phases = Phases(generate, score, train, weights)
    serial, beside = (float(iteration_time(phases, as_float(ahead))) for ahead in (0.0, 1.0))
    assert serial == pytest.approx(generate + score + train + weights)
    assert beside == pytest.approx(max(generate, score + train) + weights)
    assert beside <= serial * (1 + 1e-12)


def test_slopes_are_those_of_the_longer_side() -> None:
    slope = jax.grad(lambda seconds: iteration_time(Phases(seconds, 1.0, 2.0, 0.5), as_float(1.0)))
    assert (float(slope(as_float(5.0))), float(slope(as_float(1.0)))) == (1.0, 0.0)


def test_a_pipeline_scores_like_one_that_is_filled_once() -> None:
    assert float(scoring_time(as_float(8.0), as_float(2.0), as_float(5.0))) == 8.0 + 4 * 2.0
    assert float(scoring_time(as_float(8.0), as_float(2.0), as_float(0.0))) == 0.0


def test_weights_in_as_many_parts_or_more_do_not_move() -> None:
    device = load_device("h100-sxm")
    for trained, generating in ((2, 2), (1, 4), (2, 8)):
        assert float(gathering_time(device, *map(as_float, (WEIGHTS, trained, generating)))) == 0.0


def test_gathering_is_an_all_gather_of_the_ranks_that_have_the_parts() -> None:
    """Inside a node alpha + (k - 1) / k S / B with S = W / parts of a replica."""
    device = load_device("h100-sxm")
    found = float(gathering_time(device, *map(as_float, (WEIGHTS, 8.0, 2.0))))
    size, ranks = WEIGHTS / 2, 4
    expected = device.link_latency + (ranks - 1) / ranks * size / device.link_bandwidth
    assert found == pytest.approx(float(expected), rel=1e-6)


def test_sending_is_bound_by_a_replicas_own_ports_and_grows_little_with_their_number() -> None:
    device = load_device("h100-sxm")

    def time(parts: float, replicas: float) -> float:
        return float(sending_time(device, *map(as_float, (WEIGHTS, parts, replicas, 64.0))))

    least = WEIGHTS / 4 / float(device.network_bandwidth)
    assert least < time(4, 2) < time(4, 8) < 1.2 * least
    assert time(2, 2) > 1.9 * time(4, 2)


def test_in_one_node_weights_go_over_its_links() -> None:
    device = load_device("h100-sxm")
    here, there = (float(sending_time(device, *map(as_float, (WEIGHTS, 4.0, 1.0, each)))) for each in (8.0, 16.0))
    ratio = float(device.link_bandwidth / device.network_bandwidth)
    assert there / here == pytest.approx(ratio, rel=0.01)


def test_gathering_beside_a_pass_is_the_longer_of_both() -> None:
    device, ranks, one = load_device("h100-sxm"), as_float(8.0), as_float(1.0)
    alone = gathered_beside(as_float(0.0), device, as_float(WEIGHTS), ranks, one)
    assert float(alone) > 0.0
    assert float(gathered_beside(2 * alone, device, as_float(WEIGHTS), ranks, one)) == 2 * float(alone)
    slope = jax.grad(
        lambda rate: gathered_beside(as_float(0.0), device.replace(link_bandwidth=rate), as_float(WEIGHTS), ranks, one)
    )
    assert float(slope(device.link_bandwidth)) < 0.0
    assert bool(jnp.isfinite(slope(device.link_bandwidth)))
