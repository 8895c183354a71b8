"""What an operation draws on a device, beside the H100's."""

from __future__ import annotations

import pytest

import hwspecs
from calibration.kernels.hardware import REFERENCE
from jaxperf.core.relative_energy import as_a_cut, budgeted_energy, relative_energy, spendable_power


def test_the_geometric_mean_of_process_and_budget() -> None:
    """Of the A100 by hand: N7 draws 1.43 of N5 and the H100's process 0.82; 400 W over 312 TFLOP/s at 1.41 GHz."""
    a100 = hwspecs.load("a100-sxm-80gb")
    budget = 400.0 / 312e12 * (1.83 / 1.41) ** 2
    assert budgeted_energy(a100, 1.83e9) == pytest.approx(budget, rel=1e-3)
    expected = (1.43 / 0.82 * budget / 0.7075e-12) ** 0.5
    assert relative_energy(a100, REFERENCE, on_matrix_units=True) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("cut", "whole"), [("h20", "h100-sxm"), ("rtx-3090", "a40"), ("l40", "l40s")])
def test_a_cut_rate_does_not_make_an_operation_dearer(cut: str, whole: str) -> None:
    """The H20 is an H100 with a seventh of its rate, the RTX 3090 an A40 with half of it."""
    of = [as_one_chip(hwspecs.load(name)) for name in (cut, whole)]
    assert of[0] == pytest.approx(of[1])


def as_one_chip(spec: hwspecs.DeviceSpec) -> float:
    """Energy of an operation without what the device pays otherwise than its flagship [1]."""
    return relative_energy(spec, REFERENCE, on_matrix_units=True) / as_a_cut(spec, REFERENCE)


def test_a_cut_with_less_power_for_a_core_takes_less_for_an_operation() -> None:
    """By hand: the A100 PCIe is an A100 SXM with 300 W instead of 400, 41.3 of them drawn by the idle die."""
    pcie, sxm = hwspecs.load("a100-pcie-80gb"), hwspecs.load("a100-sxm-80gb")
    assert as_a_cut(sxm, REFERENCE) == 1.0
    assert as_a_cut(pcie, REFERENCE) == pytest.approx((258.7 / 358.7) ** 0.4, rel=1e-3)


def limited_rate(spec: hwspecs.DeviceSpec) -> float:
    """What the power limit lets a device do, over what it lets an H100 SXM do [1]."""
    clock = spec.clock_rate.si / hwspecs.load("h100-sxm").clock_rate.si
    energy = relative_energy(spec, REFERENCE, on_matrix_units=True) * clock**2
    return spendable_power(spec, REFERENCE) / energy


@pytest.mark.parametrize(
    ("slower", "faster"), [("h200-nvl", "h200-sxm"), ("h100-nvl", "h200-nvl"), ("b100", "b200"), ("b200", "gb200")]
)
def test_a_board_with_a_lower_limit_and_clock_does_less_under_it(slower: str, faster: str) -> None:
    """The H200 NVL has 600 W and 1.545 GHz where the H200 SXM has 700 W and 1.83 GHz: the lower clock is no thrift."""
    below, above = (hwspecs.load(name) for name in (slower, faster))
    fewer = limited_rate(below) / limited_rate(above)
    assert below.tdp.si / above.tdp.si < fewer < 1.0


def test_a_limit_raised_for_four_bits_does_not_make_sixteen_dearer() -> None:
    """Blackwell Ultra draws 1,400 W instead of 1,200 for 1.5 times the fp4 rate, and no more in other formats."""
    ultra, before = (budgeted_energy(hwspecs.load(name), 1.83e9) for name in ("gb300", "gb200"))
    assert ultra and before and ultra / before == pytest.approx(1400.0 / 1200.0 / 1.5, rel=0.01)


def test_vector_units_have_no_budget_and_older_tables_no_reference_for_it() -> None:
    b200 = hwspecs.load("b200")
    older = {name: value for name, value in REFERENCE.items() if name != "reference_budget"}
    assert relative_energy(b200, REFERENCE, on_matrix_units=True) < relative_energy(b200, older, on_matrix_units=True)
    on_vectors = [relative_energy(b200, each, on_matrix_units=False) for each in (REFERENCE, older)]
    assert on_vectors[0] == on_vectors[1] == pytest.approx(1.0)


def test_what_nobody_states_counts_as_stated_by_the_reference() -> None:
    unknown = hwspecs.load("b200").model_copy(update={"process": None, "architecture": "mine"})
    assert relative_energy(unknown, REFERENCE, on_matrix_units=True) == REFERENCE["unstated_energy"]


def test_a_large_die_leaves_less_of_a_low_limit() -> None:
    """0.05 W of each square millimetre: 27 of a T4's 70 W, 41 of an H100's 700."""
    left = {name: spendable_power(hwspecs.load(name), REFERENCE) for name in ("t4", "l4", "h100-sxm")}
    assert left == pytest.approx({"t4": 70.0 - 27.25, "l4": 72.0 - 14.725, "h100-sxm": 700.0 - 40.7})


def test_without_an_area_a_share_of_the_limit_is_drawn_and_by_older_tables_nothing() -> None:
    b200 = hwspecs.load("b200")
    assert b200.die_area is None
    assert spendable_power(b200, REFERENCE) == pytest.approx(900.0)
    older = {name: value for name, value in REFERENCE.items() if not name.startswith("standing")}
    assert [spendable_power(hwspecs.load(name), older) for name in ("b200", "t4")] == [1000.0, 70.0]


def limited(name: str, quantity: str) -> hwspecs.DeviceSpec:
    spec = hwspecs.load(name)
    return spec.model_copy(update={"tdp": spec.tdp.model_copy(update={"quantity": quantity})})


def test_an_operation_takes_less_energy_under_a_cap() -> None:
    """Half of an H100's limit leaves 309.3 of 659.3 W, and with them 0.6 of their slowdown in logarithms."""
    left = spendable_power(limited("h100-sxm", "350 W"), REFERENCE)
    assert left == pytest.approx(659.3 * (309.3 / 659.3) ** 0.6)
    assert spendable_power(limited("h100-sxm", "1400 W"), REFERENCE) == pytest.approx(1400.0 - 40.7)
    unnamed = limited("h100-sxm", "350 W").model_copy(update={"name": "my-chip"})
    assert spendable_power(unnamed, REFERENCE) == pytest.approx(309.3)


def test_a_capped_board_keeps_half_of_its_limit_for_work() -> None:
    """A T4 of 30 W has 15 W beside what it would draw idle, not 2.75."""
    assert spendable_power(limited("t4", "30 W"), REFERENCE) == pytest.approx(42.75 * (15.0 / 42.75) ** 0.6)
