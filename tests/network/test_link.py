"""The fabric a group of ranks sees: nodes, shares of the links, rings of a torus."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwspecs
from jaxperf.core.device import Device, load_device
from jaxperf.core.numerics import as_float
from jaxperf.network.collectives import all_to_all_cost
from jaxperf.network.link import Fabric, closed_axes, group_fabric
from jaxperf.network.topology import torus_slice
from jaxperf.network.topology_collectives import bisection_all_to_all
from tests.devices import DEVICES, H100, MI300X, TPU_V5P


def fabric(device: Device, ranks: float, efficiency: float = 1.0) -> Fabric:
    return group_fabric(device, as_float(ranks), as_float(efficiency))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_group_behind_a_switch_has_all_of_each_ranks_link(ranks: int) -> None:
    found = fabric(H100, ranks, 0.8)
    assert (float(found.local_ranks), float(found.nodes), float(found.ring_steps)) == (ranks, 1.0, 0.0)
    assert float(found.local_bandwidth) == pytest.approx(0.8 * 450e9, rel=1e-15)
    assert float(found.network_bandwidth) == pytest.approx(0.8 * 50e9, rel=1e-15)
    assert float(found.local_latency) == 3e-6 and float(found.network_latency) == 8e-6


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 1), (9, 2), (16, 2), (64, 8), (72, 9)])
def test_nodes_fill_one_after_the_other(ranks: int, nodes: int) -> None:
    found = fabric(H100, ranks)
    assert float(found.local_ranks) == 8.0 and float(found.nodes) == nodes


@pytest.mark.parametrize("ranks", range(2, 9))
def test_a_group_in_a_mesh_has_the_links_to_its_members(ranks: int) -> None:
    assert float(fabric(MI300X, ranks).local_bandwidth) == pytest.approx(448e9 * (ranks - 1) / 7, rel=1e-15)


@pytest.mark.parametrize(
    ("ranks", "axes", "side", "links"),
    [
        (2, 1, 2, 1),
        (4, 2, 2, 2),
        (8, 3, 2, 3),
        (32, 3, 32 ** (1 / 3), 3),
        (64, 3, 4, 6),
        (512, 3, 8, 6),
        (4096, 3, 16, 6),
    ],
)
def test_a_slice_of_a_torus_has_a_link_per_axis_and_two_where_whole_cubes_close_it(
    ranks: int, axes: int, side: float, links: int
) -> None:
    found = fabric(TPU_V5P, ranks)
    assert float(found.ring_steps) == pytest.approx(axes * (side - 1), rel=1e-12)
    assert float(found.local_bandwidth) == pytest.approx(300e9 * links / 6, rel=1e-12)


@pytest.mark.parametrize(("ranks", "links"), [(4, 2), (16, 2), (64, 2), (128, 3), (256, 4), (512, 4)])
def test_a_slice_in_two_dimensions_closes_where_it_is_as_long_as_the_pod(ranks: int, links: int) -> None:
    pod = TPU_V5P.replace(torus_dimensions=2, node_size=256)
    assert float(fabric(pod, ranks).local_bandwidth) == pytest.approx(300e9 * links / 4, rel=1e-12)


@pytest.mark.parametrize("name", ["tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7"])
def test_axes_close_as_the_published_multiples_say(name: str) -> None:
    """`topology.torus_slice` reads each axis off `wrapped_multiple`; slices of the shapes that are rented."""
    pod, device = hwspecs.load_network(name), load_device(name)
    shapes = [(4, 4), (8, 8), (8, 16), (16, 16), (32, 32)]
    if device.torus_dimensions > 2:
        shapes = [(2, 2, 2), (2, 4, 4), (4, 4, 4), (4, 4, 8), (8, 8, 8), (8, 16, 16)]
    for shape in shapes:
        ranks = math.prod(shape)
        if ranks <= device.node_size:
            rings = sum(axis.kind == "ring" for axis in torus_slice(pod, shape, as_float(1e-6)))
            assert float(closed_axes(device, as_float(ranks), as_float(len(shape)))) == rings, shape


@pytest.mark.parametrize("name", ["tpu-v3", "tpu-v5e", "tpu-v5p"])
def test_an_all_to_all_on_a_slice_is_bound_by_its_cut(name: str) -> None:
    """The closed form on the shapes that are rented, axis by axis, latencies aside."""
    pod, device = hwspecs.load_network(name), load_device(name)
    shapes: list[tuple[int, ...]] = [(1, 2), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)]
    if device.torus_dimensions > 2:
        shapes = [(2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (8, 8, 8), (8, 16, 16)]
    for shape in shapes:
        size, found = as_float(1e9), fabric(device, math.prod(shape))
        moved = all_to_all_cost(found, size).time - found.local_latency
        slice_of_pod = torus_slice(pod, shape, as_float(0.0))
        scale = float(pod.bandwidth.si) * 2 * float(device.torus_dimensions) / float(device.link_bandwidth)
        bound = float(bisection_all_to_all(slice_of_pod, size)) * scale
        assert float(moved) == pytest.approx(bound, rel=1e-12), shape


@given(st.sampled_from(sorted(DEVICES)), st.integers(1, 4096))
def test_no_group_has_more_than_its_devices_links(name: str, ranks: int) -> None:
    device = DEVICES[name]
    found = fabric(device, ranks)
    assert 0.0 < float(found.local_bandwidth) <= float(device.link_bandwidth) * (1 + 1e-12)
    assert float(found.local_ranks * found.nodes) >= ranks
    assert float(found.local_ranks * found.nodes) - ranks < float(device.node_size)
