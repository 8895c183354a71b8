"""What the busiest rank of a pipeline has of a model, against its work counted by hand."""

from __future__ import annotations

import jax
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.training.compute import Ends
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import SCHEDULES, Layout, training_layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_model_from_shape
from jaxperf.training.results import TrainingStep
from jaxperf.training.stages import Stage, of_longest, rank_stages
from jaxperf.training.step import training_step
from tests.devices import H100

ENDS = Ends(embedding=as_float(0.5), head=as_float(3.0))
UNTIED, TIED = (training_model_from_shape(8, 512, 4, 4, 128, 2048, False, 1000, tied=tied) for tied in (False, True))


@jax.jit
def step(model: TrainingModel, layout: Layout) -> TrainingStep:
    """On H100s at assumed rates."""
    return training_step(model, layout, H100, assumed_training_efficiencies())


def busiest_stage(model: TrainingModel, layout: Layout) -> Stage:
    """With layers of a second."""
    stages = rank_stages(model, layout)
    return of_longest([stage.time(as_float(1.0), ENDS) for stage in stages], stages)


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
        stage = busiest_stage(model, layout)
        assert float(stage.time(as_float(1.0), ENDS)) == work
        assert float(layout.copies * stage.tables(model)) == held


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rank_alone_has_both_ends(schedule: str) -> None:
    """Whatever the schedule, also those that take several ranks."""
    stage = busiest_stage(UNTIED, training_layout(schedule=schedule))
    assert (float(stage.layers), float(stage.embedding), float(stage.head)) == (8, 1, 1)


def test_the_step_ends_with_the_stage_that_is_last_with_its_gradients() -> None:
    """Of gpt-oss-120b's 36 layers on eight stages the last has 3 and the head: of 8,192 tokens it computes longest, but
    the others' 5 layers gather their weights longer. Time went from 3.50 s of 7,168 tokens down to 2.55 s."""
    model = training_model(load_model("gpt-oss-120b"))
    layout = dict(pipeline=8, data=16, context=2, expert=4, interleave=4, zero=3, shard_group=8, global_batch=128)
    layouts = [
        training_layout(
            schedule="interleaved", recompute="selective", recomputed_share=0.5, sequence=float(tokens), **layout
        )
        for tokens in (4096, 7168, 8192, 12288)
    ]
    times = [float(step(model, each).unchecked_time) for each in layouts]
    assert times == sorted(times)
