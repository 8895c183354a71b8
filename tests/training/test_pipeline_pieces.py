"""Schedules whose backward pass comes in pieces, and all live micro-batches, against every pass played in its order."""

from __future__ import annotations

import jax
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.pipeline_events import interleaved, most_held
from benchmarks.pipeline_pieces import handcrafted, most_live, play, two_ways, vee
from jaxperf.core.numerics import as_float
from jaxperf.training.critical_paths import StageTimes
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.overlap import Passes
from jaxperf.training.products import Phases
from jaxperf.training.schedules import Elsewhere, idle_time, live_microbatches

Work = tuple[float, float, float]  # F, B, W
PIECES = {
    "zb-h1": lambda p, m: handcrafted(p, m, 1),
    "zb-h2": lambda p, m: handcrafted(p, m, 2),
    "zb-v": vee,
    "dualpipe": two_ways,
}
SHARES = st.floats(0.0, 1.0)
WORK = st.tuples(st.floats(0.3, 1.5), st.floats(0.3, 3.0), st.floats(0.0, 1.5))


@jax.jit
def _idle(layout: Layout, times: StageTimes, busiest: jax.Array, passes: Phases, elsewhere: jax.Array) -> jax.Array:
    none = Passes(as_float(0.0), as_float(0.0))
    return idle_time(layout, times, busiest, passes, none, Elsewhere(elsewhere, none))


def formula(schedule: str, p: int, m: int, work: Work, v: int = 1) -> float:
    """A step of even stages that take `work` for a micro-batch."""
    layout = training_layout(schedule=schedule, pipeline=p, global_batch=m, interleave=v)
    whole = sum(work)
    times = StageTimes(*(as_float(each) for each in (p * whole, whole, whole, whole, whole / v, whole / v)))
    idle = _idle(layout, times, as_float(whole), Phases(*map(as_float, work)), as_float((p - 1) * work[2]))
    return m * whole + float(idle)


def uneven(schedule: str, m: int, work: Work, ranks: list[float]) -> float:
    """A step of ranks of unlike length, all with `work` that can be put off."""
    layout = training_layout(schedule=schedule, pipeline=len(ranks), global_batch=m)
    numbers = (sum(ranks), ranks[0], ranks[1], ranks[-1], ranks[0], ranks[-1])
    times, passes = StageTimes(*map(as_float, numbers)), Phases(*map(as_float, work))
    others = as_float((len(ranks) - 1) * work[2])
    return max(m * each + float(_idle(layout, times, as_float(each), passes, others)) for each in set(ranks))


def played(schedule: str, p: int, m: int, work: Work, last: float = 1.0) -> list[tuple[float, float]]:
    """Begin and end of each rank; `last`: how much longer the last stage takes, in ZB-V that of the first rank's."""
    orders, paths = PIECES[schedule](p, m)
    stages = 2 if schedule in ("zb-v", "dualpipe") else 1
    share = 0.5 if schedule == "zb-v" else 1.0
    times = {kind: [[share * each] * stages for _ in range(p)] for kind, each in zip("FBW", work, strict=True)}
    for path in paths:
        rank, stage = path[-1]
        for kind in times:
            times[kind][rank][stage] *= last
    return play(orders, paths, times)


def longest(ranks: list[tuple[float, float]]) -> float:
    """The busiest rank from its first pass to its last: from step to step, where each updates as it ends."""
    return max(end - begin for begin, end in ranks)


def enough(schedule: str, p: int, m: int) -> tuple[int, int]:
    return (2 * (p // 2), max(m // 2 * 2, 4 * (p // 2))) if schedule == "dualpipe" else (p, m)


@settings(max_examples=60)
@example(schedule="dualpipe", p=4, m=8, work=(1.5, 1.0, 1.0))  # F longer than B
@example(schedule="dualpipe", p=4, m=8, work=(0.5, 1.0, 1.5))  # W longer than either
@given(schedule=st.sampled_from(("zb-h1", "zb-h2", "dualpipe")), p=st.integers(2, 6), m=st.integers(1, 14), work=WORK)
def test_steps_in_pieces_take_as_long_as_when_they_are_played(schedule: str, p: int, m: int, work: Work) -> None:
    """Whatever the passes in DualPipe, and in the others where no W is longer than the gap that it is put into."""
    p, m = enough(schedule, p, m)
    forward, backward, weight = work
    if schedule != "dualpipe":
        weight = min(weight, forward, backward)
    work = forward, backward, weight
    assert formula(schedule, p, m, work) == pytest.approx(longest(played(schedule, p, m, work)), rel=1e-9)


@settings(max_examples=40)
@given(p=st.integers(2, 6), more=st.integers(0, 9), forward=st.floats(0.3, 1.5), longer=SHARES, weight=SHARES)
def test_a_v_of_many_micro_batches(p: int, more: int, forward: float, longer: float, weight: float) -> None:
    """W no longer than F, and this no longer than B, as where attention or recomputation is in B."""
    work = forward, forward * (1.0 + 2.0 * longer), forward * weight
    m = 2 * p - 1 + more
    assert formula("zb-v", p, m, work) == pytest.approx(longest(played("zb-v", p, m, work)), rel=1e-9)


@settings(max_examples=40)
@given(p=st.integers(2, 6), m=st.integers(1, 14), forward=st.floats(0.3, 1.5), longer=SHARES, weight=SHARES)
def test_a_v_of_few_micro_batches(p: int, m: int, forward: float, longer: float, weight: float) -> None:
    work = forward, forward * (0.8 + 2.0 * longer), forward * 1.1 * weight
    assert formula("zb-v", p, m, work) == pytest.approx(longest(played("zb-v", p, m, work)), rel=0.05)


@settings(max_examples=60)
@given(
    schedule=st.sampled_from(tuple(PIECES)), p=st.integers(2, 8), m=st.integers(4, 24), last=st.floats(1.0, 2.5),
    backward=st.floats(1.0, 2.5), weight=st.floats(0.5, 1.0),
)  # fmt: skip
def test_pipelines_with_a_longer_end(
    schedule: str, p: int, m: int, last: float, backward: float, weight: float
) -> None:
    """A head on the last stage: no step is shorter than when it is played, nor more than an eighth longer."""
    p, m = enough(schedule, p, max(m, 2 * p))
    work = 1.0, backward, weight
    whole, head = sum(work), (last - 1.0) * sum(work)
    ranks = [whole] * p
    for rank, share in {"zb-v": {0: 0.5}, "dualpipe": {0: 0.5, p - 1: 0.5}}.get(schedule, {p - 1: 1.0}).items():
        ranks[rank] += share * head
    real = longest(played(schedule, p, m, work, last))
    assert real * (1.0 - 1e-9) <= uneven(schedule, m, work, ranks) <= 1.125 * real


@pytest.mark.parametrize(("schedule", "later"), [("zb-h1", 0.0), ("zb-h2", 1.0), ("zb-v", 0.5), ("dualpipe", 0.0)])
def test_a_step_that_waits_for_all_ranks_is_longer(schedule: str, later: float) -> None:
    """(p - 1) F of ZB-H2, half of it of ZB-V: the last rank begins so much later, and all end together."""
    ranks = played(schedule, 4, 16, (1.0, 1.0, 1.0))
    assert max(end for _, end in ranks) - formula(schedule, 4, 16, (1.0, 1.0, 1.0)) == pytest.approx(3 * later)


@given(p=st.integers(2, 6), v=st.integers(2, 4), m=st.integers(1, 26), forward=st.floats(0.2, 0.5))
@settings(max_examples=40)
def test_interleaved_micro_batches_that_are_no_multiple_of_the_stages(p: int, v: int, m: int, forward: float) -> None:
    """In the smallest groups that end: as long as in groups of p, but more are held."""
    work = forward, 1.0 - forward, 0.0
    chunks = [[1.0 / v] * p] * v
    forwards, backwards = ([[share * each for each in row] for row in chunks] for share in work[:2])
    whole = interleaved(forwards, backwards, m)
    assert formula("interleaved", p, m, work, v) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("schedule", PIECES)
def test_most_live_passes_are_those_that_a_rank_holds_when_it_is_played(schedule: str) -> None:
    """From each F to its W, in units of both stages of a rank where it has two halves of the layers (ZB-V)."""
    for p, m in ((4, 16), (4, 3), (6, 12)):
        p, m = enough(schedule, p, m)
        orders, _ = PIECES[schedule](p, m)
        halves = 2 if schedule == "zb-v" else 1
        counted = live_microbatches(training_layout(schedule=schedule, pipeline=p, global_batch=m))
        assert halves * float(counted[0]) == max(map(most_live, orders))


@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 16), (4, 3, 4), (8, 2, 12), (5, 2, 15), (4, 2, 3)])
def test_most_live_chunks_are_those_that_a_stage_holds_when_it_is_played(p: int, v: int, m: int) -> None:
    counted = live_microbatches(training_layout(schedule="interleaved", pipeline=p, interleave=v, global_batch=m))
    held = [most_held(stage, p, v, m) / v for stage in (0, 1, p - 1)]
    assert [float(each) for each in counted] == pytest.approx(held)
