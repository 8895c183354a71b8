"""When the last block ends, against cores that take one block after the other."""

from __future__ import annotations

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.kernels.in_order import Blocks, evenly, last_end, last_end_rising
from jaxperf.core.numerics import as_float

NONE = evenly(as_float(0.0), as_float(0.0), as_float(0.0), as_float(0.0))


def alike(count: float, length: float) -> Blocks:
    return evenly(*(as_float(each) for each in (count, length, length, length)))


def of(lengths: np.ndarray) -> Blocks:
    return evenly(*(as_float(each) for each in (len(lengths), lengths.min(), lengths.max(), lengths.mean())))


def simulated(lengths: np.ndarray, cores: int) -> float:
    """Of blocks that are taken in this order."""
    free, ends = [0.0] * cores, []
    for length in lengths:
        ends.append(heapq.heappop(free) + length)
        heapq.heappush(free, ends[-1])
    return max(ends)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 200), st.integers(1, 50))
def test_blocks_alike_go_through_the_cores_in_rounds(count: int, cores: int, length: int) -> None:
    end = -(-count // cores) * length
    assert float(last_end(alike(count, length), NONE, as_float(cores))) == pytest.approx(end, rel=1e-6)
    assert float(last_end(NONE, alike(count, length), as_float(cores))) == pytest.approx(end, rel=1e-6)
    assert float(last_end_rising(alike(count, length), as_float(cores))) == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize("cores", [84, 108, 132])
@pytest.mark.parametrize("each", [8, 32, 64])
@pytest.mark.parametrize("heads", [4, 32, 96])
def test_a_triangle_row_by_row_ends_when_a_simulation_says(cores: int, each: int, heads: int) -> None:
    """Of one head after the other, 1 to `each` tiles; and of all heads together, one row after the other."""
    rows = np.arange(1.0, each + 1)
    strewn, rising = np.tile(rows, heads), np.repeat(rows, heads)
    assert float(last_end(of(strewn), NONE, as_float(cores))) == pytest.approx(simulated(strewn, cores), rel=0.12)
    assert float(last_end_rising(of(rising), as_float(cores))) == pytest.approx(simulated(rising, cores), rel=0.12)


@pytest.mark.parametrize(("decodes", "chunk"), [(16, 8), (64, 17), (128, 129), (128, 17), (4, 129)])
def test_one_long_block_a_head_among_short_ones(decodes: int, chunk: int) -> None:
    """A chunk of one block before the decodes of each of 32 heads, on 128 cores."""
    lengths = np.tile(np.r_[float(chunk), np.full(decodes, 2.0)], 32)
    found = last_end(alike(32, chunk), alike(32 * decodes, 2.0), as_float(128.0))
    assert float(found) == pytest.approx(simulated(lengths, 128), rel=0.12)


def test_as_many_long_blocks_as_cores_wait_for_no_round() -> None:
    """A hundred and twenty-eight long blocks and a few short ones are done in hardly more than one long one."""
    found = last_end(alike(32, 1.0), alike(128, 100.0), as_float(128.0))
    assert 100.0 <= float(found) < 110.0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 500), st.floats(1.0, 100.0), st.floats(0.0, 1.0), st.integers(0, 500), st.floats(1.0, 100.0),
    st.integers(1, 200),
)  # fmt: skip
def test_never_before_an_even_share_or_the_longest_block(
    count: int, longest: float, part: float, others: int, length: float, cores: int
) -> None:
    own = evenly(*(as_float(each) for each in (count, part * longest, longest, (1.0 + part) / 2.0 * longest)))
    end = float(last_end(own, alike(others, length), as_float(cores)))
    shared = float(own.work + others * length) / cores
    most = max(longest, length if others else 0.0)
    assert max(shared, most) * (1.0 - 1e-5) <= end <= (shared + most) * (1.0 + 1e-5)


def test_gradients_are_numbers_where_a_kind_is_empty() -> None:
    def end(length: jax.Array) -> jax.Array:
        return last_end(evenly(as_float(8.0), length, length, length), NONE, as_float(4.0))

    assert float(jax.grad(end)(jnp.asarray(3.0))) == pytest.approx(2.0)
