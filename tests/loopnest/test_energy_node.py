"""Energies in another process: both ends of the published table, and what lies between them and beyond its sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.loopnest.energy_node import LEVEL_FACTORS, mac_factor, register_factor, sram_factor

nodes = st.floats(7e-9, 45e-9)
capacities = st.floats(1.0, 2.0**30)


def test_the_ends_are_those_of_the_table() -> None:
    """Jouppi et al., ISCA 2021, table 2: SRAM of 8 KB 10 -> 7.5 pJ, 32 KB 20 -> 8.5, 1 MB 100 -> 14."""
    for kilobytes, old, new in ((8, 10.0, 7.5), (32, 20.0, 8.5), (1024, 100.0, 14.0)):
        assert sram_factor(kilobytes * 1024.0, 7e-9, 45e-9) == pytest.approx(new / old)
    assert register_factor(64.0, 7e-9, 45e-9) == pytest.approx(0.03 / 0.1)
    assert mac_factor(7e-9, 45e-9) == pytest.approx((0.07 + 0.03) / (0.2 + 0.1))
    assert sram_factor(64.0, 7e-9, 45e-9) == pytest.approx(0.75)  # smaller than the table's: as its smallest


@given(capacities, capacities, nodes, nodes, nodes)
def test_there_and_back_and_monotone(small: float, large: float, one: float, two: float, three: float) -> None:
    small, large = sorted((small, large))
    for law in LEVEL_FACTORS.values():
        assert law(small, two, one) * law(small, three, two) == pytest.approx(law(small, three, one))
    new, old = sorted((one, two))
    assert sram_factor(large, new, old) <= sram_factor(small, new, old) * (1.0 + 1e-12) <= 1.0 + 1e-9
