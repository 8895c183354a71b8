"""Energy and dollars of a million output tokens against arithmetic by hand."""

from __future__ import annotations

import math

import pytest

import hwspecs
from jaxperf.serving.unit_costs import DOLLARS, ENERGY, Prices, unit_costs

H100, L4 = hwspecs.load("h100-sxm"), hwspecs.load("l4")  # 700 and 72 W


def test_energy_of_all_devices_at_their_limit() -> None:
    """2 x 700 + 72 W at 100 tokens/s: 14.72 J a token, of which 3.6 are a kWh a million."""
    assert unit_costs(100.0, [(H100, 2), (L4, 1)], Prices()) == {ENERGY: pytest.approx(14.72 / 3.6)}


def test_dollars_of_devices_and_of_electricity_add_up() -> None:
    """A million tokens at 100 a second take 1e4 s."""
    rent = (2 * 3.0 + 0.5) * 1e4 / 3600.0
    placed, prices = [(H100, 2), (L4, 1)], {"h100-sxm": 3.0, "l4": 0.5}
    assert unit_costs(100.0, placed, Prices(prices))[DOLLARS] == pytest.approx(rent)
    electricity = 0.12 * 14.72 / 3.6
    assert unit_costs(100.0, placed, Prices({}, 0.12))[DOLLARS] == pytest.approx(electricity)
    assert unit_costs(100.0, placed, Prices(prices, 0.12))[DOLLARS] == pytest.approx(rent + electricity)


def test_what_is_not_known_is_not_a_number() -> None:
    both = unit_costs(0.0, [(H100, 1)], Prices({"h100-sxm": 3.0}))
    assert all(math.isnan(both[name]) for name in (ENERGY, DOLLARS))
    half = unit_costs(100.0, [(H100, 1), (L4, 1)], Prices({"h100-sxm": 3.0}, 0.1))
    assert half[ENERGY] > 0.0 and math.isnan(half[DOLLARS])
