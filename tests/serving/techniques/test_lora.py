"""LoRA: adapters a step meets, the bytes and FLOP of the two products, misses."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.network.expert_exchange import expected_hits
from jaxperf.serving.techniques.lora import (
    Adapters,
    adapter_bytes,
    adapter_kernels,
    adapters_there,
    distinct_adapters,
    miss_share,
    swap_time,
    zipf_popularity,
)
from tests.devices import QUICK, deployment, model

LLAMA = model("llama-3.1-8b")
kernels_of = jax.jit(adapter_kernels, compiler_options=QUICK)


def adapters(count: int = 8, loaded: float = 8, zipf: float = 0.0, everywhere: bool = False) -> Adapters:
    return Adapters(zipf_popularity(count, zipf), 16.0, loaded, 5e10, everywhere)


@given(st.sampled_from([2, 37]), st.integers(0, 200))
def test_equally_wanted_adapters_are_met_as_bins_are_hit(count: int, requests: int) -> None:
    found = distinct_adapters(zipf_popularity(count, 0.0), as_float(requests))
    np.testing.assert_allclose(found, expected_hits(as_float(count), as_float(requests)), rtol=1e-9, atol=1e-12)


@given(st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5), st.integers(1, 40))
def test_distinct_adapters_are_the_sum_of_the_chances(weights: list[float], requests: int) -> None:
    shares = np.array(weights) / sum(weights)
    want = sum(1.0 - (1.0 - share) ** requests for share in shares)
    np.testing.assert_allclose(distinct_adapters(as_float(shares), as_float(requests)), want, rtol=1e-9)


def test_an_adapter_of_a_published_model_has_its_published_size() -> None:
    """Rank 16 on queries, keys, values and outputs of Llama 3.1 8B: 13,631,488 parameters (as PEFT counts them)."""
    found = adapter_bytes(deployment(), LLAMA, adapters())
    each = 16 * (4096 + 4096) + 2 * 16 * (4096 + 1024) + 16 * (4096 + 4096)
    assert 32 * each == 13_631_488
    np.testing.assert_allclose(found, 2.0 * 32 * each, rtol=1e-12)


def test_everywhere_adds_the_feed_forward() -> None:
    """All seven projections: 41,943,040 parameters at rank 16, as PEFT counts them: up and gate have an A each."""
    found = adapter_bytes(deployment(), LLAMA, adapters(everywhere=True))
    attention, forward = 13_631_488, 32 * 16 * (2 * (4096 + 14336) + (14336 + 4096))
    assert attention + forward == 41_943_040
    np.testing.assert_allclose(found, 2.0 * (attention + forward), rtol=1e-12)


@pytest.mark.parametrize("tokens", [1.0, 64.0])
def test_products_count_the_flops_of_the_rank(tokens: float) -> None:
    """2 T r (3 h + (q + k + v)) and 2 T r (o + h) a layer."""
    found = kernels_of(deployment(), LLAMA, adapters(), as_float(tokens), as_float(tokens))
    shrink = 2.0 * tokens * 16 * (3 * 4096 + 4096) * 32
    expand = 2.0 * tokens * 16 * (4096 + 2 * 1024 + 4096) * 32
    np.testing.assert_allclose(found["lora_shrink"].flops, shrink, rtol=1e-9)
    np.testing.assert_allclose(found["lora_expand"].flops, expand, rtol=1e-9)
    assert float(found["lora_shrink"].launches) == 64.0


def test_one_adapter_for_all_is_read_once_and_many_are_read_each() -> None:
    tokens = as_float(64)
    one, many = (kernels_of(deployment(), LLAMA, adapters(count), tokens, tokens) for count in (1, 512))
    own = float(adapter_bytes(deployment(), LLAMA, adapters()))
    moved = [sum(float(cost.bytes_moved) for cost in each.values()) for each in (one, many)]
    distinct = float(distinct_adapters(zipf_popularity(512, 0.0), tokens))
    np.testing.assert_allclose(moved[1] - moved[0], (distinct - 1.0) * own, rtol=1e-6)


def test_the_least_popular_are_the_ones_that_are_not_loaded() -> None:
    given, alone = adapters(4, loaded=2, zipf=1.0), as_float(1.0)  # 12 : 6 : 4 : 3 of 25
    np.testing.assert_allclose(miss_share(given, alone), 7.0 / 25.0, rtol=1e-12)
    at = deployment()
    want = 7.0 / 25.0 * float(adapter_bytes(at, LLAMA, given)) / 5e10
    np.testing.assert_allclose(swap_time(at, LLAMA, given, alone), want, rtol=1e-12)
    assert float(miss_share(adapters(4, loaded=4, zipf=1.0), alone)) == 0.0


def test_what_a_running_request_uses_is_in_memory_and_not_loaded_again() -> None:
    """With two that stay of 12 : 6 : 4 : 3 of 25, three requests: each other is there if any of the three wants it."""
    given, three = adapters(4, loaded=2, zipf=1.0), as_float(3.0)
    chances = np.array([4.0, 3.0]) / 25.0
    np.testing.assert_allclose(adapters_there(given, three), 2.0 + sum(1.0 - (1.0 - chances) ** 3), rtol=1e-12)
    np.testing.assert_allclose(miss_share(given, three), sum(chances * (1.0 - chances) ** 2), rtol=1e-12)
    only = adapters(1, loaded=0)
    np.testing.assert_allclose(adapters_there(only, three), 1.0, rtol=1e-12)
    assert float(miss_share(only, three)) == 0.0 and float(miss_share(only, as_float(1.0))) == 1.0


def test_the_slope_in_the_rank_is_that_of_a_difference() -> None:
    def moved(rank):
        given = Adapters(zipf_popularity(8, 0.5), rank, 8.0, 5e10)
        kernels = adapter_kernels(deployment(), LLAMA, given, as_float(16), as_float(16))
        return kernels["lora_expand"].bytes_moved + kernels["lora_shrink"].bytes_moved

    compiled = jax.jit(jax.value_and_grad(moved), compiler_options=QUICK)
    (less, _), (_, slope), (more, _) = (compiled(as_float(rank)) for rank in (15.99, 16.0, 16.01))
    np.testing.assert_allclose(slope, (more - less) / 0.02, rtol=1e-6)


def test_one_adapter_for_all_is_no_slower_than_one_for_each() -> None:
    """x A of 64 tokens has few tiles, whatever their number: its reduction is split between the cores."""
    tokens = as_float(64.0)
    one, each = (kernels_of(deployment(), LLAMA, adapters(count), tokens, tokens) for count in (1, 64))
    assert float(one["lora_shrink"].time) <= float(each["lora_shrink"].time)
    assert float(one["lora_shrink"].flops) == float(each["lora_shrink"].flops)
