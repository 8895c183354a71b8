"""Splits of work among pools: whole numbers against brute force."""

from __future__ import annotations

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.training.layout import training_layout
from jaxperf.training.memory import stage_memory
from jaxperf.training.model_build import training_model_from_shape
from jaxperf.training.pools import cross_pool_reduction, hand_over, part_of, whole_shares
from jaxperf.training.schedules import live_microbatches

speeds = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=3), st.integers(0, 12), st.integers(0, 2**16))
def test_whole_shares_are_optimal(rates: list[float], total: int, seed: int) -> None:
    fixed = np.random.default_rng(seed).uniform(0.0, 3.0, len(rates)).tolist()
    shares = whole_shares(total, fixed, rates)

    def end(split: tuple[int, ...]) -> float:
        return (
            max(a + share / v for a, share, v in zip(fixed, split, rates, strict=True) if share) if any(split) else 0.0
        )

    every = [split for split in itertools.product(range(total + 1), repeat=len(rates)) if sum(split) == total]
    assert sum(shares) == total
    assert end(tuple(shares)) == pytest.approx(min(map(end, every)))


def test_too_little_work_is_refused() -> None:
    assert whole_shares(3, [0.0, 0.0], [1.0, 100.0], least=1) == [1, 2]
    with pytest.raises(InputError, match="1 units are too few for 2 pools"):
        whole_shares(1, [0.0, 0.0], [1.0, 1.0], least=1)


def test_reduction_between_pools_is_a_ring_through_the_narrowest() -> None:
    time = cross_pool_reduction(as_float(8e9), jnp.array([8.0 * 50e9, 4.0 * 25e9]))
    assert float(time) == pytest.approx(8e9 / 100e9)


def test_each_border_is_as_fast_as_its_narrower_side() -> None:
    times = hand_over(as_float(8e9), jnp.array([400e9, 100e9, 200e9]))
    assert np.asarray(times) == pytest.approx([8e9 / 100e9, 8e9 / 100e9])


def test_parts_are_the_model() -> None:
    model = training_model_from_shape(12, 1024, 16, 4, 64, 4096, True, 32000, experts=4, topk=2, moe_ffn=512)
    parts = [part_of(model, 5, True, False), part_of(model, 7, False, True)]
    assert sum(float(part.layers * part.active_layer_parameters) for part in parts) == pytest.approx(
        float(model.layers * model.active_layer_parameters)
    )
    total = sum(float(part.parameters) for part in parts)
    assert total == pytest.approx(float(model.parameters))


def test_the_first_pool_keeps_what_the_first_stages_of_one_pipeline_keep() -> None:
    """Eight stages of one model, or four and four: the first has the token table and as many live micro-batches."""
    model = training_model_from_shape(32, 1024, 16, 4, 64, 4096, True, 32000)
    layout = functools.partial(training_layout, tensor=2.0, data=2.0, microbatch=2.0, global_batch=128.0)
    joined = stage_memory(model, layout(pipeline=8.0), as_float(1.0), as_float(0.0))
    held = float(live_microbatches(layout(pipeline=4.0))[0]) * 4.0
    first = stage_memory(
        part_of(model, 16, True, False),
        layout(pipeline=4.0, behind=held),
        as_float(1.0),
        as_float(0.0),
    )
    for kind in ("weights", "gradients", "optimizer", "activations", "temporary"):
        assert float(getattr(first, kind)) == pytest.approx(float(getattr(joined, kind))), kind
