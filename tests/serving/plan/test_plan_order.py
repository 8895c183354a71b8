"""Which choice of a plan is first, and that it is one that the simulator has seen."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from jaxperf.serving.plan import simulate
from jaxperf.serving.plan.request import Answer, Choice


def choice(name: str, rate: float, per_device: float, e2e: float = 1.0) -> Choice:
    row = {"rate": rate, "tokens_per_second_per_device": per_device, "e2e": e2e}
    return Choice(cast(Any, name), row, {}, {}, {}, "ttft")


def test_what_serves_more_is_before_what_leaves_devices_over_and_equals_are_told_by_their_latency() -> None:
    three, two, quick = choice("3 x TP1", 25.5, 2168.0), choice("1 x TP2", 16.9, 2173.0), choice("q", 25.5, 2168.2, 0.9)
    assert sorted([two, three, quick], key=Choice.order) == [quick, three, two]
    few, many = choice("2 devices", 10.0, 500.0), choice("4 devices", 10.0, 250.0)  # at a rate that is asked for
    assert sorted([many, few], key=Choice.order) == [few, many]


@dataclasses.dataclass
class Asked:
    """What `confirmed` reads of a request."""

    slo: dict[str, float]
    rate: None = None


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("kept", [0.95, 0.5])
def test_the_first_choice_was_simulated(monkeypatch: pytest.MonkeyPatch, count: int, kept: float) -> None:
    """Every choice that is simulated is given less to do, so that one that was not is above it."""
    seen: list[str] = []

    def simulated(study: object, answer: object, each: Choice) -> tuple[Choice, None]:
        seen.append(cast(str, each.configuration))
        return dataclasses.replace(each, row={**each.row, "rate": kept * each.row["rate"]}), None

    monkeypatch.setattr(simulate, "_simulated_choice", simulated)
    monkeypatch.setattr(simulate, "Study", lambda *_: None)
    choices = [choice(str(place), 100.0 - place, 10.0) for place in range(40)]
    answer = Answer("l4", 1, [], {}, choices, [], {}, [], None, 0)
    found, _ = simulate.confirmed(cast(Any, Asked({})), answer, count)
    assert not count or found.choices[0].configuration in seen
    assert len(found.choices) == 40 and (count > 0) == bool(seen)
