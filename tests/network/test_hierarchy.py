"""Groups of ranks that are apart: members per node and the ports they have, against a count of the ranks by hand."""

from __future__ import annotations

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.device import Device
from jaxperf.core.numerics import as_float
from jaxperf.network.collectives import all_gather_cost, all_reduce_cost, all_to_all_cost, send_cost
from jaxperf.network.expert_exchange import exchange_pass
from jaxperf.network.hierarchy import group_link, pair_link, ring_bandwidth
from jaxperf.network.link import group_fabric
from tests.devices import DEVICES, H100, MI300X

powers = st.sampled_from([1, 2, 4, 8, 16, 64])


def split(members: int, stride: int, device: Device = H100) -> tuple[float, float]:
    found = group_link(device, as_float(members), as_float(stride))
    return float(found.local_ranks), float(found.nodes)


@given(powers, powers)
def test_a_group_is_split_as_its_ranks_are_placed(members: int, stride: int) -> None:
    nodes = {rank * stride // 8 for rank in range(members)}
    assert split(members, stride) == (members / len(nodes), len(nodes))


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("ranks", [1, 2, 8, 12, 64])
def test_a_dense_group_is_the_fabric_the_models_use(device: Device, ranks: int) -> None:
    dense = group_fabric(device, as_float(ranks), as_float(1.0))
    assert group_link(device, as_float(ranks), as_float(1.0)) == dense


@pytest.mark.parametrize(("stride", "members", "ports"), [(1, 64, 8), (2, 32, 4), (4, 16, 2), (8, 8, 1), (64, 8, 1)])
def test_a_group_has_one_port_for_each_member_in_the_node(stride: int, members: int, ports: int) -> None:
    """Eight devices with 50 GB/s each: data parallel over tensor parallel t has (8 / t) 50 GB/s."""
    found = ring_bandwidth(group_link(H100, as_float(members), as_float(stride)))
    assert float(found) == pytest.approx(min(450e9, ports * 50e9) if ports > 1 else 50e9, rel=1e-15)


def test_inside_a_node_only_the_link_counts() -> None:
    assert float(ring_bandwidth(group_link(H100, as_float(4.0), as_float(2.0)))) == 450e9
    assert float(ring_bandwidth(group_link(MI300X, as_float(4.0), as_float(2.0)))) == pytest.approx(3 / 7 * 448e9)


def test_the_all_reduce_of_a_large_buffer_moves_at_the_ports_of_its_group() -> None:
    """2 (N-1)/N S / ((g / t) B) over the network beside 2 (m-1)/m S / B inside."""
    size = 1e13
    inside = 2 * 3 / 4 * size / 450e9
    between = 2 * 7 / 8 * size / (4 * 50e9)
    cost = all_reduce_cost(group_link(H100, as_float(32.0), as_float(2.0)), as_float(size))
    assert float(cost.time) == pytest.approx(inside + between, rel=1e-6)


@pytest.mark.parametrize(
    ("stages", "stride", "remote"), [(2, 4, False), (4, 4, True), (8, 8, True), (8, 1, False), (1, 8, False)]
)
def test_stages_of_a_pipeline_meet_over_the_slowest_of_their_links(stages: int, stride: int, remote: bool) -> None:
    pair = pair_link(H100, as_float(stages), as_float(stride))
    assert float(pair.local_ranks * pair.nodes) == min(stages, 2)
    expected = 8e-6 + 1e9 / 50e9 if remote else 3e-6 + 1e9 / 450e9
    assert float(send_cost(pair, as_float(1e9)).time) == pytest.approx(expected, rel=1e-14)


def test_the_slope_follows_the_port() -> None:
    def time(port: jax.Array) -> jax.Array:
        device = H100.replace(network_bandwidth=port)
        return all_reduce_cost(group_link(device, as_float(16.0), as_float(4.0)), as_float(1e9)).time

    slope = jax.grad(time)(as_float(50e9))
    difference = (time(as_float(50.01e9)) - time(as_float(49.99e9))) / 2e7
    assert float(slope) == pytest.approx(float(difference), rel=1e-6)
    assert float(slope) < 0.0


@pytest.mark.parametrize(("ranks", "last"), [(9, 1), (12, 4), (100, 4), (16, 8)])
def test_a_last_node_that_is_not_full_has_fewer_ports(ranks: int, last: int) -> None:
    """Through the ports of its `last` ranks goes what they and the others have for each other."""
    size, found = 1e13, group_link(H100, as_float(ranks), as_float(1.0))
    assert float(ring_bandwidth(found)) == min(450e9, last * 50e9)
    assert (float(found.members), float(found.ports)) == (ranks, last)
    others, nodes = ranks - last, -(-ranks // 8)
    inside = 7 / 8 * size / 450e9
    gathered = all_gather_cost(found, as_float(size))
    assert float(gathered.time) == pytest.approx(inside + others / ranks * size / (last * 50e9), rel=1e-5)
    reduced = all_reduce_cost(found, as_float(size))
    between = 2 * (nodes - 1) / nodes * size / (last * 50e9)
    assert float(reduced.time) == pytest.approx(2 * inside + between, rel=1e-5)
    for exchanged in (all_to_all_cost(found, as_float(size)).time, exchange_pass(found, as_float(size), as_float(1.0))):
        assert float(exchanged) == pytest.approx(others / ranks * size / 50e9, rel=1e-5)
