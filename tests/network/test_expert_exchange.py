"""The exchange of tokens with experts: copies, imbalance and times against counting and hand evaluation."""

from __future__ import annotations

import itertools
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.network.expert_exchange import (
    FP8_BYTES,
    ExpertGroup,
    exchange_time,
    expected_hits,
    low_latency_exchange_time,
    remote_copies,
    uniform_imbalance,
)


def group(ranks: float, nodes: float = 1.0) -> ExpertGroup:
    return ExpertGroup(*map(as_float, (ranks, nodes, 400e9, 50e9, 20e-6)))


@given(st.integers(1, 5), st.integers(1, 5))
def test_expected_hits_counts_every_draw(bins: int, draws: int) -> None:
    exact = np.mean([len(set(each)) for each in itertools.product(range(bins), repeat=draws)])
    assert float(expected_hits(as_float(bins), as_float(draws))) == pytest.approx(exact, rel=1e-12)


@given(st.integers(1, 64), st.integers(1, 32))
def test_expected_hits_is_exact_for_many_bins(bins: int, draws: int) -> None:
    exact = bins * (1 - Fraction(bins - 1, bins) ** draws)
    assert float(expected_hits(as_float(bins), as_float(draws))) == pytest.approx(float(exact), rel=1e-9)


def test_a_single_bin_has_no_slope() -> None:
    assert jax.grad(expected_hits, argnums=1)(as_float(1.0), as_float(8.0)) == 0.0


def test_eight_ranks_and_eight_experts_give_about_four_and_a_half_remote_copies() -> None:
    # 8 (1 - (7/8)^8) = 5.25 ranks are hit, of which 7/8 are remote.
    assert float(remote_copies(as_float(8), as_float(8))) == pytest.approx(4.595, abs=5e-4)


def test_the_busiest_receiver_against_monte_carlo() -> None:
    # 64 ranks, 128 tokens of each to 8 experts: busiest over mean is 1.07; the extreme of Gaussians lies just above.
    loads = np.random.default_rng(0).multinomial(64 * 128 * 8, np.full(64, 1 / 64), size=300)
    simulated = (loads.max(axis=1) / loads.mean(axis=1)).mean()
    assert simulated == pytest.approx(1.07, abs=0.005)
    found = float(uniform_imbalance(as_float(64), as_float(128), as_float(8)))
    assert simulated <= found <= simulated + 0.02


def test_a_normal_exchange_by_hand() -> None:
    # One node: every hit rank but the own place; 20 us and 1000 x 14336 x 5.25 x 7/8 bytes at 400 GB/s.
    hits = 8 * (1 - (7 / 8) ** 8)
    load = (as_float(1000.0), as_float(14336.0), as_float(8.0), as_float(1.0))
    time = float(exchange_time(group(8.0), *load, as_float(1.0)))
    assert time == pytest.approx(20e-6 + 1000 * 14336 * hits * 7 / 8 / 400e9, rel=1e-12)
    # Four nodes: 4 (1 - (3/4)^8) nodes are hit, 3/4 of them remote, one copy each at 50 GB/s.
    nodes = 4 * (1 - 0.75**8)
    far = float(exchange_time(group(32.0, 4.0), *load, as_float(4.0)))
    assert far == pytest.approx(20e-6 + 1000 * 14336 * nodes * 0.75 / 50e9, rel=1e-12)
    limited = float(exchange_time(group(32.0, 4.0), *load, as_float(2.0)))
    assert limited == pytest.approx(20e-6 + 1000 * 14336 * 2 * 0.75 / 50e9, rel=1e-12)


def test_few_cores_bound_a_normal_exchange_by_all_that_they_copy() -> None:
    # Two nodes of eight at 50 GB/s of cores: copies for both nodes and those of 16 (1 - (15/16)^8) ranks.
    load = (as_float(1000.0), as_float(14336.0), as_float(8.0), as_float(1.0))
    copies = 2 * (1 - 0.5**8) + 16 * (1 - (15 / 16) ** 8)
    time = float(exchange_time(group(16.0, 2.0), *load, as_float(2.0), as_float(50e9)))
    assert time == pytest.approx(20e-6 + 1000 * 14336 * copies / 50e9, rel=1e-12)
    # In one node there are no copies for nodes.
    near = float(exchange_time(group(8.0), *load, as_float(1.0), as_float(50e9)))
    assert near == pytest.approx(20e-6 + 1000 * 14336 * 8 * (1 - (7 / 8) ** 8) / 50e9, rel=1e-12)


def test_a_low_latency_exchange_sends_a_copy_to_each_expert() -> None:
    load = (as_float(100.0), as_float(7168 * FP8_BYTES), as_float(8.0), as_float(1.0))
    time = float(low_latency_exchange_time(group(16.0, 2.0), *load))
    across = 100 * 8 * 7168 * FP8_BYTES * 8 / 16 / 50e9
    assert time == pytest.approx(20e-6 + across, rel=1e-12)


def test_dispatch_in_fp8_moves_about_half_of_a_combine() -> None:
    assert pytest.approx(7168 + 4 * 7168 / 128) == 7168 * FP8_BYTES


def test_one_rank_exchanges_nothing_and_gradients_are_finite() -> None:
    load = (as_float(8.0), as_float(2.0), as_float(1.0))
    assert float(exchange_time(group(1.0), as_float(10.0), *load, as_float(1.0))) == 0.0

    def time(tokens):
        phi = uniform_imbalance(as_float(1.0), tokens, as_float(1.0))
        return exchange_time(group(1.0), tokens, as_float(8.0), as_float(1.0), phi, as_float(1.0))

    assert np.isfinite(float(jax.grad(time)(as_float(10.0))))
