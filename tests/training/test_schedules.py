"""Bubbles, live micro-batches and uneven stages against the published formulas, evaluated by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.training.critical_paths import StageTimes
from jaxperf.training.layout import SCHEDULES, Layout, training_layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.overlap import Passes
from jaxperf.training.products import Phases
from jaxperf.training.schedules import Elsewhere, idle_time, live_microbatches, stage_layers


def idle(
    schedule: str,
    pipeline: int,
    forward: float,
    backward: float,
    weight: float,
    interleave: int = 1,
    microbatches: int = 1024,
) -> float:
    layout = training_layout(
        schedule=schedule, pipeline=pipeline, interleave=interleave, global_batch=microbatches, microbatch=1
    )
    whole = as_float(forward + backward + weight)
    chunk = whole / interleave
    times = StageTimes(pipeline * whole, whole, whole, whole, chunk, chunk)
    passes, none = Phases(*map(as_float, (forward, backward, weight))), Passes(as_float(0.0), as_float(0.0))
    elsewhere = Elsewhere(as_float((pipeline - 1) * weight), none)
    return float(idle_time(layout, times, whole, passes, none, elsewhere))


@pytest.mark.parametrize(
    "schedule, interleave, expected",
    [
        ("gpipe", 1, 7 * 3),  # (p - 1) (F + B + W)
        ("1f1b", 1, 7 * 3),
        ("interleaved", 4, 7 * 3 / 4),  # arXiv:2104.04473, section 2.2.2
        ("zb-h1", 1, 7 * 1),  # a third of 1F1B's: arXiv:2401.10241, table 2
        ("zb-h2", 1, 0),
        ("zb-v", 1, 0),
        ("dualpipe", 1, 3 * 2),  # (p/2 - 1) (F&B + B - 3 W), F&B = 3, B = 2: arXiv:2412.19437, table 2
    ],
)
def test_idle_time_of_eight_even_stages(schedule: str, interleave: int, expected: float) -> None:
    assert idle(schedule, 8, 1.0, 1.0, 1.0, interleave) == pytest.approx(expected, rel=1e-12)


def test_idle_time_of_unequal_passes() -> None:
    assert idle("zb-h1", 4, 2.0, 3.0, 1.0) == pytest.approx(3 * (2 + 3 - 1))
    assert idle("zb-h2", 4, 2.0, 3.0, 1.0) == pytest.approx(3 * (2 + 3 - 2))
    assert idle("zb-h2", 4, 1.0, 1.0, 5.0) == 0  # never below zero
    assert idle("dualpipe", 2, 1.0, 1.0, 1.0) == 0


@given(p=st.integers(1, 64), times=st.integers(1, 8), v=st.integers(1, 8))
def test_bubble_over_ideal_is_that_of_the_paper(p: int, times: int, v: int) -> None:
    """(p - 1) / (v m) (arXiv:2104.04473, equation in section 2.2), which has whole groups of p micro-batches."""
    m = times * p
    assert idle("interleaved", p, 1.0, 1.0, 1.0, v, m) / (3 * m) == pytest.approx((p - 1) / (v * m))


PASSES = st.sampled_from((0.5, 1.0, 1.5, 2.0, 3.0))


@given(st.sampled_from(SCHEDULES), st.integers(2, 16), st.integers(1, 4), PASSES, PASSES, PASSES)
def test_one_microbatch_is_computed_stage_after_stage(
    schedule: str, p: int, v: int, forward: float, backward: float, weight: float
) -> None:
    """p (F + B) and what W cannot be put off: of the last stage alone, or of all where a backward pass is one piece."""
    v = v if schedule == "interleaved" else 1
    whole = forward + backward + weight
    in_pieces = schedule in ("zb-h1", "zb-h2", "zb-v", "dualpipe")
    serial = p * (forward + backward) + (weight if in_pieces else p * weight)
    assert whole + idle(schedule, p, forward, backward, weight, v, 1) >= serial - 1e-9


@given(p=st.integers(2, 6), m=st.integers(1, 12), v=st.integers(1, 4))
def test_interleaved_chunks_take_as_long_as_when_they_are_played(p: int, m: int, v: int) -> None:
    """Forward passes of chunks of equal length, groups of p micro-batches in turn, against their dates one by one."""
    m = m if m <= p else m // p * p
    assert m + idle("interleaved", p, 1.0, 0.0, 0.0, v, m) == pytest.approx(played(p, m, v))


def played(p: int, m: int, v: int) -> float:
    """End of the forward passes of m micro-batches through v chunks of 1 / v on each of p stages."""
    free, done = [0.0] * p, {}
    order = [(chunk, one) for first in range(0, m, p) for chunk in range(v) for one in range(first, min(first + p, m))]
    for chunk, one in order:
        for stage in range(p):
            before = done.get((chunk, one, stage - 1) if stage else (chunk - 1, one, p - 1), 0.0)
            free[stage] = done[chunk, one, stage] = max(free[stage], before) + 1.0 / v
    return max(free)


@given(p=st.integers(2, 16), m=st.integers(1, 64))
def test_more_microbatches_never_shorten_a_step(p: int, m: int) -> None:
    for schedule in SCHEDULES:
        few, more = (
            each * 3.5 + idle(schedule, p, 1.0, 1.5, 1.0, 2 if schedule == "interleaved" else 1, each)
            for each in (m, m + 1)
        )
        assert more >= few - 1e-9


@pytest.mark.parametrize(
    "schedule, interleave, expected",
    [
        ("gpipe", 1, [64, 64, 64]),
        ("1f1b", 1, [8, 7, 1]),
        ("interleaved", 2, [8 + 7 / 2, 8 + 5 / 2, 9 / 2]),  # p (1 + (p-1)/(p v)): arXiv:2205.05198, section 4.2.3
        ("interleaved", 1, [8, 7, 1]),  # one chunk: 1F1B
        ("zb-h1", 1, [8, 8, 8]),
        ("zb-h2", 1, [15, 15, 15]),
        ("zb-v", 1, [8, 8, 8]),
        ("dualpipe", 1, [9, 9, 9]),
    ],
)
def test_live_microbatches(schedule: str, interleave: int, expected: list[float]) -> None:
    layout = training_layout(schedule=schedule, pipeline=8, interleave=interleave, global_batch=64)
    assert [float(live) for live in live_microbatches(layout)] == expected
    few = training_layout(schedule=schedule, pipeline=8, interleave=interleave, global_batch=2)
    assert max(float(live) for live in live_microbatches(few)) <= 2  # never more than there are


@given(p=st.integers(2, 32), m=st.integers(1, 300), v=st.integers(2, 4))
def test_micro_batches_that_are_no_multiple_of_the_stages_go_in_larger_groups(p: int, m: int, v: int) -> None:
    """A last group of fewer than p never ends (megatron/core/pipeline_parallel/schedules.py): the smallest groups that
    do are no smaller than what is counted, which is exact where they are equal: 12 on 8 stages all in one."""
    layout = training_layout(schedule="interleaved", interleave=v, pipeline=p, global_batch=m)
    group = next((g for g in range(p, m + 1) if m % g == 0 or m % g >= p), p)
    held, known = min((group * (v - 1) + 2 * p - 1) / v, m), float(live_microbatches(layout)[0])
    assert known <= held * (1 + 1e-6)
    if m % group == 0 and m // group == m // p or m < p:
        assert known == pytest.approx(held)


def test_only_dualpipe_keeps_two_copies() -> None:
    copies = [float(training_layout(schedule=name, pipeline=4).copies) for name in SCHEDULES]
    assert copies == [1, 1, 1, 1, 1, 1, 2]


@given(layers=st.integers(1, 200), pipeline=st.integers(1, 64))
def test_stages_hold_all_layers_and_none_more_than_a_full_one(layers: int, pipeline: int) -> None:
    stages = stage_layers(TrainingModel(layers=layers, hidden=1, vocab=1), Layout(pipeline=pipeline))
    first, middle, last = float(stages.first), float(stages.middle), float(stages.last)
    assert middle == math.ceil(layers / pipeline) >= max(first, last) and last <= first
    spare = middle * pipeline - layers
    if pipeline == 1:
        assert first == layers
    elif spare <= 2 * (middle - 1):
        assert first + last + (pipeline - 2) * middle == layers
    elif layers >= pipeline:  # between the ends every stage keeps a layer, and one is full
        assert first == last == 1
        assert pipeline - 3 + middle <= layers - 2 < (pipeline - 2) * middle


def test_the_first_rank_of_a_v_leaves_out_layers_for_both_ends() -> None:
    """42 layers on 4 and on 8 ranks: ZB-V has embedding and head on the first, which keeps a layer at each end."""
    for pipeline, expected in ((4, [9, 11, 11]), (8, [2, 6, 4])):
        layout = training_layout(schedule="zb-v", interleave=2, pipeline=pipeline)
        stages = stage_layers(TrainingModel(layers=42, hidden=1, vocab=1), layout)
        assert [float(n) for n in (stages.first, stages.middle, stages.last)] == expected


def test_llama_405b_stages() -> None:
    """126 layers on 16 stages: one layer less on the first and the last (arXiv:2407.21783, section 3.3.2)."""
    stages = stage_layers(TrainingModel(layers=126, hidden=1, vocab=1), Layout(pipeline=16))
    assert [float(n) for n in (stages.first, stages.middle, stages.last)] == [7, 8, 7]
