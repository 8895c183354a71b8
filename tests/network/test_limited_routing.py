"""Routing limited to groups of experts: the bins a token is sent to, by enumeration and by drawing."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from jaxtyping import Array

from jaxperf.core.numerics import as_float
from jaxperf.network.expert_exchange import exchange_pass, expected_hits, token_hits
from jaxperf.network.limited_routing import GroupLimit, hits_table, limited_hits
from jaxperf.network.link import Fabric

V3, V2 = GroupLimit(256, 8, 8, 4), GroupLimit(160, 6, 8, 3)  # arXiv:2412.19437 and arXiv:2405.04434


def table(limit: GroupLimit) -> Array:
    return as_float(hits_table(limit))


def enumerated(limit: GroupLimit, bins: int) -> float:
    """The mean of distinct bins over all choices of groups and of experts in them."""
    each = limit.experts // limit.groups
    found = []
    for groups in itertools.combinations(range(limit.groups), limit.allowed):
        pool = [group * each + one for group in groups for one in range(each)]
        found += [len({e * bins // limit.experts for e in it}) for it in itertools.combinations(pool, limit.chosen)]
    return float(np.mean(found))


def drawn(limit: GroupLimit, bins: int, best: int = 0, tokens: int = 4000) -> float:
    """The mean over tokens with independent scores; groups are drawn, or those with the highest `best` scores."""
    random = np.random.default_rng(0)
    scores = random.random((tokens, limit.groups, limit.experts // limit.groups))
    ranked = np.sort(scores, axis=2)[:, :, -best:].sum(2) if best else random.random((tokens, limit.groups))
    rank = np.argsort(np.argsort(-ranked, axis=1), axis=1)
    scores[rank >= limit.allowed] = -1.0
    chosen = np.argsort(-scores.reshape(tokens, -1), axis=1)[:, : limit.chosen]
    return float(np.mean([len(set(row)) for row in chosen * bins // limit.experts]))


@pytest.mark.parametrize("limit", [GroupLimit(12, 3, 4, 2), GroupLimit(12, 4, 3, 2), GroupLimit(12, 2, 6, 1)])
@pytest.mark.parametrize("bins", [1, 2, 3, 4, 6, 12])
def test_every_choice_of_groups_and_experts_is_counted(limit: GroupLimit, bins: int) -> None:
    """Bins of several groups, parts of groups, and bins that straddle them: 4 of 12 experts, groups of 3."""
    assert float(limited_hits(table(limit), as_float(bins))) == pytest.approx(enumerated(limit, bins), rel=1e-12)


@pytest.mark.parametrize("limit", [V3, V2])
@pytest.mark.parametrize("bins", [2, 4, 5, 8, 16, 32])
def test_deepseek_by_drawing(limit: GroupLimit, bins: int) -> None:
    assert float(limited_hits(table(limit), as_float(bins))) == pytest.approx(drawn(limit, bins), rel=0.01)


@pytest.mark.parametrize(("limit", "best"), [(V3, 2), (V2, 1)])
def test_groups_chosen_for_their_best_experts_hit_a_little_more(limit: GroupLimit, best: int) -> None:
    """As the routers do (the two best of V3, the best of V2), were scores independent."""
    for bins in (4, 8, 32):
        share = drawn(limit, bins, best) / float(limited_hits(table(limit), as_float(bins)))
        assert 1.0 < share < 1.1


def test_a_token_of_deepseek_v3_is_sent_to_four_nodes_at_most() -> None:
    # 4 (1 - C(96, 8) / C(128, 8)) of 8 nodes, where even draws hit 5.25; each expert in a bin of its own.
    hits = [float(token_hits(as_float(bins), as_float(8.0), table(V3))) for bins in (1, 8, 256, 1000)]
    assert hits == pytest.approx([1.0, 3.62901, 8.0, 8.0], abs=1e-5)
    assert float(token_hits(as_float(8.0), as_float(8.0))) == pytest.approx(5.25, abs=0.01)


def test_a_limit_that_allows_all_groups_is_even_choice_without_replacement() -> None:
    # 8 (1 - C(28, 4) / C(32, 4)).
    found = float(limited_hits(table(GroupLimit(32, 4, 8, 8)), as_float(8.0)))
    assert found == pytest.approx(8 * (1 - 28 * 27 * 26 * 25 / (32 * 31 * 30 * 29)), rel=1e-12)


def test_an_exchange_between_nodes_is_shorter_by_the_copies_that_are_not_sent() -> None:
    fabric = Fabric(*map(as_float, (8.0, 8.0, 450e9, 3e-6, 50e9, 8e-6, 0.0, 1.0)))
    plain, kept = (
        float(exchange_pass(fabric, as_float(1e9), as_float(8.0), 1.0, table=each)) for each in (None, table(V3))
    )
    share = float(limited_hits(table(V3), as_float(8.0)) / expected_hits(as_float(8.0), as_float(8.0)))
    assert kept - 8e-6 == pytest.approx((plain - 8e-6) * share, rel=1e-12)
    each = (float(exchange_pass(fabric, as_float(1e9), as_float(8.0), table=each)) for each in (None, table(V3)))
    assert len(set(each)) == 1  # a copy to each expert is one whatever the groups


def test_slopes_are_finite() -> None:
    slopes = jax.vmap(jax.grad(lambda bins: limited_hits(table(V3), bins)))(as_float([1.0, 2.0, 8.0, 256.0, 300.0]))
    assert np.isfinite(np.asarray(slopes)).all()
