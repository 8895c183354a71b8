"""What an operation draws on a device, beside the H100's."""

from __future__ import annotations

import pytest

import hwspecs
from calibration.kernels.hardware import REFERENCE
from jaxperf.core.relative_energy import budgeted_energy, relative_energy, spendable_power


def test_the_geometric_mean_of_process_and_budget() -> None:
    """Of the A100 by hand: N7 draws 1.43 of N5 and the H100's process 0.82; 400 W over 312 TFLOP/s at 1.41 GHz."""
    a100 = hwspecs.load("a100-sxm-80gb")
    budget = 400.0 / 312e12 * (1.83 / 1.41) ** 2
    assert budgeted_energy(a100, 1.83e9) == pytest.approx(budget, rel=1e-3)
    expected = (1.43 / 0.82 * budget / 0.7075e-12) ** 0.5
    assert relative_energy(a100, REFERENCE, on_matrix_units=True) == pytest.approx(expected, rel=1e-3)


def test_a_cut_rate_does_not_make_an_operation_dearer() -> None:
    """The H20 is an H100 with a seventh of its rate, the RTX 3090 an A40 with half of it."""
    for cut, whole in (("h20", "h100-sxm"), ("rtx-3090", "a40"), ("l40", "l40s")):
        of = [relative_energy(hwspecs.load(name), REFERENCE, on_matrix_units=True) for name in (cut, whole)]
        assert of[0] == of[1]


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
