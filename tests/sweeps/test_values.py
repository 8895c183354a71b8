import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.sweeps import arange, geomspace, linspace, powers, whole


def test_integers_stay_integers():
    assert powers(1, 512) == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert powers(1, 500)[-1] == 256
    assert powers(3, 3) == (3,)
    assert powers(1, 1000, 10) == (1, 10, 100, 1000)
    assert linspace(0, 100, 5) == (0, 25, 50, 75, 100)
    assert arange(0, 10, 3) == (0, 3, 6, 9)
    assert geomspace(1, 1000, 4) == (1, 10, 100, 1000)
    assert geomspace(512, 131072, 9) == tuple(2**power for power in range(9, 18))
    values = (*powers(1, 8), *linspace(0, 4, 3), *arange(0, 3), *geomspace(1, 100, 3))
    assert all(type(value) is int for value in values)


def test_floats_where_needed():
    assert powers(0.5, 4) == (0.5, 1.0, 2.0, 4.0)
    assert linspace(0, 1, 3) == (0.0, 0.5, 1.0)
    assert linspace(0.1, 0.7, 3)[-1] == 0.7
    assert linspace(5, 5, 1) == (5,)
    assert linspace(1, 3, 3.0) == (1, 2, 3) and len(geomspace(1, 2, 1e2)) == 100  # as a sweep file may write it
    assert arange(0.0, 0.3, 0.1) == (0.0, 0.1, 0.2)
    assert len(arange(0, 1, 0.1)) == 10
    assert geomspace(0.1, 10.0, 3) == pytest.approx((0.1, 1.0, 10.0))
    assert whole([1.4, 1.6, 2.0, 7]) == (1, 2, 7)


@given(st.integers(-(2**51), 2**51), st.integers(1, 2**51), st.integers(2, 50))
def test_linspace_is_sorted_and_includes_both_ends(start, width, count):
    values = linspace(start, start + width, count)
    assert len(values) == count
    assert values[0] == start and values[-1] == start + width
    assert all(low <= high for low, high in zip(values, values[1:], strict=False))


@given(st.integers(1, 10**6), st.integers(1, 10**12), st.integers(2, 10))
def test_powers_stop_where_they_must(start, extra, base):
    values = powers(start, start + extra, base)
    assert values[-1] <= start + extra < values[-1] * base
    assert all(high == low * base for low, high in zip(values, values[1:], strict=False))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: powers(0, 8), "above zero"),
        (lambda: powers(1, 8, 1), "above one"),
        (lambda: powers(9, 8), "must not exceed"),
        (lambda: powers(1, math.inf), "finite"),
        (lambda: powers(1, 10, 1 + 1e-9), "more than"),
        (lambda: powers("1", 8), "must be a number"),
        (lambda: powers(True, 8), "must be a number"),
        (lambda: linspace(0, 1, 0), "at least one"),
        (lambda: linspace(0, 1, -3), "at least one"),
        (lambda: linspace(0, 1, 2.5), "whole number"),
        (lambda: linspace(1, 0, 3), "must not exceed"),
        (lambda: linspace(1, 1, 3), "equal"),
        (lambda: linspace(0, math.nan, 3), "finite"),
        (lambda: linspace(0, 1, 10**12), "more than"),
        (lambda: geomspace(1, 2, 1e15), "more than"),
        (lambda: geomspace(0, 1, 3), "above zero"),
        (lambda: arange(0, 1, 0), "above zero"),
        (lambda: arange(0, 1, 1e-12), "more than"),
        (lambda: arange(1, 1), "below stop"),
        (lambda: arange(0, 10**400), "finite"),
        (lambda: whole([]), "empty"),
        (lambda: whole([math.inf]), "finite"),
    ],
)
def test_mistakes_are_one_sentence(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
