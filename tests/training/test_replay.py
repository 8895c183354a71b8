"""Replay against hand-made schedules, against every rank replayed by itself, and against the closed forms."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.device import Device, load_device
from jaxperf.core.numerics import as_float
from jaxperf.network.link import split_fabric
from jaxperf.training.replay import run
from jaxperf.training.replay.demands import Rules
from jaxperf.training.replay.messages import MESSAGE_TIMES
from jaxperf.training.replay.prices import Machine, assumed_machine
from jaxperf.training.replay.ranks import Classes
from jaxperf.training.replay.run import Replay, replay
from jaxperf.training.replay.schedule import Job, list_schedule
from jaxperf.training.replay.trace import Operation, Trace, find_circle
from jaxperf.training.replay.world import World, placement, world_of

H100 = load_device("h100-sxm").replace(launch_latency=as_float(0.0))
ROOFLINE = assumed_machine(H100, level="high")
MILLI = 1e-3


def machine(device: Device = H100) -> Machine:
    return assumed_machine(device, level="high")


def message(what: str, size: float, local_ranks: int, nodes: int, device: Device = H100) -> float:
    fabric = split_fabric(device, as_float(local_ranks), as_float(nodes), as_float(1.0))
    return float(MESSAGE_TIMES[what](fabric, as_float(size)))


def work(id: int, after: tuple[int, ...] = (), duration: float = MILLI, kind: str = "compute") -> Operation:
    return Operation(id, f"w{id}", kind, after, duration)


def collective(id: int, what: str, size: float, after: tuple[int, ...] = (), **more: Any) -> Operation:
    return Operation(id, f"c{id}", "collective", after, collective=what, size=size, **more)


def recorded(traces: Sequence[Trace], world: World | None = None, **more: Any) -> Replay:
    rules = Rules(True, more.pop("sharded", ()))
    return replay(traces, world or world_of(traces), more.pop("machine", ROOFLINE), rules, **more)


# --- the schedule


@st.composite
def job_lists(draw: st.DrawFn, streams: int) -> list[Job]:
    count = draw(st.integers(1, 12))
    jobs = []
    for index in range(count):
        before = tuple(draw(st.lists(st.integers(0, index - 1), unique=True, max_size=3))) if index else ()
        own = tuple(draw(st.lists(st.integers(0, streams - 1), unique=True, max_size=2))) if streams else (index,)
        jobs.append(Job(before, own, float(draw(st.integers(0, 9)))))
    return jobs


@given(job_lists(0))
def test_without_shared_streams_a_schedule_is_the_longest_path(jobs: list[Job]) -> None:
    ends: list[float] = []
    for job in jobs:
        ends.append(job.duration + max((ends[index] for index in job.before), default=0.0))
    assert list_schedule(jobs).end == tuple(ends)


@given(job_lists(3))
def test_every_schedule_is_feasible_busy_and_explained_by_its_critical_path(jobs: list[Job]) -> None:
    found = list_schedule(jobs)
    for index, job in enumerate(jobs):
        assert found.end[index] == found.start[index] + job.duration
        assert all(found.end[other] <= found.start[index] for other in job.before)
        assert found.start[index] == (found.end[found.binding[index]] if found.binding[index] >= 0 else 0.0)
    for one, other in itertools.combinations(range(len(jobs)), 2):
        if set(jobs[one].streams) & set(jobs[other].streams) and jobs[one].duration and jobs[other].duration:
            assert found.end[one] <= found.start[other] or found.end[other] <= found.start[one]
    assert sum(jobs[index].duration for index in found.critical_path()) == found.time
    assert list_schedule(jobs) == found


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_one_stream_runs_one_job_after_the_other(durations: list[int]) -> None:
    assert list_schedule([Job((), ("s",), float(each)) for each in durations]).time == sum(durations)


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=6, max_size=6))
def test_a_circle_is_found_exactly_where_there_is_one(before: list[list[int]]) -> None:
    reach = [set(each) for each in before]
    for middle, one in itertools.product(range(6), range(6)):
        reach[one] |= reach[middle] if middle in reach[one] else set()
    circle = find_circle(before)
    assert bool(circle) == any(each in reach[each] for each in range(6))
    assert all(later in before[earlier] for earlier, later in zip(circle, circle[1:] + circle[:1], strict=True))


# --- one rank, equal ranks


def test_an_all_reduce_hides_behind_computation_and_only_the_last_shows() -> None:
    size = 1e8
    steps = [work(0), collective(1, "all_reduce", size, (0,)), work(2, (0,)), collective(3, "all_reduce", size, (2,))]
    found = recorded([Trace(0, tuple(steps))], world_of([Trace(0, tuple(steps))], 64, 8))
    each = message("all_reduce", size, 8, 8)
    assert 0.1 * MILLI < each < MILLI
    assert found.time == pytest.approx(2 * MILLI + each, rel=1e-12)
    (rank,) = found.ranks
    assert (rank.ranks, rank.compute) == (64, pytest.approx(2 * MILLI))
    assert rank.communication == pytest.approx(2 * each)
    assert rank.exposed_communication == pytest.approx(each)
    assert dict(found.critical) == {"compute": pytest.approx(2 * MILLI), "all_reduce": pytest.approx(each)}


def test_work_takes_the_roofline() -> None:
    steps = (
        Operation(0, "", "compute", flops=1e12, bytes_moved=1.0),
        Operation(1, "", "compute", (0,), flops=1.0, bytes_moved=1e9),
        Operation(2, "", "none", (1,)),
    )
    found = replay([Trace(0, steps)], world_of([Trace(0, steps)]), ROOFLINE)
    expected = 1e12 / float(H100.peak_flops[3]) + 1e9 / float(H100.memory_bandwidth)
    assert found.time == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ranks", [1, 3, 8, 10_000, 65_536])
def test_any_number_of_ranks_is_replayed_as_one(ranks: int) -> None:
    steps = []
    for layer in range(200):
        steps.append(work(2 * layer, (2 * layer - 2,) if layer else ()))
        steps.append(collective(2 * layer + 1, "all_reduce", 1e7, (2 * layer,)))
    trace = Trace(0, tuple(steps))
    found = recorded([trace], world_of([trace], ranks))
    (alike,) = found.ranks  # one of them is worked through for all
    assert alike.ranks == ranks
    last = message("all_reduce", 1e7, min(ranks, 8), -(-ranks // 8))
    assert found.time == pytest.approx(200 * MILLI + last, rel=1e-9)


def test_a_sharded_gather_keeps_its_whole_buffer_and_a_plain_one_its_shards() -> None:
    trace = Trace(0, (collective(0, "all_gather", 1e6),))
    world = world_of([trace], 32, 8)
    assert recorded([trace], world).time == pytest.approx(message("all_gather", 32e6, 8, 4), rel=1e-12)
    kept = recorded([trace], world, sharded=world.names_of(["world"]))
    assert kept.time == pytest.approx(message("all_gather", 8e6, 8, 4), rel=1e-12)


@pytest.mark.parametrize(("what", "passes"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)])
def test_links_of_nodes_and_network_move_chunks_at_once(what: str, passes: int) -> None:
    """64 H100: 7/8 S over 450 GB/s in the nodes, 7/8 S/8 over 50 GB/s between them; added up it would be 1.9 times."""
    size = 2.0**36  # beside which latencies are nothing
    assert message(what, size, 8, 8) == pytest.approx(passes * 7 / 8 * size / 400e9, rel=1e-3)
    slow = H100.replace(link_bandwidth=as_float(100e9))
    assert message(what, size, 8, 8, slow) == pytest.approx(passes * 7 / 8 * size / 100e9, rel=1e-3)
    empty, alone, one = (message(what, 1e-9, *shape) for shape in ((8, 8), (1, 8), (8, 1)))
    hops = {"all_reduce": 2 * float(H100.link_latency)}.get(what, one)
    assert empty == pytest.approx(hops + alone)


@pytest.mark.parametrize("what", ["broadcast", "reduce"])
def test_a_broadcast_goes_through_all_ports_of_a_node(what: str) -> None:
    """S over 400 GB/s of eight ports, and over 50 of one where each node has one rank; filling the chains is 1.5 %."""
    size = 2.0**36
    assert message(what, size, 8, 4) == pytest.approx(size / 400e9, rel=2e-2)
    assert message(what, size, 1, 4) == pytest.approx(size / 50e9, rel=2e-2)


def test_a_node_with_few_ranks_bounds_what_passes_it() -> None:
    """Of 12 ranks on nodes of eight, four ports take in the shards of the other eight; of 11 that lie 7, 3 and 1, one
    port those of ten."""
    size = 2.0**30  # beside which latencies are little
    gather = collective(0, "all_gather", size)
    dense = Trace(0, (gather,))
    assert replay([dense], world_of([dense], 12, 12), machine()).time == pytest.approx(8 * size / (4 * 50e9), rel=2e-3)
    apart = Trace(0, (collective(0, "all_gather", size, group="far"),), {"far": (*range(7), 8, 9, 10, 16)})
    world = world_of([apart], 24, 24)
    assert replay([apart], world, machine()).time == pytest.approx(10 * size / 50e9, rel=2e-3)
    assert replay([dense], world_of([dense], 16, 16), machine()).time < 8 * size / (4 * 50e9)


# --- several ranks


def pipeline(stages: int, batches: int, replicas: int = 1, seconds: float = MILLI, size: float = 1e6) -> list[Trace]:
    """Forward passes of a pipeline, every stage as often as there are replicas: rank = stage replicas + replica; the
    replicas of a stage meet in an all-reduce at the end."""
    traces = []
    for stage, replica in itertools.product(range(stages), range(replicas)):
        rank, steps = stage * replicas + replica, []
        for batch in range(batches):
            after: tuple[int, ...] = ()
            if stage > 0:
                steps.append(Operation(3 * batch, "", "receive", size=size, peer=rank - replicas))
                after = (3 * batch,)
            steps.append(work(3 * batch + 1, after, seconds))
            if stage < stages - 1:
                steps.append(Operation(3 * batch + 2, "", "send", (3 * batch + 1,), size=size, peer=rank + replicas))
        end = 3 * batches
        steps.append(collective(end, "all_reduce", 1e8, (end - 2,), group=f"stage{stage}"))
        groups = {f"stage{stage}": tuple(stage * replicas + each for each in range(replicas))}
        traces.append(Trace(rank, tuple(steps), groups, {f"stage{stage}": "data"}))
    return traces


@pytest.mark.parametrize(("stages", "batches"), [(1, 3), (4, 1), (4, 6), (8, 3)])
def test_a_pipeline_takes_its_batches_and_its_filling(stages: int, batches: int) -> None:
    found = recorded(pipeline(stages, batches))
    step = message("send", 1e6, 2, 1)
    assert found.time == pytest.approx((stages - 1 + batches) * MILLI + (stages - 1) * step, rel=1e-12)


def alone(traces: Sequence[Trace], *_: Any) -> Classes:
    each = tuple(range(len(traces)))
    return Classes(each, each, (1,) * len(each))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.sampled_from([2, 4, 8]))
def test_one_rank_of_each_class_has_the_times_of_all(stages: int, batches: int, replicas: int, node: int) -> None:
    device = H100.replace(node_size=as_float(node))
    traces = pipeline(stages, batches, replicas)
    collapsed = recorded(traces, machine=machine(device))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "classes_of", alone)
        whole = recorded(traces, machine=machine(device))
    assert len(whole.ranks) == stages * replicas == sum(each.ranks for each in collapsed.ranks)
    assert len(collapsed.ranks) <= len(whole.ranks)
    assert collapsed.time == pytest.approx(whole.time, rel=1e-12)
    own = {each.rank: each for each in whole.ranks}
    for each in collapsed.ranks:
        assert each.time == pytest.approx(own[each.rank].time, rel=1e-12)
        assert each.exposed_communication == pytest.approx(own[each.rank].exposed_communication, rel=1e-9, abs=1e-15)


def test_inner_stages_are_told_apart_and_replicas_are_not() -> None:
    found = recorded(pipeline(4, 2, 2))
    assert [(each.rank, each.ranks) for each in found.ranks] == [(0, 2), (2, 2), (4, 2), (6, 2)]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2, 4, 6]), st.sampled_from([1, 2, 3, 8]))
def test_growing_a_recorded_run_is_recording_the_grown_one(stages: int, batches: int, small: int, factor: int) -> None:
    traces = pipeline(stages, batches, small)
    world = world_of(traces, stages * small * factor, grow=["data"])
    grown = recorded(traces, world)
    direct = recorded(pipeline(stages, batches, small * factor))
    assert grown.time == pytest.approx(direct.time, rel=1e-12)
    back = world_of(pipeline(stages, batches, small * factor), stages * small, grow=["data"])
    assert recorded(pipeline(stages, batches, small * factor), back).time == pytest.approx(
        recorded(traces).time, rel=1e-12
    )


def test_a_slow_rank_delays_those_that_meet_it() -> None:
    slow = [Trace(rank, (work(0, (), MILLI * (1 + rank)), collective(1, "all_reduce", 1e6, (0,)))) for rank in range(4)]
    found = recorded(slow, world_of(slow, 4))
    assert found.time == pytest.approx(4 * MILLI + message("all_reduce", 1e6, 4, 1), rel=1e-12)
    assert [each.ranks for each in found.ranks] == [1, 1, 1, 1]


def test_a_name_may_be_of_other_ranks_in_another_trace() -> None:
    """As PyTorch's, of which each rank records its own groups: the halves of four ranks, both "tp"."""
    halves = [{"tp": (0, 1)}, {"tp": (0, 1)}, {"tp": (2, 3)}, {"tp": (2, 3)}]
    step = (collective(0, "all_reduce", 1e8, group="tp"),)
    traces = [Trace(rank, step, groups) for rank, groups in enumerate(halves)]
    found = recorded(traces)
    assert found.time == pytest.approx(message("all_reduce", 1e8, 2, 1))
    assert world_of(traces, 8, grow=["tp"]).grown_size == 4
    crossed = [Trace(0, step, {"tp": (0, 1)}), Trace(1, step, {"tp": (0, 1, 2)})]
    with pytest.raises(InputError, match=r"rank 0 is in two groups that traces name 'tp', \(0, 1\) and \(0, 1, 2\)"):
        recorded(crossed)


def test_two_groups_of_the_same_ranks_are_two_sequences() -> None:
    """Each rank waits for its own of two collectives first, in the order that its work has, as NCCL's communicators
    allow."""
    groups = {"a": (0, 1), "b": (0, 1)}
    one, other = (collective(at, "all_reduce", size, group=name) for at, size, name in ((0, 1e8, "a"), (1, 2e8, "b")))
    found = recorded([Trace(0, (one, other), groups), Trace(1, (other, one), groups)])
    assert found.time == pytest.approx(message("all_reduce", 2e8, 2, 1))


def test_a_receive_takes_as_long_as_its_message_is_on_its_way() -> None:
    """A millisecond of work, then 100 MB; a receiver that is ready later waits only for the rest."""
    sending = Trace(0, (work(0), Operation(1, "", "send", (0,), size=1e8, peer=1)))
    each = message("send", 1e8, 2, 1)
    early = recorded([sending, Trace(1, (Operation(0, "", "receive", size=1e8, peer=0),))])
    assert [rank.communication for rank in early.ranks] == pytest.approx([each, each])
    late = Trace(1, (work(0, (), MILLI + each / 4), Operation(1, "", "receive", (0,), size=1e8, peer=0)))
    receiver = recorded([sending, late]).ranks[1]
    assert receiver.exposed_communication == pytest.approx(3 / 4 * each)


def test_one_communication_stream_serializes_two_groups() -> None:
    groups = {"a": (0, 1), "b": (0, 1)}
    trace = Trace(0, (collective(0, "all_reduce", 1e8, group="a"), collective(1, "all_reduce", 1e8, group="b")), groups)
    each = message("all_reduce", 1e8, 2, 1)
    assert recorded([trace]).time == pytest.approx(each)
    assert recorded([trace], one_stream=True).time == pytest.approx(2 * each)


@given(st.floats(1.0, 8.0))
@settings(max_examples=10, deadline=None)
def test_faster_links_never_make_it_slower(factor: float) -> None:
    traces = pipeline(3, 2, 4)
    faster = H100.replace(link_bandwidth=H100.link_bandwidth * factor)
    assert recorded(traces, machine=machine(faster)).time <= recorded(traces).time * (1 + 1e-12)


# --- places and dimensions


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 5), st.integers(1, 64))
def test_ranks_keep_their_place_when_the_run_grows(stride: int, size: int, outer: int, factor: int) -> None:
    world = World(stride * size * outer, stride * size * outer * factor, {}, {}, (), stride, size)
    moved = [world.moved(rank) for rank in range(world.recorded)]
    assert len(set(moved)) == world.recorded and max(moved) < world.ranks
    for rank in range(world.recorded):
        members = tuple(rank + (step - world.along(rank)) * stride for step in range(size))
        (grown,) = world.grown(members, "here")
        assert len(set(grown)) == size * factor and set(moved[each] for each in members) <= set(grown)


def test_groups_along_dimensions_and_their_nodes() -> None:
    trace = Trace(0, (collective(0, "all_reduce", 1e6, dimensions=(False, True)),))
    world = world_of([trace], dimensions=(4, 6))
    assert world.members(trace.operations[0], 5, "here") == (1, 5, 9, 13, 17, 21)
    assert placement((1, 5, 9, 13, 17, 21), 8) == (6, 3, 2, 2)
    found = recorded([trace], world)
    assert found.time == pytest.approx(message("all_reduce", 1e6, 2, 3), rel=1e-12)


# --- what is refused


def two(left: Sequence[Operation], right: Sequence[Operation], groups: Mapping[str, tuple[int, ...]] | None = None):
    named = groups or {}
    return [Trace(0, tuple(left), named, source="a"), Trace(1, tuple(right), named, source="b")]


SEND, RECEIVE = Operation(0, "s", "send", size=1.0, peer=1), Operation(0, "r", "receive", size=1.0, peer=0)
REFUSED = {
    "sizes": (
        two([collective(0, "all_reduce", 8.0)], [collective(0, "all_reduce", 4.0)]),
        {},
        "meets an all_reduce of 4",
    ),
    "counts": (two([collective(0, "all_reduce", 8.0)], [work(1)]), {}, "of which rank 1 has only 0"),
    "lonely": (two([SEND], [work(0)]), {}, "finds no receive in the trace of rank 1"),
    "group": (two([collective(0, "all_reduce", 8.0, group="7")], [work(0)]), {}, "ranks of group '7' are not known"),
    "outside": (
        two([collective(0, "barrier", 0.0, group="7")], [work(0)], {"7": (1,)}),
        {},
        "rank 0 is not in the group",
    ),
    "dims": (two([collective(0, "barrier", 0.0, dimensions=(True, False))], [work(0)]), {}, "give --dims"),
    "along": (two([SEND], [RECEIVE]), {"ranks": 4}, "goes along the ranks that grow"),
    "part": (
        two(*[[collective(0, "barrier", 0.0, group="7")]] * 2, {"7": (0, 1)}),
        {"ranks": 8, "recorded": 4},
        "but not to all of them",
    ),
    "divide": (two([work(0)], [work(0)], {"7": (0, 2)}), {"ranks": 3, "recorded": 4, "grow": ["7"]}, "a multiple of 2"),
    "uneven": (two([work(0)], [work(0)], {"7": (0, 1, 3)}), {"grow": ["7"]}, "cannot grow"),
    "unknown": (two([work(0)], [work(0)], {"dp": (0, 1)}), {"grow": ["pd"]}, "Did you mean dp?"),
    "recorded": (two([work(0)], [work(0)]), {"recorded": 1}, "2 ranks or more were recorded, not 1"),
    "product": (two([work(0)], [work(0)]), {"recorded": 4, "dimensions": (3, 2)}, "3 x 2 make 6 ranks, not 4"),
    "gather": (two([collective(0, "gather", 8.0)], [collective(0, "gather", 8.0)]), {}, "gather with no recorded time"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_replayed_is_one_sentence(name: str) -> None:
    traces, options, says = REFUSED[name]
    with pytest.raises(InputError) as error:
        recorded(traces, world_of(traces, **options))
    assert says in str(error.value)


def test_a_circle_through_two_ranks_names_its_nodes() -> None:
    left = [Operation(0, "l", "receive", size=1.0, peer=1), Operation(1, "m", "send", (0,), size=1.0, peer=1)]
    right = [Operation(0, "r", "receive", size=1.0, peer=0), Operation(1, "s", "send", (0,), size=1.0, peer=0)]
    with pytest.raises(InputError, match="wait for one another in a circle: node"):
        recorded(two(left, right))


def test_work_without_sizes_asks_for_its_recorded_time() -> None:
    trace = Trace(0, (work(0),))
    with pytest.raises(InputError, match="--compute recorded"):
        replay([trace], world_of([trace]), ROOFLINE)


def test_recorded_times_must_have_been_recorded() -> None:
    made = Trace(0, (Operation(0, "gemm", "compute", flops=1e12), collective(1, "all_reduce", 8.0)), source="made")
    alone = Trace(0, (collective(0, "all_reduce", 8.0),))
    with pytest.raises(InputError, match="made has no duration of any computation"):
        recorded([made])
    assert recorded([alone]).time == 0.0  # one rank, and nothing to compute
