"""Wide expert parallelism: copies of hot experts and their packing."""

from __future__ import annotations

import functools
import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.models.blocks.moe import MoeFfn
from jaxperf.models.blocks.phase import Decode
from jaxperf.models.transformer import layer_kernels
from jaxperf.serving.techniques.chosen import Techniques
from jaxperf.serving.techniques.serve import technique_cost
from jaxperf.serving.techniques.wide_experts import (
    ExpertCopies,
    balanced_skew,
    expert_copies,
    hottest_share,
    imbalance,
    rank_loads,
    with_copies,
    zipf_load,
)
from jaxperf.sweeps.once import evaluate_once, host_first
from tests.devices import H100, QUICK, deployment, model

loads = st.lists(st.floats(0.1, 10.0), min_size=8, max_size=8)
MIXTRAL = model("mixtral-8x7b")
ROOMY = H100.replace(memory_capacity=4e12)
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


@pytest.mark.parametrize("skew", [1.0, 1.3, 1.9])
def test_the_rank_of_the_hottest_expert_has_the_skew_over_all_placements(skew: float) -> None:
    """Six experts on two ranks, every placement once."""
    load = np.asarray(zipf_load(6, hottest_share(6, 2, as_float(skew))))
    assert load.sum() == pytest.approx(1.0) and (np.diff(load) <= 1e-15).all()
    beside = [load[0] + load[list(others)].sum() for others in itertools.combinations(range(1, 6), 2)]
    assert 2 * np.mean(beside) == pytest.approx(skew, rel=1e-9)


def test_popularity_is_a_power_of_the_place() -> None:
    load = np.asarray(zipf_load(64, as_float(0.2)))
    slopes = np.diff(np.log(load)) / np.diff(np.log(np.arange(1, 65)))
    assert load[0] == pytest.approx(0.2, rel=1e-12) and np.ptp(slopes) < 1e-9


def test_copies_even_the_ranks_out_and_alike_experts_need_none() -> None:
    left = {
        (copies, skew): float(evaluate_once(jax.jit(functools.partial(balanced_skew, 64, 16, copies)), as_float(skew)))
        for copies in (16, 32)
        for skew in (1, 2)
    }
    assert left[16, 1] == left[32, 1] == pytest.approx(1.0, abs=1e-9)
    assert 1.0 <= left[32, 2] < left[16, 2] < 1.2


def test_the_gradient_of_what_is_left_is_that_of_finite_differences() -> None:
    left = jax.jit(jax.value_and_grad(functools.partial(balanced_skew, 16, 4, 4)))
    step = 1e-5
    (less, _), (_, slope), (more, _), (_, even) = (
        evaluate_once(left, as_float(skew)) for skew in (3.0 - step, 3.0, 3.0 + step, 1.0)
    )
    assert float(slope) == pytest.approx((more - less) / (2 * step), rel=1e-5) and slope > 0.0
    assert np.isfinite(even)


def test_copies_of_alike_experts_change_nothing_but_the_weights_held_and_read() -> None:
    at, phase = deployment(ROOMY, data=8, expert=8), Decode(64.0, 1024.0)
    copied_at, copied = with_copies(at, MIXTRAL, ExpertCopies(8, 1, 1))
    plain, more = (layer_kernels(d, m.hidden, m.groups[0], phase) for d, m in ((at, MIXTRAL), (copied_at, copied)))
    weights = {"expert_up_projection", "expert_down_projection"}
    for name in plain.keys() - weights:
        assert float(more[name].time) == float(plain[name].time), name
    for name in weights:
        assert float(more[name].flops) == float(plain[name].flops)
        assert float(more[name].bytes_moved) > float(plain[name].bytes_moved)
    ffn, twice = MIXTRAL.groups[0].ffn, copied.groups[0].ffn
    assert isinstance(ffn, MoeFfn) and isinstance(twice, MoeFfn)
    held, held_twice = (float(each.matrix_elements(MIXTRAL.hidden, at.layout)) for each in (ffn, twice))
    assert held_twice == 2 * held and not bool(twice.uneven_experts(at.layout))
    assert bool(with_copies(at, MIXTRAL, ExpertCopies(3, 1, 1))[1].groups[0].ffn.uneven_experts(at.layout))  # type: ignore[union-attr]


def test_copies_of_hot_experts_make_requests_faster_and_memory_fuller() -> None:
    cost_of = host_first(jax.jit(technique_cost, compiler_options=QUICK))
    copies = Techniques(copies=ExpertCopies(8, 2.0, 1.01))
    at = deployment(ROOMY, data=16, expert=16)  # eight experts on sixteen ranks: only with copies
    cost, told = cost_of(at, MIXTRAL, copies, *map(as_float, (512, 2048, 64)))
    assert np.isnan(float(told["tpot_without_copies"])) and int(cost.reason) == 0
    cost, told = cost_of(deployment(ROOMY, data=16, expert=8), MIXTRAL, copies, *map(as_float, (512, 2048, 64)))
    assert float(cost.ttft) == float(told["plain_ttft"]) < float(told["ttft_without_copies"])
    expected = 32 * 3 * 4096 * 14336 * 2 / 2  # one more expert a rank, which two ranks share, in bf16
    assert float(told["copy_bytes"]) == pytest.approx(expected, rel=1e-9)
