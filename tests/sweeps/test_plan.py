import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.sweeps import Sweep, axis
from jaxperf.sweeps.plan import default_block_points, make_plan

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=6).map(tuple)


@given(SIZES, st.integers(1, 3000))
def test_blocks_are_consecutive_rows_and_cover_everything_once(sizes, budget):
    plan = make_plan(sizes, budget)
    numbers = np.arange(plan.points).reshape(sizes)
    row = 0
    for index, block in enumerate(plan.iterate()):
        assert block.index == index and block.start == row
        np.testing.assert_array_equal(numbers[block.slices].reshape(-1), np.arange(block.start, block.stop))
        assert block.points == math.prod(block.shape) <= plan.block_points <= budget
        row = block.stop
    assert row == plan.points and plan.blocks == index + 1


@given(SIZES, st.integers(1, 3000))
def test_padding_is_small(sizes, budget):
    plan = make_plan(sizes, budget)
    pieces = -(-sizes[plan.split] // plan.chunk)
    assert pieces * plan.chunk - sizes[plan.split] < pieces


def test_the_last_axis_may_be_split_too():
    assert make_plan((3, 10**6), 2**18).block_shape == (1, 250000)
    assert make_plan((30, 4, 10, 64, 3, 50), 2**18).block_shape == (1, 2, 10, 64, 3, 50)


def test_default_blocks_shrink_with_the_number_of_metrics():
    assert default_block_points(8) == 2**20
    assert default_block_points(64) == 2**17
    assert 2**15 < default_block_points(256) < 2**17
    assert default_block_points(8000) == 2**15


def test_a_sweep_too_large_is_refused_before_anything_is_allocated_or_traced():
    axes = [axis(name, range(1, 1001)) for name in "abcd"]
    traced = []
    tracemalloc.start()
    with pytest.raises(InputError, match=r"1,000,000,000,000 points \(a 1,000 x b 1,000") as caught:
        Sweep(lambda **arguments: traced.append(1), axes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**19 and not traced and "\n" not in str(caught.value)


def test_a_dense_result_too_large_is_refused():
    sweep = Sweep(lambda a, b, c: {"sum": a + b + c}, [axis(name, range(1, 2001)) for name in "abc"])
    with pytest.raises(InputError, match="GiB of memory"):
        sweep.dense()


def test_points_per_block_must_be_positive():
    with pytest.raises(InputError, match="at least one"):
        Sweep(lambda a: {"b": a}, [axis("a", [1])], points_per_block=0)
