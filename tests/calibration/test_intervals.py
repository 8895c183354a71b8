"""Half-widths: of a cell, of its device where it has few rows, after a few rows, of formats elsewhere."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from calibration.intervals import (
    LEAST_ROWS,
    LEVELS_OF_TRUST,
    NORMAL,
    UNKNOWN,
    growth,
    held_out_widths,
    measured_widths,
    quantiles,
    ratio_width,
    transfer_spread,
)


def test_a_cell_with_few_rows_is_as_wide_as_its_device() -> None:
    """The other device errs ten times as much: what is pooled over both would suit neither."""
    generator = np.random.default_rng(0)
    device = np.repeat(["good", "bad", "rare"], [120, 120, 5])
    cell = np.char.add(device, np.where(np.arange(245) % 12, "/often", "/seldom"))
    residual = generator.standard_normal(245) * np.where(device == "good", 0.02, 0.2)
    widths = measured_widths(residual, cell, device)
    assert set(widths) == {f"{name}/{how}" for name in ("good", "bad") for how in ("often", "seldom")}
    assert widths["good/seldom"] == quantiles(residual[device == "good"])
    assert widths["good/often"] == quantiles(residual[cell == "good/often"])
    assert widths["bad/seldom"][1] > 5.0 * widths["good/seldom"][1]


@given(st.integers(1, 200), st.floats(0.01, 3.0))
def test_widths_after_a_few_rows_lie_between_theirs_and_students(rows: int, scale: float) -> None:
    ratio = scale * np.random.default_rng(rows).standard_normal(rows)
    students = [student.ppf(0.5 + level / 2.0, rows) for level in LEVELS_OF_TRUST]
    for found, mine, usual in zip(ratio_width(ratio, np.arange(rows)), quantiles(ratio), students, strict=True):
        assert min(max(mine, 1e-2), usual) - 1e-9 <= found <= max(mine, usual) + 1e-9


def test_fewer_rows_than_a_quantile_needs_hold_the_next_as_often_as_they_say() -> None:
    """The largest of four residuals holds a fifth one four times in five, not nine in ten."""
    generator = np.random.default_rng(0)
    for rows in (1, 4, 8):
        drawn = generator.standard_normal((4000, rows + 1))
        inside = [abs(each[-1]) <= held_out_widths(each[:-1])[1] for each in drawn]
        assert 0.88 < np.mean(inside) < 0.95
    many = generator.standard_normal(9)
    assert held_out_widths(many) == quantiles(many) and held_out_widths(many[:0]) == UNKNOWN


def test_more_rows_trust_themselves_more() -> None:
    few, many = (ratio_width(np.full(rows, 0.1), np.arange(rows)) for rows in (10, 400))
    assert 0.1 < many[1] < 0.2 < few[1] < NORMAL[1]
    assert ratio_width(np.zeros(1), np.zeros(1))[0] < ratio_width(np.zeros(1), np.zeros(1))[1]


@given(st.integers(1, 200), st.integers(1, 200))
def test_quantiles_are_the_conformal_ones_by_hand(rows: int, groups: int) -> None:
    """The ceil((n + 1) q)-th smallest of rows apart; in groups never a smaller one."""
    ordered = np.arange(1, rows + 1)
    by_hand = [min(rows, -(-(rows + 1) * percent // 100)) for percent in (50, 90)]
    assert quantiles(-ordered) == tuple(by_hand) == quantiles(ordered, rows)
    assert quantiles(ordered, min(groups, rows)) >= quantiles(ordered)


def test_rows_of_one_shape_count_once() -> None:
    """Ten rows of each of 15 shapes that err alike, and the next shape: nine of ten intervals should hold it."""
    generator, shapes, inside = np.random.default_rng(0), np.repeat(np.arange(15), 10), []
    for _ in range(1000):
        ratio = generator.standard_normal(16).repeat(10) * np.exp(generator.normal(0.0, 0.05, 160))
        widths = ratio_width(ratio[:150], shapes)[1], ratio_width(ratio[:150], np.arange(150))[1]
        inside.append([abs(ratio[-1]) <= width for width in widths])
    by_shape, by_row = np.mean(inside, axis=0)
    assert abs(by_shape - 0.9) < 0.02 and by_row < 0.88


@given(st.integers(LEAST_ROWS, 300), st.floats(2.0, 30.0))
def test_a_format_that_errs_more_is_wider_on_a_device_never_measured(rows: int, worse: float) -> None:
    """Two generations, of which one has the bad format: its quantile there and the mean of both weigh the same."""
    generator = np.random.default_rng(rows)
    good, bad = 0.05 * generator.standard_normal((2, rows))
    formats = np.repeat(["bf16", "fp8_block"], rows)
    spread = transfer_spread([np.r_[good, worse * bad], good], [formats, formats[:rows]])
    whole = np.mean([quantiles(np.r_[good, worse * bad]), quantiles(good)], axis=0)
    np.testing.assert_allclose(spread.transfer, whole)
    assert spread.formats["bf16"][1] < spread.transfer[1]
    np.testing.assert_allclose(spread.formats["fp8_block"], (np.array(quantiles(worse * bad)) + whole) / 2)
    asked = {"cell": np.array(["a", "b", "c"]), "format": np.array(["bf16", "fp8_block", "int8"])}
    found = spread.half_width(asked, np.zeros(3, bool), np.array([0.0, 3.0, 0.0]))
    wide = [spread.formats["bf16"][1], 2.0 * spread.formats["fp8_block"][1], spread.transfer[1]]
    np.testing.assert_allclose(found, wide)


@given(st.floats(0.0, 4.0), st.floats(0.0, 4.0))
def test_what_distances_add_to_the_variance_adds_up(near: float, more: float) -> None:
    both, first, second = np.square(growth(np.array([near + more, near, more])))
    np.testing.assert_allclose(both - 1.0, first + second - 2.0, atol=1e-12)
