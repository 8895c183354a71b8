"""What the busiest rank of a pipeline has of a model, against its work counted by hand."""

from __future__ import annotations

import pytest

from jaxperf.core.numerics import as_float
from jaxperf.training.compute import Ends
from jaxperf.training.layout import SCHEDULES, training_layout
from jaxperf.training.model_build import training_model_from_shape
from jaxperf.training.stages import busiest_stage

ENDS = Ends(embedding=as_float(0.5), head=as_float(3.0))
UNTIED, TIED = (training_model_from_shape(8, 512, 4, 4, 128, 2048, False, 1000, tied=tied) for tied in (False, True))


@pytest.mark.parametrize(
    ("schedule", "work", "tables"),
    [
        ("1f1b", 2 * 1.0 + 3.0, (1, 1)),
        ("zb-v", 2 * 1.0 + 3.0 + 0.5, (2, 1)),  # its first rank has both ends (arXiv:2401.10241, section 6)
        ("dualpipe", 2 * 1.0 + (3.0 + 0.5) / 2, (2, 2)),  # of both, one end at a time (arXiv:2412.19437, section 3.2.1)
    ],
)
def test_the_busiest_of_four_ranks(schedule: str, work: float, tables: tuple[float, float]) -> None:
    """Eight layers of a second, an embedding of half a second and a head of three."""
    layout = training_layout(schedule=schedule, pipeline=4, global_batch=16)
    for model, held in zip((UNTIED, TIED), tables, strict=True):
        stage = busiest_stage(model, layout, as_float(1.0), ENDS)
        assert float(stage.time(as_float(1.0), ENDS)) == work
        assert float(layout.copies * stage.tables(model)) == held


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rank_alone_has_both_ends(schedule: str) -> None:
    """Whatever the schedule, also those that take several ranks."""
    stage = busiest_stage(UNTIED, training_layout(schedule=schedule), as_float(1.0), ENDS)
    assert (float(stage.layers), float(stage.embedding), float(stage.head)) == (8, 1, 1)
