"""Memory that engines divide, and slices of a device."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.serving.colocate.room import Need, memory_shares
from jaxperf.serving.colocate.slices import slice_of
from tests.devices import H100

sizes = st.lists(st.tuples(st.floats(1e8, 3e10), st.none() | st.floats(1.0, 3.0)), min_size=1, max_size=5)


@given(sizes)
def test_what_engines_take_fits_and_the_rest_is_divided_evenly(given: list) -> None:
    capacity = 80e9
    needs = [Need(fixed, None if more is None else fixed * more) for fixed, more in given]
    open_ended = [need for need in needs if need.whole is None]
    taken = sum(need.whole or need.fixed for need in needs)
    if taken >= (0.9 if open_ended else 1.0) * capacity:
        with pytest.raises(InputError, match="GB, and there are"):
            memory_shares(capacity, needs, 0.9)
        return
    shares = memory_shares(capacity, needs, 0.9)
    assert [share is None for share in shares] == [need.whole is not None for need in needs]
    caches = [share * capacity - need.fixed for share, need in zip(shares, needs, strict=True) if share is not None]
    if caches:
        left = 0.9 * capacity - taken
        np.testing.assert_allclose(caches, left / len(caches), atol=1e-4 * capacity)
        assert sum(caches) <= left * (1.0 + 1e-9)


def test_one_slice_is_the_device_itself() -> None:
    whole, found = jax.tree.leaves(H100), jax.tree.leaves(slice_of(H100, 1))
    assert all(np.array_equal(one, other) for one, other in zip(whole, found, strict=True))


def test_slices_have_whole_cores_and_what_goes_with_them() -> None:
    found = slice_of(H100, 5)  # of 132 cores
    assert float(found.num_cores) == 26.0
    np.testing.assert_allclose(found.peak_flops, H100.peak_flops * 26.0 / 132.0)
    for name in ("memory_bandwidth", "memory_capacity", "l2_capacity", "tdp"):
        np.testing.assert_allclose(getattr(found, name), getattr(H100, name) / 5.0)
    for name in ("launch_latency", "link_bandwidth", "node_size"):
        assert float(getattr(found, name)) == float(getattr(H100, name))


def test_more_slices_than_cores_are_refused() -> None:
    with pytest.raises(InputError, match="9 slices: the device has 8 cores"):
        slice_of(H100.replace(num_cores=as_float(8.0)), 9)
