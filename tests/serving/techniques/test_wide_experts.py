"""Wide expert parallelism: copies of hot experts and their packing."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.serving.techniques.wide_experts import expert_copies, imbalance, rank_loads

loads = st.lists(st.floats(0.1, 10.0), min_size=8, max_size=8)
packed = jax.jit(rank_loads, static_argnames=("ranks", "spare"))
copied = jax.jit(expert_copies, static_argnames="spare")


def packed_by_hand(load: list[float], ranks: int, spare: int) -> tuple[list[int], list[float]]:
    """Copies and ranks' loads, in plain Python."""
    copies = [1] * len(load)
    for _ in range(spare):
        each = [weight / count for weight, count in zip(load, copies, strict=True)]
        copies[each.index(max(each))] += 1
    weights = [weight / count for weight, count in zip(load, copies, strict=True) for _ in range(count)]
    found, room = [0.0] * ranks, [len(weights) // ranks] * ranks
    for weight in sorted(weights, reverse=True):
        free = [rank for rank in range(ranks) if room[rank]]
        rank = min(free, key=lambda rank: found[rank])
        found[rank], room[rank] = found[rank] + weight, room[rank] - 1
    return copies, found


@settings(max_examples=30)
@given(loads, st.sampled_from([(4, 4), (2, 6)]))
def test_copies_and_packing_are_those_of_plain_python(load: list[float], case: tuple[int, int]) -> None:
    ranks, spare = case
    copies, want = packed_by_hand(load, ranks, spare)
    assert np.asarray(copied(as_float(load), spare)).tolist() == copies
    np.testing.assert_allclose(np.sort(packed(as_float(load), ranks, spare)), np.sort(want), rtol=1e-9)


@settings(max_examples=30)
@given(loads)
def test_load_is_kept_and_no_rank_has_less_than_its_share_at_most(load: list[float]) -> None:
    found = np.asarray(packed(as_float(load), 4, 4))
    np.testing.assert_allclose(found.sum(), sum(load), rtol=1e-9)
    assert found.max() * 4 / sum(load) >= 1.0 - 1e-12


def test_equal_experts_are_balanced_and_one_hot_expert_is_split() -> None:
    assert float(imbalance(as_float([1.0] * 8), 4, 0)) == 1.0
    hot = as_float([9.0, *[1.0] * 7])
    without, with_copies = (float(imbalance(hot, 4, spare)) for spare in (0, 8))
    assert without == pytest.approx(10.0 * 4 / 16) and with_copies < 1.3


@pytest.mark.parametrize(("ranks", "spare"), [(3, 0), (4, 2), (4, -4), (0, 0)])
def test_slots_that_ranks_do_not_share_out_evenly_are_refused(ranks: int, spare: int) -> None:
    with pytest.raises(InputError, match="not shared out evenly"):
        imbalance(as_float([1.0] * 8), ranks, spare)
