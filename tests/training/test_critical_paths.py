"""Pipelines of uneven stages and chunks against every pass of them played in its order."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.pipeline_events import interleaved, one_forward_one_backward
from jaxperf.core.numerics import as_float
from jaxperf.training.compute import Ends
from jaxperf.training.critical_paths import (
    StageTimes,
    gpipe_time,
    interleaved_time,
    one_forward_one_backward_time,
)
from jaxperf.training.layout import training_layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.overlap import Passes
from jaxperf.training.products import Phases
from jaxperf.training.schedules import Elsewhere, idle_time
from jaxperf.training.stages import stage_times

STAGES, CHUNKS, GROUPS = st.integers(2, 6), st.integers(2, 4), st.integers(1, 4)
SHARES = st.floats(0.2, 0.5)  # of a forward pass: with and without recomputation and frozen weights
chunked = jax.jit(interleaved_time)
in_turn = jax.jit(one_forward_one_backward_time)


def times(p: int, v: int, first: float, between: float, last: float) -> StageTimes:
    """Of one chunk each, the first and the last chunk of a pipeline different."""
    others = (v - 1) * between
    total = first + last + (p * v - 2) * between
    fields = (total, first + others, v * between, last + others, first, last)
    return StageTimes(*(as_float(each) for each in fields))


def formula(p: int, v: int, m: int, first: float, last: float, share: float) -> float:
    return float(chunked(times(p, v, first, 1.0, last), *map(as_float, (p, v, m, share))))


def played(p: int, v: int, m: int, first: float, last: float, share: float) -> float:
    chunks = np.ones((v, p))
    chunks[0, 0], chunks[-1, -1] = first, last
    return interleaved((share * chunks).tolist(), ((1.0 - share) * chunks).tolist(), m)


@settings(max_examples=40)
@given(p=st.integers(3, 6), v=CHUNKS, groups=GROUPS, first=st.floats(0, 1), last=st.floats(0, 3), share=SHARES)
def test_interleaved_chunks_end_when_they_are_played(
    p: int, v: int, groups: int, first: float, last: float, share: float
) -> None:
    """A first chunk with fewer layers and any last one: layers left out for the head, or a head that is longer."""
    point = p, v, groups * p, first, last, share
    assert formula(*point) == pytest.approx(played(*point), rel=1e-9)


@settings(max_examples=40)
@given(p=STAGES, v=CHUNKS, groups=GROUPS, first=st.floats(0, 1.1), last=st.floats(0, 2), share=SHARES)
def test_no_walk_is_longer_than_the_schedule(
    p: int, v: int, groups: int, first: float, last: float, share: float
) -> None:
    """A first chunk that an embedding makes longer, and on two stages, of which the first never lacks a layer, any last
    one: within 3 % on two stages and 0.5 % on more, and never above."""
    point = p, v, groups * p, 1.0 + 0.1 * first if p == 2 else first, last, share
    whole = played(*point)
    assert (0.97 if p == 2 else 0.995) * whole <= formula(*point) <= whole * (1.0 + 1e-9)


@settings(max_examples=40)
@given(v=CHUNKS, groups=GROUPS, first=st.floats(0.9, 1.05), last=st.floats(0.9, 3), share=SHARES)
def test_two_stages_of_nearly_even_chunks(v: int, groups: int, first: float, last: float, share: float) -> None:
    point = 2, v, 2 * groups, first, last, share
    assert formula(*point) == pytest.approx(played(*point), rel=2e-3)


@settings(max_examples=40)
@given(p=STAGES, v=CHUNKS, m=st.integers(1, 5), first=st.floats(0, 1), last=st.floats(0, 3), share=SHARES)
def test_fewer_microbatches_than_stages(p: int, v: int, m: int, first: float, last: float, share: float) -> None:
    point = p, v, min(m, p - 1), first, last, share
    assert formula(*point) == pytest.approx(played(*point), rel=1e-9)


@given(
    p=STAGES, v=CHUNKS, m=st.integers(1, 40), first=st.floats(0, 2), last=st.floats(0, 2), share=SHARES,
    more=st.floats(0, 1), which=st.integers(0, 2),
)  # fmt: skip
def test_no_chunk_that_takes_longer_makes_a_step_shorter(
    p: int, v: int, m: int, first: float, last: float, share: float, more: float, which: int
) -> None:
    ends = [first, 1.0, last]
    shorter = float(chunked(times(p, v, *ends), *map(as_float, (p, v, m, share))))
    ends[which] += more
    assert float(chunked(times(p, v, *ends), *map(as_float, (p, v, m, share)))) >= shorter * (1.0 - 1e-12)


@settings(max_examples=60)
@given(
    p=STAGES, m=st.integers(1, 16), first=st.floats(0.1, 2), between=st.floats(0.1, 2), last=st.floats(0.1, 2),
    share=SHARES,
)  # fmt: skip
def test_stages_of_one_chunk_end_when_they_are_played(
    p: int, m: int, first: float, between: float, last: float, share: float
) -> None:
    """1F1B, whichever stage is the longest."""
    work = np.repeat(np.array([first, *[between] * (p - 2), last])[:, None], m, axis=1)
    whole = float(one_forward_one_backward(share * work, (1.0 - share) * work))
    got = in_turn(times(p, 1, first, between, last), *map(as_float, (p, m, share)))
    assert float(got) == pytest.approx(whole, rel=1e-9)


def test_gpipe_waits_for_the_longest_stage_once_a_microbatch() -> None:
    three = times(3, 1, 1.0, 2.0, 4.0)
    assert float(gpipe_time(three, as_float(3.0), as_float(5.0))) == 7.0 + 4 * 4.0
    two = replace(times(2, 1, 1.0, 9.0, 4.0), total=as_float(5.0))
    assert float(gpipe_time(two, as_float(2.0), as_float(5.0))) == 5.0 + 4 * 4.0  # none between


@pytest.mark.parametrize(
    ("layers", "p", "v", "counts"),
    [
        (126, 16, 2, [3, *[4] * 30, 3]),  # Llama 3, one layer left out at each end
        (61, 4, 4, [3, *[4] * 14, 2]),
        (42, 8, 2, [0, *[3] * 14, 0]),  # an end's three layers are those of its other chunk
        (80, 4, 5, [4] * 20),
    ],
)
@pytest.mark.parametrize("m", [1, 4])
def test_a_step_idles_as_long_as_its_layers_played_one_by_one(
    layers: int, p: int, v: int, counts: list[int], m: int
) -> None:
    """A head as long as two layers and a short embedding; `m` rounds of micro-batches."""
    chunks = np.array(counts, float).reshape(v, p)
    chunks[0, 0], chunks[-1, -1] = chunks[0, 0] + 0.01, chunks[-1, -1] + 2.0
    model = TrainingModel(layers=layers, hidden=1, vocab=1)
    layout = training_layout(schedule="interleaved", pipeline=p, interleave=v, global_batch=m * p)
    ends = Ends(embedding=as_float(0.01), head=as_float(2.0))
    busiest = float(chunks.sum(axis=0).max())
    work = stage_times(model, layout, as_float(1.0), ends, [as_float(0.0)] * 3)
    passes = Phases(*(as_float(share * busiest) for share in (0.3, 0.4, 0.3)))
    none = Passes(as_float(0.0), as_float(0.0))
    idle = idle_time(layout, work, as_float(busiest), passes, none, Elsewhere(as_float(0.0), none))
    whole = interleaved((0.3 * chunks).tolist(), (0.7 * chunks).tolist(), m * p)
    assert m * p * busiest + float(idle) == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize("v", [2, 4])
def test_what_an_end_waits_for_alone_is_waited_for_in_its_outermost_chunk(v: int) -> None:
    """The last stage gathers a table (ZeRO-3), four stages of eight layers that all gather theirs: the step is no
    shorter than the work of that stage, as it was while its other chunks were taken to be as quick as everybody's."""
    p, m, layers, table = 4, 16, 32, 3.0
    waits = [0.5, 0.5, 0.5 + table]
    chunks = np.full((v, p), (layers / p + 0.5) / v)
    chunks[-1, -1] += table
    model = TrainingModel(layers=layers, hidden=1, vocab=1)
    layout = training_layout(schedule="interleaved", pipeline=p, interleave=v, global_batch=m)
    none = Ends(embedding=as_float(0.0), head=as_float(0.0))
    work = stage_times(model, layout, as_float(1.0), none, [as_float(each) for each in waits])
    whole = float(chunked(work, *map(as_float, (p, v, m, 0.3))))
    assert whole == pytest.approx(interleaved((0.3 * chunks).tolist(), (0.7 * chunks).tolist(), m), rel=1e-9)
    assert whole > m * float(work.last)


def test_gradients_count_the_passes_of_the_longest_walk() -> None:
    """A head that makes the last chunk longest: in each of the 12 micro-batches, and the first chunk once."""

    def whole(first: float, last: float) -> jax.Array:
        return interleaved_time(times(4, 3, first, 1.0, last), *map(as_float, (4.0, 3.0, 12.0, 0.3)))

    assert [float(each) for each in jax.grad(whole, (0, 1))(as_float(0.5), as_float(1.5))] == [1.0, 12.0]
