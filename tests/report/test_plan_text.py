"""Which device and size a plan calls the best."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jaxperf.report.plan import pick_lines


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
