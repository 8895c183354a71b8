"""Systolic arrays: folds in plain integers, and the arithmetic of Samajdar et al. (ISPASS 2020) on small cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.loopnest.systolic import DATAFLOWS, MatrixProduct, SystolicArray

sizes = st.integers(1, 300)


def folds(dataflow: str, rows: int, columns: int, m: int, n: int, k: int) -> int:
    """Cycles counted fold by fold."""
    along, across, streamed = {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[dataflow]
    load = 0 if dataflow == "os" else rows
    cycles = 0
    for _ in range(0, along, rows):
        for _ in range(0, across, columns):
            cycles += load + rows + columns + streamed - 2
    return cycles - 1


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@given(sizes, sizes, sizes, sizes, sizes)
def test_cycles_are_those_of_all_folds(dataflow: str, rows: int, columns: int, m: int, n: int, k: int) -> None:
    cost = DATAFLOWS[dataflow](SystolicArray(rows, columns), MatrixProduct(m, n, k))
    assert float(cost.cycles) == folds(dataflow, rows, columns, m, n, k)
    assert 0.0 < float(cost.mapping_efficiency) <= 1.0


def test_one_full_fold() -> None:
    """A 32 x 32 array sums 32 x 32 outputs over 32 words in 32 + 32 + 32 - 2 cycles, counted from zero."""
    cost = DATAFLOWS["os"](SystolicArray(32, 32), MatrixProduct(32, 32, 32))
    assert float(cost.cycles) == 93.0
    assert float(cost.mapping_efficiency) == 1.0
    assert float(cost.utilization) == pytest.approx(32.0 / 93.0, rel=1e-12)
