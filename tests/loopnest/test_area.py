"""Areas of levels and units: the published figures they come from, how they grow, and their place in a machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.io.codesign.area import read_silicon
from jaxperf.loopnest.area import (
    ALADDIN_NODE,
    MICRO,
    NM,
    NODES,
    SRAM_CELLS,
    logic_factor,
    mac_area,
    register_area,
    sram_area,
)

MIB = 2.0**20
NODE = st.floats(NODES[0], NODES[1])


def test_sram_has_the_published_density() -> None:
    # WikiChip on TSMC's papers of IEDM 2022 (5 and 3 nm) and Tom's Hardware on IEDM 2024 (2 nm): Mib in a mm2.
    for node, density in {5.0: 31.8, 2.0: 38.0}.items():
        assert sram_area(density * MIB, node / NM) == pytest.approx(1e-6, rel=0.01)


def test_a_unit_of_aladdin() -> None:
    assert mac_area(32.0, 32.0, ALADDIN_NODE) == pytest.approx((6350.0 + 278.0) * MICRO**2)
    assert register_area(1.0, ALADDIN_NODE) == pytest.approx(5.98 * MICRO**2)


def test_logic_shrinks_as_stillmaker_and_baas_say() -> None:
    # 16 to 7 nm is 0.31 in their table, which rounds each entry to two digits.
    assert logic_factor(7.0 / NM) / logic_factor(16.0 / NM) == pytest.approx(0.31, rel=0.02)


@given(NODE, NODE, st.floats(1.0, 1e9))
def test_nothing_is_larger_in_a_finer_process(one: float, other: float, bits: float) -> None:
    fine, coarse = sorted((one, other))
    for law in (sram_area, register_area):
        assert 0.0 < law(bits, fine) <= law(bits, coarse) * (1 + 1e-12)
        assert law(2.0 * bits, fine) == pytest.approx(2.0 * law(bits, fine))


@given(NODE)
def test_a_bit_of_sram_is_smaller_than_a_register(node: float) -> None:
    assert sram_area(1.0, node) < register_area(1.0, node)


def test_known_nodes_are_met_exactly() -> None:
    for node, cell in SRAM_CELLS.items():
        assert sram_area(1.0, node) == pytest.approx(cell / 0.70)


def test_both_ends_of_what_is_known_can_be_asked_for() -> None:
    for text, node in {"7nm": NODES[0], "0.04um": NODES[1]}.items():
        silicon = read_silicon(text, (), "8,16", ())
        assert silicon is not None and silicon.node == node
