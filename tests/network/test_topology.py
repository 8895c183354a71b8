"""Networks of axes: links and cuts counted by hand, buckets on tori, and the same numbers from the flat forms."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwspecs
from jaxperf.core.numerics import as_float
from jaxperf.network.alpha_beta import Hop, hierarchical_all_reduce, ring_all_reduce
from jaxperf.network.topology import (
    KINDS,
    Axis,
    Topology,
    bisection,
    fat_tree,
    injection,
    leaf_share,
    rail_optimized,
    torus,
    torus_slice,
)
from jaxperf.network.topology_collectives import (
    bisection_all_to_all,
    bucket_all_gather,
    bucket_all_reduce,
    bucket_reduce_scatter,
    rotated_all_reduce,
    rotated_reduce_scatter,
)

RATE, ALPHA, SIZE = as_float(1e9), as_float(1e-6), as_float(1e6)


def axis(kind: str, size: float, rate: float = 1e9, alpha: float = 1e-6, over: float = 1.0) -> Axis:
    return Axis(kind, size, rate, alpha, over)  # type: ignore[arg-type]


def links(kind: str, size: int) -> list[tuple[int, int]]:
    """One-direction links of an axis, written out."""
    if kind == "full":
        return [(a, b) for a, b in itertools.permutations(range(size), 2)]
    forward = [(a, a + 1) for a in range(size - 1)] + ([(size - 1, 0)] if kind == "ring" and size > 2 else [])
    return forward + [(b, a) for a, b in forward]


@pytest.mark.parametrize("kind", ["ring", "line", "full"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_links_out_of_a_rank_and_across_the_middle_are_counted(kind: str, size: int) -> None:
    found = links(kind, size)
    across = sum(a < size // 2 <= b for a, b in found)
    least = min(sum(a == rank for a, _ in found) for rank in range(size))
    assert float(bisection(axis(kind, size))) == across * 1e9
    assert float(injection(axis(kind, size))) == least * 1e9


def test_an_oversubscribed_switch_lets_its_share_through() -> None:
    assert float(injection(axis("switch", 16, over=4.0))) == 0.25e9
    assert float(bisection(axis("switch", 16, over=4.0))) == 2e9
    assert float(injection(axis("switch", 16))) == 1e9


@pytest.mark.parametrize(
    ("pod", "sizes", "kinds"),
    [
        ("tpu-v4", (4, 8, 16), ["ring", "ring", "ring"]),  # whole cubes of optical switches
        ("tpu-v4", (2, 4, 4), ["line", "line", "line"]),  # less than a cube
        ("tpu-v5e", (8, 16), ["line", "ring"]),
        ("tpu-v6e", (4, 4), ["line", "line"]),
        ("tpu-v7", (4, 4, 256), ["ring", "ring", "ring"]),  # cubes in a row
    ],
)
def test_a_slice_closes_where_its_pod_says_so(pod: str, sizes: tuple[int, ...], kinds: list[str]) -> None:
    spec = hwspecs.load_network(pod)
    found = torus_slice(spec, sizes, ALPHA)
    assert [part.kind for part in found] == kinds
    assert math.prod(float(each.size) for each in found) == math.prod(sizes)
    assert all(float(part.bandwidth) == spec.bandwidth.si for part in found)
    assert [part.kind for part in torus((4, 4), RATE, ALPHA, wrapped=False)] == ["line", "line"]


@pytest.mark.parametrize(
    ("pod", "sizes", "words"),
    [
        ("roce-400", (4, 4), "roce-400 is not a torus"),
        ("tpu-v5e", (4, 4, 4), "has 2 axes, and 4 x 4 x 4 has 3"),
        ("tpu-v5e", (32, 16), "32 x 16 chips does not fit into the 256 of tpu-v5e"),
        ("tpu-v4", (0, 4, 4), "does not fit"),
        ("tpu-v5e", (32, 8), "32 x 8 chips is longer than the 16 x 16 of tpu-v5e"),
        ("tpu-v4", (2, 4, 8), "2 x 4 x 8 is neither whole cubes of 4 chips a side"),
        ("tpu-v7", (16, 16), "tpu-v7 has 3 axes, and 16 x 16 has 2"),
    ],
)
def test_a_slice_that_does_not_fit_is_refused(pod: str, sizes: tuple[int, ...], words: str) -> None:
    with pytest.raises(hwspecs.InputError, match=words):
        torus_slice(hwspecs.load_network(pod), sizes, ALPHA)


def test_a_bucket_all_reduce_by_hand() -> None:
    """2 x 3 alpha + 2 x 3/4 S/(2 b) along four, then a quarter of the buffer along eight."""
    found = bucket_all_reduce(torus((4.0, 8.0), RATE, ALPHA), SIZE)
    by_hand = 6e-6 + 1.5 * 1e6 / 2e9 + 14e-6 + 1.75 * 0.25e6 / 2e9
    assert float(found) == pytest.approx(by_hand, rel=1e-13)


sides = st.sampled_from([2, 3, 4, 8, 16])
axes = st.builds(
    axis, st.sampled_from(KINDS), sides, rate=st.sampled_from([1e9, 25e9]), alpha=st.sampled_from([1e-7, 1e-5])
)
networks = st.lists(axes, min_size=1, max_size=3).map(tuple)


@given(networks, st.floats(1.0, 1e10))
def test_an_all_reduce_is_a_scatter_and_a_gather_on_every_network(network: Topology, size: float) -> None:
    data = as_float(size)
    parts = bucket_reduce_scatter(network, data) + bucket_all_gather(network, data)
    assert float(bucket_all_reduce(network, data)) == pytest.approx(float(parts), rel=1e-13)
    assert float(rotated_all_reduce(network, data)) == pytest.approx(2 * float(rotated_reduce_scatter(network, data)))


@given(networks, st.floats(1.0, 1e10))
def test_an_axis_of_one_rank_changes_nothing(network: Topology, size: float) -> None:
    data, lone = as_float(size), (axis("ring", 1), axis("line", 1), axis("full", 1), axis("switch", 1))
    for collective in (bucket_all_reduce, rotated_all_reduce, bisection_all_to_all):
        with_them = collective((lone[0], *network[:1], *lone[1:], *network[1:]), data)
        assert float(with_them) == pytest.approx(float(collective(network, data)), rel=1e-13)
        assert float(collective(lone, data)) == 0.0


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_all_axes_of_a_cube_at_once_divide_the_bandwidth_term(dimensions: int) -> None:
    cube = torus((as_float(4.0),) * dimensions, RATE, as_float(0.0))
    ratio = float(rotated_all_reduce(cube, SIZE)) / float(bucket_all_reduce(cube, SIZE))
    assert ratio == pytest.approx(1 / dimensions, rel=1e-13)
    ranks = 4**dimensions
    optimal = 2 * (ranks - 1) / ranks * 1e6 / (dimensions * 2e9)
    assert float(rotated_all_reduce(cube, SIZE)) == pytest.approx(optimal, rel=1e-13)


def test_unequal_axes_wait_for_the_slowest() -> None:
    """Stages (a | b), (b | a) of half a buffer each: 4 ranks at 1 GB/s a link, 2 ranks at 4 GB/s."""
    fast, slow = axis("ring", 2, 4e9, 0.0), axis("ring", 4, 1e9, 0.0)
    half = 0.5e6
    first = max(half / 2 / 4e9, half * 3 / 4 / 2e9)
    second = max(half / 2 * 3 / 4 / 2e9, half / 4 / 2 / 4e9)
    assert float(rotated_reduce_scatter((fast, slow), SIZE)) == pytest.approx(first + second, rel=1e-13)


def test_a_node_and_its_rails_are_the_hierarchical_all_reduce() -> None:
    """The latencies of a node with direct links aside: 2 (g-1)/g S/B + 2 (N-1)/N S/(g B_port)."""
    rails = rail_optimized(axis("ring", 8, 200e9), as_float(4.0), as_float(50e9), as_float(5e-6))
    ring_node = hierarchical_all_reduce(
        as_float(8.0), as_float(4.0), SIZE, Hop(1e-6, 400e9), Hop(5e-6, 50e9)
    ) - 2.0 * 2.0 * as_float(5e-6)  # rails are switched, so two steps between nodes instead of six
    assert float(bucket_all_reduce(rails, SIZE)) == pytest.approx(float(ring_node), rel=1e-12)


@given(sides, st.floats(1.0, 1e12))
def test_a_ring_axis_is_the_flat_ring_with_both_directions(size: int, data: float) -> None:
    both = ring_all_reduce(as_float(size), as_float(data), Hop(1e-6, 2e9 if size > 2 else 1e9))
    assert float(bucket_all_reduce((axis("ring", size),), as_float(data))) == pytest.approx(float(both), rel=1e-13)


@pytest.mark.parametrize(("kind", "cut"), [("ring", 8.0), ("line", 4.0)])
def test_an_all_to_all_is_bound_by_the_cut(kind: str, cut: float) -> None:
    """n S / (8 b) on rings and n S / (4 b) on lines, of the longest axis."""
    found = bisection_all_to_all((axis(kind, 4, alpha=0.0), axis(kind, 16, alpha=0.0)), SIZE)
    assert float(found) == pytest.approx(16 * 1e6 / (cut * 1e9), rel=1e-13)
    skewed = bisection_all_to_all((axis(kind, 16, alpha=0.0),), SIZE, as_float(1.25))
    assert float(skewed) == pytest.approx(1.25 * 16 * 1e6 / (cut * 1e9), rel=1e-13)


def messages_on_the_busiest_link(kind: str, size: int) -> float:
    """An all-to-all of one byte to every rank, message by message over the links of a ring or line."""
    load = dict.fromkeys(links(kind, size), 0.0)
    for source, target in itertools.permutations(range(size), 2):
        clockwise = (target - source) % size
        ways = [1 if target > source else -1]
        if kind == "ring":
            ways = [1, -1] if 2 * clockwise == size else [1 if 2 * clockwise < size else -1]
        for way in ways:
            place = source
            while place != target:
                following = (place + way) % size
                load[place, following] += 1 / len(ways)
                place = following
    return max(load.values())


@pytest.mark.parametrize("kind", ["ring", "line"])
@pytest.mark.parametrize("size", [3, 4, 5, 6, 8, 9, 16])
def test_the_cut_bound_is_the_load_of_the_busiest_link(kind: str, size: int) -> None:
    """Shortest ways load the middle links with exactly what the bound says: S / n a message."""
    busiest = messages_on_the_busiest_link(kind, size) * 1e6 / size / 1e9
    assert float(bisection_all_to_all((axis(kind, size, alpha=0.0),), SIZE)) == pytest.approx(busiest, rel=1e-12)


def test_a_fat_tree_by_hand() -> None:
    """8 ranks at 450 GB/s, 4 nodes a leaf, 2 leaves behind a 2:1 spine: the shard of 1/32 crosses it at half rate."""
    node, port = axis("switch", 8, 450e9, 1e-6), Hop(2e-6, 50e9)
    tree = fat_tree(node, as_float(4.0), as_float(2.0), port, as_float(2.0))
    by_hand = 2e-6 + 1.75 * 1e6 / 450e9 + 4e-6 + 1.5 * 1e6 / 8 / 50e9 + 8e-6 + 1e6 / 32 / 25e9
    assert float(bucket_all_reduce(tree, SIZE)) == pytest.approx(by_hand, rel=1e-13)
    assert math.prod(float(each.size) for each in tree) == 64
    everything = bisection_all_to_all(tree, as_float(1e12))
    assert float(everything) == pytest.approx(0.5 * 1e12 / 25e9, rel=1e-6)


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3, 8]), st.sampled_from([1, 2, 3, 8]), st.floats(1.0, 8.0))
def test_leaves_and_spine_share_the_port_of_a_rank(ranks: int, leaf: int, leaves: int, over: float) -> None:
    """What leaves a node goes through one port whichever leaf it is for, and that port is not there twice."""
    port, nodes = Hop(1e-6, 50e9), leaf * leaves
    tree = fat_tree(axis("switch", ranks, 450e9), as_float(leaf), as_float(leaves), port, as_float(over))
    data, share = as_float(1e15), leaf_share(as_float(nodes), as_float(leaf), as_float(over))
    outside = (nodes - 1) / nodes * 1e15 / (50e9 * float(share))
    inside = (ranks - 1) / ranks * 1e15 / 450e9
    assert float(bisection_all_to_all(tree, data)) == pytest.approx(max(outside, inside), rel=1e-9, abs=1e-4)
    least = (nodes - 1) / nodes * 1e15 / ranks / 50e9  # of a node's buffers, through all its ports
    for collective in (bucket_reduce_scatter, rotated_reduce_scatter):
        assert float(collective(tree, data)) >= least * (1 - 1e-12)


@pytest.mark.parametrize(
    ("nodes", "leaf", "over", "share"), [(8, 8, 4, 1.0), (16, 8, 1, 1.0), (16, 8, 3, 15 / 24), (9, 1, 2, 0.5)]
)
def test_the_share_of_a_port_in_an_oversubscribed_all_to_all(nodes: int, leaf: int, over: int, share: float) -> None:
    assert float(leaf_share(as_float(nodes), as_float(leaf), as_float(over))) == pytest.approx(share, rel=1e-14)


def test_sizes_and_rates_are_traced_and_batched() -> None:
    def time(sizes: jax.Array, rate: jax.Array) -> jax.Array:
        network = tuple(Axis("ring", sizes[i], rate, 1e-6) for i in range(3))
        return bucket_all_reduce(network, SIZE) + bisection_all_to_all(network, SIZE)

    shapes = jnp.asarray([[4.0, 4.0, 4.0], [2.0, 8.0, 1.0]])
    rates = jnp.asarray([1e9, 2e9])
    batched = jax.jit(jax.vmap(time))(shapes, rates)
    for index in range(2):
        assert float(batched[index]) == pytest.approx(float(time(shapes[index], rates[index])), rel=1e-13)
    slope = jax.grad(time, argnums=1)(shapes[0], rates[0])
    step = 1e3
    difference = (time(shapes[0], rates[0] + step) - time(shapes[0], rates[0] - step)) / (2 * step)
    assert float(slope) == pytest.approx(float(difference), rel=1e-5)
