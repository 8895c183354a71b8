"""Half-widths: of a cell, of its device where it has few rows, and of few rows beside the transfer's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibration.intervals import LEAST_ROWS, adapted_widths, measured_widths, quantiles

TRANSFER = (0.3, 0.9)


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
def test_widths_lie_between_the_rows_own_and_the_transfers(rows: int, scale: float) -> None:
    residual = scale * np.random.default_rng(rows).standard_normal(rows)
    cells = np.where(np.arange(rows) % 3, "many", "few")
    widths = adapted_widths(residual, cells, TRANSFER)
    assert set(widths) == set(cells)
    for name, width in widths.items():
        own = residual[cells == name] if np.sum(cells == name) >= LEAST_ROWS else residual
        for found, mine, theirs in zip(width, quantiles(own), TRANSFER, strict=True):
            assert min(max(mine, 1e-3), theirs) - 1e-9 <= found <= max(mine, theirs) + 1e-9


def test_more_rows_trust_themselves_more() -> None:
    few, many = (adapted_widths(np.full(rows, 0.01), np.full(rows, "a"), TRANSFER)["a"] for rows in (10, 200))
    assert 0.01 < many[1] < 0.02 < few[1] < TRANSFER[1]
