"""Intervals of what is simulated with the slowest and the fastest kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxperf.cli.capacities import Lane, _rows
from jaxperf.cli.kernel_intervals import intervals
from jaxperf.serving.unit_costs import Prices


def test_ends_hold_the_value_whichever_is_larger() -> None:
    told = {"ttft": {"mean": 2.0}, "rate": 5.0}
    ends = [{"ttft": {"mean": 3.0}, "rate": 4.0}, {"ttft": {"mean": 2.5}, "rate": 7.0}]
    assert intervals(told, ends) == {"ttft": {"mean": [2.0, 3.0]}, "rate": [4.0, 7.0]}


@pytest.mark.parametrize(("ends", "told"), [([], None), ([np.array([1.0]), np.array([3.0])], [1.0, 3.0])])
def test_rates_of_a_table_of_step_times_have_no_interval(ends: list[np.ndarray], told: list[float] | None) -> None:
    one = np.ones(1)
    found: Any = SimpleNamespace(
        meets=2.0 * one, fails=2.1 * one, limited_by=["slo"], tokens_per_second=one, monotone=one > 0.0
    )
    (row,) = _rows([Lane({"replicas": 1}, 1, [])], found, ends, Prices(), 1.0)
    names = ("requests_per_second_lower", "requests_per_second_upper")
    assert [row[name] for name in names if name in row] == (told or [])
