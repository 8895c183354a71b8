"""Which device and size a plan calls the best, and how it says that a pool has no layout."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from jaxperf.report.plan import pick_lines
from jaxperf.report.plan_pools import print_pools
from jaxperf.training.layout_checks import TrainingReason
from jaxperf.training.model_build import training_model_from_shape
from jaxperf.training.search.layouts import Found
from jaxperf.training.search.plan import Answer, Request
from jaxperf.training.search.pools import PoolPlan


def answer(device: str, hours: float, cost: float | None) -> Any:
    choice = SimpleNamespace(metrics={"time": 1.0, "memory.total": 1.0}, device_hours=hours, cost=cost)
    return SimpleNamespace(device=device, devices=8, choices=[choice])


def cheapest(*answers: Any) -> str:
    return pick_lines(answers)[1]


def test_the_cheapest_is_by_dollars_only_where_every_device_has_a_price() -> None:
    dear, large = answer("h100", 1.0, 30.0), answer("a100", 2.0, 10.0)
    assert cheapest(dear, large) == "cheapest  8 x a100 (dollars)"
    assert cheapest(dear, answer("a100", 2.0, None)) == "cheapest  8 x h100 (device-hours; no price of a100)"
    assert cheapest(answer("h100", 1.0, None), answer("a100", 2.0, None)) == "cheapest  8 x h100 (device-hours)"


def test_a_size_that_does_not_fit_needs_no_price() -> None:
    unfit: Any = SimpleNamespace(device="l4", devices=8, choices=())
    assert cheapest(answer("h100", 1.0, 30.0), unfit) == "cheapest  8 x h100 (dollars)"
    assert pick_lines([unfit]) == []


def test_a_pool_without_a_layout_has_a_line_for_each_reason(capsys: pytest.CaptureFixture[str]) -> None:
    excluded = Counter({TrainingReason.MEMORY: 7, TrainingReason.BATCH: 2})
    found = Found(splits=9, reasons=excluded, least_memory=69.4e9)
    answer = Answer("l40s", 64, found, (), 48e9, "assumed", 128)
    plan = PoolPlan("alone", [], [352], [answer], float("nan"), 0.0)
    model = training_model_from_shape(2, 64, 2, 2, 32, 128, True, 100)
    print_pools(Request("shape", model, 64, 128), [plan], quiet=True)
    lines = capsys.readouterr().out.splitlines()
    assert "64 x l40s take 352 sequences: Nothing is feasible among 9 splits:" in lines
    assert [line.split()[0] for line in lines[-4:]] == ["excluded", "excluded", "memory", "nearest"]
