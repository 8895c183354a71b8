"""The ASTRA-sim replica: published cycle counts to the last digit, and the equations they follow from."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.network.alpha_beta import Hop, ring_all_reduce, ring_reduce_scatter
from jaxperf.network.astra import MAX_EVENTS, astra_cycles, chunk_sizes
from jaxperf.network.astra_events import route
from jaxperf.network.astra_parts import families
from jaxperf.network.astra_setup import Dimension, Settings
from jaxperf.network.astra_steps import COLLECTIVES
from jaxperf.network.astra_table import DEFAULTS, predict_astra

HGX = Settings(endpoint_delay=10, active_chunks=2, splits=4, memory_bandwidth=3350.0)
MIB = 2**20


def switch(ranks: int, bandwidth: float = 400.0, algorithm: str = "ring") -> Dimension:
    """The simulator's own HGX-H100 input (inputs/network/hgx_h100_8gpu.yml and its neighbours)."""
    return Dimension("Switch", ranks, bandwidth, 936.25, algorithm)


@pytest.mark.parametrize(
    ("collective", "cycles"),
    [("all_reduce", 57_426), ("all_gather", 44_058), ("reduce_scatter", 28_950), ("all_to_all", 114_000)],
)
def test_the_published_cycles_of_one_mebibyte_on_eight_h100(collective: str, cycles: int) -> None:
    assert astra_cycles(collective, [switch(8)], MIB, HGX, congestion_aware=True) == cycles


def resnet50_gradients() -> list[int]:
    """Bytes of the fp32 weights of each convolution and of the classifier (He et al. 2016, table 1, 50 layers)."""
    weights, channels = [7 * 7 * 3 * 64], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shortcut = [channels * 4 * width] if block == 0 else []
            weights += [channels * width, 9 * width * width, 4 * width * width, *shortcut]
            channels = 4 * width
    return [4 * count for count in [*weights, 2048 * 1000]]


@pytest.mark.parametrize(
    ("ranks", "bandwidth", "cycles"), [(2, 741.34, 574_289), (4, 741.34, 1_454_270), (8, 400.0, 3_307_886)]
)
def test_the_published_resnet50_totals_need_the_two_bandwidths_of_the_input_files(
    ranks: int, bandwidth: float, cycles: int
) -> None:
    sizes = resnet50_gradients()
    assert len(sizes) == 54
    assert sum(astra_cycles("all_reduce", [switch(ranks, bandwidth)], size, HGX, True) for size in sizes) == cycles


def test_every_case_of_the_shared_table_is_bit_exact(data_directory: Path) -> None:
    path = data_directory / "collectives" / "astra_cases.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    answer = predict_astra({name: [row[name] for row in rows] for name in rows[0]})
    assert answer["reason"] == [""] * len(rows)
    assert answer["predicted_cycles"] == [int(row["cycles"]) for row in rows]


dimensions = st.builds(
    Dimension,
    kind=st.sampled_from(["Switch", "FullyConnected", "Ring"]),
    size=st.integers(2, 9),
    bandwidth=st.sampled_from([12.5, 25.0, 50.0, 400.0]),
    latency=st.sampled_from([0.0, 10.0, 500.0, 936.25]),
    algorithm=st.just("ring"),
)
settings = st.builds(
    Settings,
    endpoint_delay=st.integers(0, 1000),
    active_chunks=st.integers(1, 8),
    splits=st.integers(1, 8),
    memory_bandwidth=st.sampled_from([50.0, 1600.0, 3350.0]),
)


@given(st.sampled_from(COLLECTIVES), dimensions, st.integers(0, 2**20), settings, st.booleans())
def test_one_chunk_takes_its_steps_one_after_the_other(
    collective: str, dimension: Dimension, units: int, setup: Settings, aware: bool
) -> None:
    """T = e + steps (step + e) + reductions 3 floor(m / B_mem), with the two spellings of a step's time."""
    setup = Settings(setup.endpoint_delay, setup.active_chunks, 1, setup.memory_bandwidth)
    n, size = dimension.size, dimension.size * (units + 1)
    message = size if collective == "all_gather" else units + 1
    steps = {"all_reduce": 2 * (n - 1), "all_to_all": n * (n - 1) // 2}.get(collective, n - 1)
    wire = message / (dimension.bandwidth * 2**30 / 1e9)
    hops = 2 if dimension.kind == "Switch" else 1
    step = hops * int(dimension.latency + wire) if aware else int(hops * dimension.latency + wire)
    adding = n - 1 if collective in ("all_reduce", "reduce_scatter") else 0
    total = (
        setup.endpoint_delay
        + steps * (step + setup.endpoint_delay)
        + adding * 3 * int(message / setup.memory_bandwidth)
    )
    assert astra_cycles(collective, [dimension], size, setup, aware) == total


@given(st.sampled_from(COLLECTIVES), dimensions, st.integers(1, 2**16), settings)
def test_without_congestion_chunks_go_in_rounds(
    collective: str, dimension: Dimension, units: int, setup: Settings
) -> None:
    size = units * dimension.size * setup.splits
    alone = Settings(setup.endpoint_delay, 1, 1, setup.memory_bandwidth)
    one = astra_cycles(collective, [dimension], size // setup.splits, alone, False)
    rounds = -(-setup.splits // setup.active_chunks)
    assert astra_cycles(collective, [dimension], size, setup, False) == rounds * one


@given(dimensions, dimensions, st.integers(1, 2**16), settings)
def test_one_chunk_takes_its_dimensions_one_after_the_other(
    inner: Dimension, outer: Dimension, units: int, setup: Settings
) -> None:
    """RS(inner), AR(outer) of the shard, AG(inner) of the shard."""
    setup = Settings(setup.endpoint_delay, setup.active_chunks, 1, setup.memory_bandwidth)
    shard = units * outer.size
    size = shard * inner.size
    parts = (("reduce_scatter", inner, size), ("all_reduce", outer, shard), ("all_gather", inner, shard))
    alone = [astra_cycles(collective, [dimension], data, setup, False) for collective, dimension, data in parts]
    assert astra_cycles("all_reduce", [inner, outer], size, setup, False) == sum(alone)


@pytest.mark.parametrize("ranks", [2, 5, 8])
@pytest.mark.parametrize("size", [2**20, 2**28])
def test_without_delays_and_chunks_the_cycles_are_those_of_the_alpha_beta_form(ranks: int, size: int) -> None:
    """Up to a nanosecond of rounding a step, the simulator's ring is level (a)'s."""
    dimension, setup = Dimension("FullyConnected", ranks, 50.0, 500.0, "ring"), Settings(0, 1, 1, 1e30)
    hop = Hop(500.0, dimension.bytes_per_ns)
    for collective, closed in (("all_reduce", ring_all_reduce), ("reduce_scatter", ring_reduce_scatter)):
        cycles = astra_cycles(collective, [dimension], size, setup, True)
        expected = float(closed(as_float(ranks), as_float(size), hop))
        assert expected - 2 * ranks < cycles <= expected


@given(st.sampled_from(COLLECTIVES), dimensions, st.integers(2**10, 2**24), settings)
def test_congestion_and_smaller_links_never_help(
    collective: str, dimension: Dimension, size: int, setup: Settings
) -> None:
    aware = astra_cycles(collective, [dimension], size, setup, True)
    slower = Dimension(dimension.kind, dimension.size, dimension.bandwidth / 2, dimension.latency, "ring")
    # a switch hop is rounded down twice with congestion and once without
    rounding = 0 if dimension.kind != "Switch" else setup.splits * 2 * dimension.size**2
    assert aware + rounding >= astra_cycles(collective, [dimension], size, setup, False)
    assert astra_cycles(collective, [slower], size, setup, True) >= aware


def test_a_link_full_of_chunks_is_busy_all_the_time() -> None:
    """Four chunks at once of a large buffer: the link carries 14 steps of 4 messages back to back."""
    dimension, setup = Dimension("Ring", 8, 50.0, 500.0, "ring"), Settings(10, 4, 4, 3350.0)
    size = 2**30
    wire = size // 32 / (50.0 * 2**30 / 1e9)
    last_reduction = 0  # the all-gather half ends without one
    busy = 2 * 10 + 14 * 4 * int(wire) + int(500.0 + wire) - int(wire) + last_reduction
    assert astra_cycles("all_reduce", [dimension], size, setup, True) == busy


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_tree_is_a_perfect_binary_tree_under_its_root(ranks: int) -> None:
    for root_last, root in ((True, ranks - 1), (False, 0)):
        places = families(ranks, root_last)
        assert places[root].parent is None and len(places[root].children) == 1
        assert sorted(child for place in places for child in place.children) == sorted(set(range(ranks)) - {root})
        assert all(places[child].parent == rank for rank, place in enumerate(places) for child in place.children)
        assert sum(not place.children for place in places) == max(ranks // 2, 1)


def test_one_chunk_on_a_tree_of_two_goes_up_and_comes_down() -> None:
    """e, to the root, e + reduction, back to the leaf, e."""
    dimension = Dimension("FullyConnected", 2, 50.0, 500.0, "doubleBinaryTree")
    setup = Settings(10, 1, 1, 1600.0)
    hop, reduction = int(500.0 + MIB / (50.0 * 2**30 / 1e9)), 3 * int(MIB / 1600.0)
    assert astra_cycles("all_reduce", [dimension], MIB, setup, True) == 10 + hop + 10 + reduction + hop + 10


def test_messages_take_the_shorter_way_around_a_ring_and_clockwise_in_a_tie() -> None:
    ring = Dimension("Ring", 6, 50.0, 500.0, "ring")
    assert [route(ring, 0, to) for to in (1, 2, 3, 4)] == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 5, 4]]
    assert route(switch(6), 4, 1) == [4, 6, 1]


@pytest.mark.parametrize("aware", [True, False])
def test_a_far_exchange_on_a_ring_waits_for_the_links_on_the_way(aware: bool) -> None:
    """Four ranks, one message to each: the opposite one is two hops away, behind the neighbor's on the first link."""
    ring = Dimension("Ring", 4, 50.0, 500.0, "direct")
    setup = Settings(10, 1, 1, 1600.0)
    wire = MIB / 4 / (50.0 * 2**30 / 1e9)
    hop = int(500.0 + wire)
    expected = 10 + (int(wire) + 2 * hop if aware else int(1000.0 + wire)) + 10
    assert astra_cycles("all_to_all", [ring], MIB, setup, aware) == expected


def test_what_does_not_divide_is_one_more_chunk() -> None:
    assert chunk_sizes(1000, 4) == [250] * 4
    assert chunk_sizes(1002, 4) == [250] * 4 + [2]
    assert sum(chunk_sizes(999_983, 7)) == 999_983


def test_dimensions_of_one_device_are_skipped() -> None:
    lone = Dimension("Ring", 1, 50.0, 500.0, "ring")
    pair = [switch(8), lone]
    assert astra_cycles("all_reduce", pair, MIB, HGX, False) == astra_cycles("all_reduce", pair[:1], MIB, HGX, False)
    assert astra_cycles("all_reduce", [lone], MIB, HGX, True) == 0


CASE: dict[str, list[object]] = {
    "backend": ["Aware"],
    "collective": ["all_reduce"],
    "topology": ["Switch"],
    "npus_per_dim": ["8"],
    "bw_GiBps": ["400.0"],
    "lat_ns": ["936.25"],
    "size_bytes": ["1048576"],
    "algorithm": ["ring"],
    **{"endpoint_delay": [10], "active_chunks": [2], "splits": [4], "local_mem_bw": [3350]},
}


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("backend", "Awaer", "backend 'Awaer' is not one of Aware, Unaware. Did you mean Aware"),
        ("collective", None, "collective is empty"),
        ("collective", "broadcast", "collective 'broadcast' is not one of all_reduce"),
        ("topology", "Torus", "topology 'Torus' is not one of Ring, FullyConnected, Switch"),
        ("algorithm", "rings", "Did you mean ring"),
        ("npus_per_dim", "eight", "npus_per_dim 'eight' is not a number"),
        ("npus_per_dim", "0", "a dimension of 0 devices does not exist"),
        ("npus_per_dim", "2.5", "npus_per_dim '2.5' is not a whole number"),
        ("npus_per_dim", "8x2", "has one dimension; use Unaware"),
        ("npus_per_dim", 10**9, f"more than the {MAX_EVENTS}"),
        ("bw_GiBps", 1e-300, "longer than the 9223372036854775807 ns"),
        ("size_bytes", 1e30, "longer than the 9223372036854775807 ns"),
        ("lat_ns", "1x2", "lat_ns has 2 entries for 1 dimensions"),
        ("bw_GiBps", 0.0, "bw_GiBps must be positive"),
        ("bw_GiBps", float("nan"), "bw_GiBps is empty"),
        ("bw_GiBps", " ", "bw_GiBps is empty"),
        ("bw_GiBps", float("inf"), "is not a finite number"),
        ("size_bytes", 3, "size_bytes 3 cannot be cut into 4 splits"),
        ("splits", 0, "splits and active_chunks must be at least 1"),
        ("endpoint_delay", -1, "endpoint_delay must not be negative"),
    ],
)
def test_a_bad_row_gets_a_reason_and_no_prediction(column: str, cell: object, words: str) -> None:
    answer = predict_astra({**CASE, column: [cell]})
    assert answer["predicted_cycles"] == [None]
    assert words in answer["reason"][0]


def test_more_active_chunks_than_there_are_change_nothing() -> None:
    tree = {**CASE, "algorithm": ["doubleBinaryTree"]}
    all_at_once, many = (predict_astra({**tree, "active_chunks": [count]}) for count in (4, 10**12))
    assert all_at_once == many
    assert many["reason"] == [""]


def test_spellings_lists_and_missing_settings() -> None:
    two = {**CASE, "backend": ["unaware"], "topology": ["switch x ring"], "npus_per_dim": [[8, 2]]}
    two |= {"bw_GiBps": [[400.0, 50.0]], "lat_ns": ["936.25x1000"], "algorithm": ["RING"]}
    expected = [Dimension("Switch", 8, 400.0, 936.25, "ring"), Dimension("Ring", 2, 50.0, 1000.0, "ring")]
    cycles = astra_cycles("all_reduce", expected, MIB, HGX, False)
    assert predict_astra(two) == {"predicted_cycles": [cycles], "reason": [""]}
    arrays = {**two, "npus_per_dim": [np.array([8, 2])], "bw_GiBps": ["400 * 50"], "size_bytes": [np.int64(MIB)]}
    assert predict_astra(arrays) == predict_astra(two)
    bare = {name: cells for name, cells in CASE.items() if name not in DEFAULTS}
    assert predict_astra(bare) == predict_astra({**bare, **{name: [value] for name, value in DEFAULTS.items()}})


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match="no column size_bytes"):
        predict_astra({name: cells for name, cells in CASE.items() if name != "size_bytes"})


@pytest.mark.parametrize(
    ("dimension", "aware", "words"),
    [
        (switch(6, algorithm="halvingDoubling"), True, "needs a power of two"),
        (switch(12, algorithm="doubleBinaryTree"), True, "needs a power of two"),
        (switch(2**20, algorithm="doubleBinaryTree"), True, "more than the"),
        (switch(10**7, algorithm="direct"), True, "more than the"),
        (Dimension("Ring", 4096, 400.0, 936.25, "direct"), True, "more than the"),
    ],
)
def test_what_the_simulator_cannot_run_is_refused(dimension: Dimension, aware: bool, words: str) -> None:
    with pytest.raises(InputError, match=words):
        astra_cycles("all_reduce", [dimension], MIB, HGX, aware)
    with pytest.raises(InputError, match="no all_to_all"):
        astra_cycles("all_to_all", [switch(8, algorithm="halvingDoubling")], MIB, HGX, aware)
