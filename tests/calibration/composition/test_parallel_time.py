"""Iterations over several devices from the times of their stages, and the times of what devices send."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from calibration.composition.batches_links import ASSUMED_LINK, all_reduce_time, curve_of
from calibration.composition.parallel import Layout
from calibration.composition.parallel_links import ideal_reduction, ideal_sending, reduction_time, sending_time
from calibration.composition.parallel_stages import stages_of, update_graph
from calibration.composition.parallel_time import Links, StageTimes, pipeline_time, with_communication
from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.models.workloads.counts import op_bytes, parameter_bytes

pytestmark = pytest.mark.usefixtures("plain_jax")

WORK = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=6)


def gpipe(work: list[tuple[int, int]], microbatches: int) -> int:
    """All micro-batches forward through the stages, then all backward, each stage one at a time."""
    done = [0] * len(work)
    for _ in range(microbatches):
        arrived = 0
        for stage, (forward, _) in enumerate(work):
            arrived = done[stage] = max(arrived, done[stage]) + forward
    done = [done[-1]] * len(work)
    for _ in range(microbatches):
        arrived = 0
        for stage, (_, backward) in reversed(list(enumerate(work))):
            arrived = done[stage] = max(arrived, done[stage]) + backward
    return done[0]


def one_f_one_b(work: list[tuple[int, int]], microbatches: int) -> int:
    """Every stage runs ahead by as many forward passes as stages follow it, then alternates."""
    stages = len(work)
    orders = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, microbatches)
        order = [("F", m) for m in range(ahead)]
        for m in range(microbatches - ahead):
            order += [("F", ahead + m), ("B", m)]
        orders.append(order + [("B", m) for m in range(microbatches - ahead, microbatches)])
    ended: dict[tuple[str, int, int], int] = {}
    clock, place = [0] * stages, [0] * stages
    while any(at < len(order) for at, order in zip(place, orders, strict=True)):
        for stage, order in enumerate(orders):
            if place[stage] == len(order):
                continue
            kind, m = order[place[stage]]
            outer = stage == 0 if kind == "F" else stage == stages - 1
            need = None if outer else (kind, stage - 1 if kind == "F" else stage + 1, m)
            if need is None or need in ended:
                start = max(clock[stage], ended[need] if need else 0)
                clock[stage] = ended[kind, stage, m] = start + work[stage][kind == "B"]
                place[stage] += 1
    return max(clock)


def formula(work: list[tuple[int, int]], microbatches: int) -> float:
    return pipeline_time([StageTimes(float(f), float(b), 0.0) for f, b in work], microbatches)


@given(stages=st.integers(1, 6), forward=st.integers(1, 50), backward=st.integers(1, 50), m=st.integers(1, 12))
def test_alike_stages_take_what_both_schedules_take(stages: int, forward: int, backward: int, m: int):
    work = [(forward, backward)] * stages
    assert formula(work, m) == gpipe(work, m) == one_f_one_b(work, m)


@given(work=WORK)
def test_one_micro_batch_goes_through_every_stage(work: list[tuple[int, int]]):
    assert formula(work, 1) == sum(f + b for f, b in work) == gpipe(work, 1)


@given(work=WORK, m=st.integers(1, 12))
def test_other_stages_take_between_the_slowest_alone_and_gpipe(work: list[tuple[int, int]], m: int):
    assert m * max(f + b for f, b in work) <= formula(work, m) <= gpipe(work, m)


def test_alike_stages_count_as_often_as_there_are():
    once = [StageTimes(1.0, 2.0, 0.5), *[StageTimes(2.0, 3.0, 0.25)] * 3]
    counted = [StageTimes(1.0, 2.0, 0.5), StageTimes(2.0, 3.0, 0.25, count=3)]
    assert pipeline_time(once, 4) == pipeline_time(counted, 4) == 3 + 15 + 3 * 5 + 0.5


# --- what is sent -----------------------------------------------------------------------------------------------------


def messages(layout: Layout) -> list[tuple[str, tuple[float, ...]]]:
    """Every message of the stages of GPT-2 in a layout."""
    sent: list[tuple[str, tuple[float, ...]]] = []

    def reduction(ranks: int, span: int, size: float) -> float:
        sent.append(("reduction", (ranks, span, size)))
        return 0.0

    def sending(size: float) -> float:
        sent.append(("sending", (size,)))
        return 0.0

    for stage in stages_of(load_model("gpt2"), layout, 64, 8):
        with_communication(stage, StageTimes(1.0, 2.0, 0.0), layout, Links(reduction, sending))
    return sent


def test_the_bytes_of_every_kind_of_communication():
    parameters, stream = 124_439_808, 4 * 8 * 64 * 768  # GPT-2's published 124 M; fp32 [8, 64, 768]
    assert ("reduction", (4, 4, 4.0 * parameters)) in messages(Layout(data_parallel=4))
    assert ("reduction", (4, 4, stream)) in messages(Layout(tensor_parallel=4))
    ((_, first), (_, table), (_, replicas), *_) = (
        message for message in messages(Layout(2, 2, 2, 1)) if message[0] == "reduction"
    )
    assert first == (2, 2, stream / 2)
    assert table == (2, 8, 4 * 25216 * 768)  # 50257 rows padded to 2 x 25216, of one of two devices
    assert replicas[:2] == (2, 4)
    assert ("sending", (stream / 2,)) in messages(Layout(2, 2, 2, 1))


def test_two_reductions_a_layer_and_pass_and_one_at_either_end():
    (stage,) = stages_of(load_model("gpt2"), Layout(tensor_parallel=2), 64, 8)
    links = Links(lambda ranks, span, size: 1.0 if ranks > 1 else 0.0, lambda size: 0.0)
    times = with_communication(stage, StageTimes(0.0, 0.0, 0.0), Layout(tensor_parallel=2), links)
    assert (times.forward, times.backward, times.after) == (2 * 12 + 1, 2 * 12 + 1, 0.0)


def test_every_boundary_is_crossed_once_in_each_direction():
    layout = Layout(pipeline_parallel=4, microbatches=2)
    stages = stages_of(load_model("gpt2"), layout, 64, 8)
    assert [stage.count for stage in stages] == [1, 2, 1]
    links = Links(lambda ranks, span, size: 0.0, lambda size: 1.0)
    times = [with_communication(s, StageTimes(0.0, 0.0, 0.0, s.count), layout, links) for s in stages]
    assert sum(each.count * each.forward for each in times) == 3
    assert sum(each.count * each.backward for each in times) == 3


def test_a_batch_that_does_not_divide_says_so():
    with pytest.raises(InputError, match="A batch of 6 sequences does not divide into 2 .replicas. x 2"):
        stages_of(load_model("gpt2"), Layout(data_parallel=2, microbatches=2), 64, 6)


def test_the_update_reads_and_writes_what_adam_and_clipping_need():
    """Fill 1, norm 1, clip 2, and Adam 4 read and 3 written, in tensors of the size of the weights."""
    (stage,) = stages_of(load_model("gpt2"), Layout(data_parallel=2), 64, 8)
    size = parameter_bytes(stage.graph)
    update = update_graph(stage.graph)
    moved = sum(op_bytes(op) for node in update.nodes for op in node.ops())
    assert moved == pytest.approx((1 + 1 + 2 + 7) * size, rel=1e-6)


# --- links ------------------------------------------------------------------------------------------------------------


def test_a_group_in_one_node_follows_the_measured_curve():
    spec = hwspecs.load("a100-sxm-80gb")
    curve = curve_of("a100-sxm-80gb", 4, 0, np.log([2.0**16, 2.0**26]), np.log([2e-5, 5e-4]))
    assert reduction_time([curve], spec, 4, 4, 2.0**26) == all_reduce_time([curve], spec, 4, 2.0**26)
    assert reduction_time([curve], spec, 4, 8, 2.0**26) == pytest.approx(5e-4)
    assert reduction_time([curve], spec, 4, 9, 2.0**26) > 1e-3  # nine devices are more than a node
    assert reduction_time([curve], spec, 1, 1, 2.0**26) == 0.0


def test_a_group_over_nodes_is_hierarchical():
    """Every other place of two nodes of eight: two-shot over four ranks inside, rings of the shards between."""
    spec = hwspecs.load("h100-sxm")
    node, size = spec.node, 1e9
    inside = 2 * node.link_latency.si + 2 * 3 / 4 * size / (ASSUMED_LINK * node.link_bandwidth.si)
    between = 2 * (node.network_latency.si + size / 4 / 2 / (ASSUMED_LINK * node.network_bandwidth.si))
    assert reduction_time([], spec, 8, 16, size) == pytest.approx(inside + between, rel=1e-5)
    ideal = 2 * 3 / 4 * size / node.link_bandwidth.si + 2 / 2 * size / 4 / node.network_bandwidth.si
    assert ideal_reduction(spec, 8, 16, size) == pytest.approx(ideal)


@given(
    ranks=st.integers(2, 256), apart=st.sampled_from([1, 2, 4, 8, 16]), exponent=st.floats(4, 33), more=st.floats(1, 4)
)
@settings(max_examples=40, deadline=None)
def test_nothing_is_faster_than_the_published_links(ranks: int, apart: int, exponent: float, more: float):
    spec, size = hwspecs.load("h100-sxm"), 2.0**exponent
    time = reduction_time([], spec, ranks, ranks * apart, size)
    assert math.isfinite(time) and time >= ideal_reduction(spec, ranks, ranks * apart, size)
    assert reduction_time([], spec, ranks, ranks * apart, more * size) >= time * (1 - 1e-6)
    for devices in (ranks, 8):
        assert sending_time(spec, devices, size) >= ideal_sending(spec, devices, size)
