"""Collectives against their closed forms by hand, their limits, and finite slopes at every group size."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array

from jaxperf.core.cost import Cost, Limiter
from jaxperf.core.device import Device
from jaxperf.core.numerics import as_float
from jaxperf.network.collectives import all_gather_cost, all_reduce_cost, all_to_all_cost, send_cost
from jaxperf.network.link import group_fabric
from tests.devices import DEVICES, H100, MI300X, RATES, TPU_V5P, close, faster, single

COLLECTIVES = {
    "all_reduce": all_reduce_cost,
    "all_gather": all_gather_cost,
    "all_to_all": all_to_all_cost,
    "send": send_cost,
}
GROUPS = {name: fn for name, fn in COLLECTIVES.items() if name != "send"}
every_collective = pytest.mark.parametrize("name", COLLECTIVES)
every_group = pytest.mark.parametrize("name", GROUPS)
sizes = st.floats(1.0, 1e12)
rank_counts = st.sampled_from([1, 2, 3, 4, 8, 16, 64, 512])
device_names = st.sampled_from(sorted(DEVICES))
Point = Callable[[Device, Array, Array, Array], Cost]


def point(name: str) -> Point:
    def cost(device: Device, ranks: Array, size: Array, efficiency: Array) -> Cost:
        return COLLECTIVES[name](group_fabric(device, ranks, efficiency), size)

    return cost


COMPILED = {name: jax.jit(point(name)) for name in COLLECTIVES}


def run(name: str, device: Device, ranks: float, size: float, efficiency: float = 1.0) -> Cost:
    return COMPILED[name](device, as_float(ranks), as_float(size), as_float(efficiency))


@every_group
@given(device_names, sizes)
def test_one_rank_costs_exactly_nothing(name: str, device: str, size: float) -> None:
    cost = run(name, DEVICES[device], 1, size)
    assert all(float(leaf) == 0.0 for leaf in jax.tree.leaves(cost))


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_large_all_reduce_tends_to_its_bus_bandwidth(ranks: int) -> None:
    size = 1e12
    ideal = 2 * (ranks - 1) / ranks * size
    assert float(run("all_reduce", H100, ranks, size).time) == pytest.approx(ideal / 450e9, rel=1e-4)
    assert float(run("all_gather", H100, ranks, size).time) == pytest.approx(ideal / 2 / 450e9, rel=1e-4)
    assert float(run("all_to_all", H100, ranks, size).time) == pytest.approx(ideal / 2 / 450e9, rel=1e-4)
    assert float(run("all_reduce", H100, ranks, size).bytes_moved) == pytest.approx(ideal, rel=1e-14)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_small_message_costs_one_latency_inside_a_node(ranks: int) -> None:
    for name in COLLECTIVES:
        assert float(run(name, H100, ranks, 1.0).time) == pytest.approx(3e-6, rel=1e-4)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_an_all_reduce_takes_the_faster_of_one_shot_and_two_shot(size: float) -> None:
    one_shot = 3e-6 + 7 * size / 450e9
    two_shot = 6e-6 + 2 * 7 / 8 * size / 450e9
    np.testing.assert_allclose(run("all_reduce", H100, 8, size).time, min(one_shot, two_shot), rtol=1e-13)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_mesh_uses_the_links_to_the_group_only(ranks: int) -> None:
    size, one_link = 1e9, 448e9 / 7
    shard_each_way = 2 * size / ranks / one_link
    np.testing.assert_allclose(
        run("all_reduce", MI300X, ranks, size).time, min(6e-6 + shard_each_way, 3e-6 + size / one_link), rtol=1e-13
    )
    np.testing.assert_allclose(run("all_gather", MI300X, ranks, size).time, 3e-6 + size / ranks / one_link, rtol=1e-13)


def test_a_torus_rings_along_each_axis() -> None:
    ranks, size, rate = 64, 1e9, 300e9  # all six links: a cube closes
    time = run("all_reduce", TPU_V5P, ranks, size).time
    np.testing.assert_allclose(time, 2 * 9 * 1e-6 + 2 * 63 / 64 * size / rate, rtol=1e-12)
    np.testing.assert_allclose(run("all_gather", TPU_V5P, ranks, size).time, 9e-6 + 63 / 64 * size / rate, rtol=1e-12)
    crossing = 4 * size / (8 * 50e9)  # rings of four links of 50 GB/s: 3 hops a byte
    np.testing.assert_allclose(run("all_to_all", TPU_V5P, ranks, size).time, 1e-6 + crossing, rtol=1e-12)


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("size", [1e4, 1e9])
def test_several_nodes_reduce_hierarchically(nodes: int, size: float) -> None:
    link, network = 0.8 * 450e9, 0.8 * 50e9
    scatter_and_gather = 2 * 3e-6 + 2 * 7 / 8 * size / link
    between = 2 * ((nodes - 1) * 8e-6 + (nodes - 1) / nodes * (size / 8) / network)
    ranks = 8 * nodes
    reduce = run("all_reduce", H100, ranks, size, 0.8)
    np.testing.assert_allclose(reduce.time, scatter_and_gather + between, rtol=1e-13)
    np.testing.assert_allclose(
        run("all_gather", H100, ranks, size, 0.8).time, scatter_and_gather / 2 + between / 2, rtol=1e-13
    )
    local, remote = 3e-6 + 7 / ranks * size / link, 8e-6 + (1 - 1 / nodes) * size / network
    np.testing.assert_allclose(run("all_to_all", H100, ranks, size, 0.8).time, max(local, remote), rtol=1e-13)
    np.testing.assert_allclose(run("send", H100, ranks, size, 0.8).time, 8e-6 + size / network, rtol=1e-13)


def test_a_send_inside_a_node_takes_the_link() -> None:
    np.testing.assert_allclose(run("send", H100, 8, 1e9, 0.5).time, 3e-6 + 1e9 / 225e9, rtol=1e-14)


@every_collective
@given(device_names, rank_counts, sizes, st.floats(1.0, 10.0))
def test_a_larger_message_or_a_slower_link_is_never_faster(
    name: str, device: str, ranks: int, size: float, more: float
) -> None:
    time = float(run(name, DEVICES[device], ranks, size).time)
    assert float(run(name, DEVICES[device], ranks, size * more).time) >= time
    assert float(run(name, DEVICES[device], ranks, size, 1 / more).time) >= time * (1 - 1e-14)
    better = DEVICES[device].replace(
        link_bandwidth=DEVICES[device].link_bandwidth * more, network_bandwidth=DEVICES[device].network_bandwidth * more
    )
    assert float(run(name, better, ranks, size).time) <= time * (1 + 1e-14)


@every_group
@given(sizes, st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_a_larger_group_behind_a_switch_is_never_faster(name: str, size: float, ranks: int) -> None:
    assert float(run(name, H100, 2 * ranks, size).time) >= float(run(name, H100, ranks, size).time) * (1 - 1e-14)


@every_collective
@given(device_names, rank_counts, sizes)
def test_the_wire_is_never_beaten(name: str, device: str, ranks: int, size: float) -> None:
    cost = run(name, DEVICES[device], ranks, size)
    both_links = float(DEVICES[device].link_bandwidth + DEVICES[device].network_bandwidth)
    assert float(cost.time) >= float(cost.bytes_moved) / both_links
    assert float(cost.network) == float(cost.time)
    if ranks > 1:
        assert int(cost.limiter) == Limiter.NETWORK


@every_collective
@given(device_names, rank_counts, sizes, st.integers(-12, 12))
def test_a_world_with_faster_clocks_scales_every_time(
    name: str, device: str, ranks: int, size: float, exponent: int
) -> None:
    base, scaled = (run(name, each, ranks, size) for each in (DEVICES[device], faster(DEVICES[device], 2.0**exponent)))
    assert float(scaled.time) == float(base.time) / 2.0**exponent
    assert float(scaled.bytes_moved) == float(base.bytes_moved)


@every_collective
@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize("ranks", [1, 2, 8, 16])
def test_slopes_are_finite_and_equal_finite_differences(name: str, device: str, ranks: int) -> None:
    arguments = (DEVICES[device], as_float(ranks), as_float(1e7), as_float(0.8))
    slopes = GRADIENTS[name](*arguments)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))
    for field in (*RATES[-2:], "link_latency", "network_latency"):
        value = float(getattr(DEVICES[device], field))
        step = 1e-5 * value
        up, down = (
            float(run(name, DEVICES[device].replace(**{field: value + sign * step}), ranks, 1e7, 0.8).time)
            for sign in (1, -1)
        )
        np.testing.assert_allclose(getattr(slopes[0], field), (up - down) / (2 * step), rtol=1e-5)


GRADIENTS = {
    name: jax.jit(jax.grad(lambda *arguments, name=name: point(name)(*arguments).time, (0, 1, 2, 3)))
    for name in COLLECTIVES
}


@every_collective
def test_every_layout_gives_the_same_cost(name: str) -> None:
    ranks, columns = as_float([1.0, 2.0, 8.0, 64.0]), as_float([1.0, 1e5, 1e9])
    efficiency = as_float(0.75)
    nested = jax.vmap(jax.vmap(point(name), (None, None, 0, None)), (None, 0, None, None))
    grid = jax.jit(nested)(H100, ranks, columns, efficiency)
    scalars = [[run(name, H100, float(n), float(s), 0.75) for s in columns] for n in ranks]
    stacked = jax.tree.map(lambda *leaves: np.asarray(leaves).reshape(4, 3), *[cost for row in scalars for cost in row])
    assert close(grid, stacked) and close(nested(H100, ranks, columns, efficiency), stacked)
    with jax.enable_x64(False):
        narrow = jax.jit(nested)(*single((H100, ranks, columns, efficiency)))
    assert close(narrow, stacked, 1e-5)
