"""What a serving plan says of how steps are formed, and of the pipelines in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jaxperf.report.plan_serve_rows import IN_STAGES, NOT_IN_STAGES, ONE_BY_ONE, scheduling_notes


@pytest.mark.parametrize(
    ("engine", "prefill", "notes"),
    [(0, None, []), (1, None, [IN_STAGES]), (0, 1, [IN_STAGES]), (0, 0, [])],
)
def test_how_batches_of_a_pipeline_are_formed_is_said_where_the_first_has_one(
    engine: int, prefill: int | None, notes: list[str]
) -> None:
    candidates = [SimpleNamespace(layout={"pipeline_parallel": stages}) for stages in (1, 2)]
    choice = SimpleNamespace(configuration=SimpleNamespace(engine=engine, prefill=prefill))
    answers: Any = [SimpleNamespace(candidates=candidates, choices=each) for each in ([choice], [])]
    plain, ahead = (scheduling_notes(SimpleNamespace(ahead=each), answers) for each in (False, True))  # type: ignore[arg-type]
    assert plain == [ONE_BY_ONE, *notes] and ahead == [NOT_IN_STAGES] * len(notes) + notes
    assert not scheduling_notes(SimpleNamespace(ahead=False), [])  # type: ignore[arg-type]
