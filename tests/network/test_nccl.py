"""NCCL's own cost model against its published constants worked out by hand, and the engines' small all-reduces."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.network.alpha_beta import Hop
from jaxperf.network.custom_all_reduce import LIMIT, custom_all_reduce_time
from jaxperf.network.nccl import (
    ALGORITHMS,
    WAYS,
    NcclGroup,
    NcclTime,
    nccl_all_reduce_time,
    nccl_all_to_all_time,
    nccl_broadcast_time,
    nccl_gather_time,
    nccl_send_time,
)
from jaxperf.network.nccl_constants import NEW, OLD, TIERS, nccl_tier, tier_of

MIB = 2.0**20
# Compiled once for all tests: operation by operation each of their thousands of calls takes a hundred dispatches.
all_reduce, gather, exchange, broadcast = map(
    jax.jit, (nccl_all_reduce_time, nccl_gather_time, nccl_all_to_all_time, nccl_broadcast_time)
)


def group(ranks: float, nodes: float = 1.0, bus: float = 360e9, channels: float = 12.0, **changes: float) -> NcclGroup:
    given = {"pcie": 0.0, "nvls_bandwidth": 0.0, "network_bandwidth": bus, "shared_port": 0.0} | changes
    return NcclGroup(*map(as_float, (ranks, nodes, bus, channels, *given.values())))


def named(found: NcclTime) -> str:
    return ALGORITHMS[int(found.algorithm)]


def reduce(at: NcclGroup, size: float, tier: str = "hopper", version: str = NEW) -> NcclTime:
    return all_reduce(at, nccl_tier(tier, version), as_float(size))


def test_a_large_all_reduce_in_one_node_is_a_ring_of_the_simple_protocol() -> None:
    # tuning.cc: 8.4 + 14 x 3.4 us, and 512 MiB over 360 GB/s x 8/14.
    found = reduce(group(8.0), 512 * MIB)
    assert named(found) == "ring-simple"
    assert float(found.time) == pytest.approx((8.4 + 14 * 3.4) * 1e-6 + 512 * MIB / (360e9 * 8 / 14), rel=1e-12)


def test_a_small_all_reduce_of_many_nodes_takes_the_tree_of_the_ll_protocol() -> None:
    # Eight nodes of eight: 6.8 + 2 (7 x 0.6 + 3 x 5.0) us; bus min(200 x 0.92, 12 x 36) / 3.8, more than LL's 35 GB/s
    # between nodes; half of that, and 1 KiB is the fifth share, 0.9.
    found = reduce(group(64.0, 8.0, bus=200e9), 1024.0)
    assert named(found) == "tree-ll"
    assert float(found.time) == pytest.approx(
        (6.8 + 2 * (7 * 0.6 + 3 * 5.0)) * 1e-6 + 1024 / (35e9 / 2 * 0.9), rel=1e-12
    )


def test_the_ring_between_nodes_pays_the_network_and_the_plateau() -> None:
    # Two A100 nodes of eight: 28 steps inside (Simple: at least 3 x 2 us), 2 between at 14 us, all x 1.4 from 64 bytes.
    found = reduce(group(16.0, 2.0, bus=200e9), 1024 * MIB, "ampere")
    latency = (8.4 + 28 * 6.0 + 2 * 14.0) * 1.4e-6
    assert named(found) == "ring-simple"
    assert float(found.time) == pytest.approx(latency + 1024 * MIB * 30 / 16 / 200e9, rel=1e-12)


def test_in_switch_reduction_wins_where_it_can() -> None:
    # 25 us, and 320 GB/s of channels x 0.85 x 15/16; without the switch's share the ring is left.
    found = reduce(group(8.0, nvls_bandwidth=320e9), 512 * MIB)
    assert named(found) == "nvls"
    assert float(found.time) == pytest.approx(25e-6 + 512 * MIB / (320e9 * 0.85 * 15 / 16), rel=1e-12)
    assert named(reduce(group(8.0, nvls_bandwidth=240e9), 512 * MIB, "ampere")) == "ring-simple"
    assert named(reduce(group(16.0, 2.0, nvls_bandwidth=320e9), 512 * MIB)) != "nvls"  # no switch joins two nodes


def test_a_broadcast_is_a_ring_that_carries_each_byte_once() -> None:
    # tuning.cc: n steps, so that n / steps is 1: 8.4 + 4 x 3.4 us, and 256 MiB over 360 GB/s.
    tier = nccl_tier("hopper")
    found = broadcast(group(4.0), tier, as_float(256 * MIB))
    assert named(found) == "ring-simple"
    assert float(found.time) == pytest.approx((8.4 + 4 * 3.4) * 1e-6 + 256 * MIB / 360e9, rel=1e-12)
    # 16 ranks on two nodes: 15 steps inside (Simple: at least 3 x 1 us), one between at 14 us, through all ports.
    found = broadcast(group(16.0, 2.0, bus=200e9), tier, as_float(256 * MIB))
    assert float(found.time) == pytest.approx((8.4 + 15 * 3.4 + 14.0) * 1e-6 + 256 * MIB / 200e9, rel=0.02)
    assert float(broadcast(group(1.0), tier, as_float(MIB)).time) == 0.0


def test_gather_has_half_the_steps_and_no_tree() -> None:
    found = gather(group(4.0), nccl_tier("hopper"), as_float(256 * MIB))
    assert float(found.time) == pytest.approx((8.4 + 3 * 3.4) * 1e-6 + 256 * MIB * 3 / 4 / 360e9, rel=1e-12)
    small = gather(group(4.0), nccl_tier("hopper"), as_float(512.0))
    assert named(small) == "ring-ll"
    assert float(small.time) == pytest.approx((6.6 + 3 * 0.6) * 1e-6 + 512 * 3 / 4 / 141e9, rel=1e-12)


def test_ll128_needs_nvlink() -> None:
    chosen = {named(reduce(group(4.0, bus=24e9, pcie=1.0), 2.0**power)) for power in range(8, 31)}
    assert chosen.isdisjoint({"ring-ll128", "tree-ll128"})
    assert "ring-ll128" in {named(reduce(group(8.0), 2.0**power)) for power in range(8, 31)}


def test_ll128_needs_a_network_port_beside_the_gpu() -> None:
    apart = {"nodes": 2.0, "network_bandwidth": 24e9}
    for shared, barred in ((0.0, False), (1.0, True)):
        at = group(8.0, **apart, shared_port=shared)
        chosen = {named(reduce(at, 2.0**power, "ampere")) for power in range(8, 31)}
        assert chosen.isdisjoint({"ring-ll128", "tree-ll128"}) == barred
    assert "ring-ll128" in {named(reduce(group(8.0, shared_port=1.0), 2.0**power)) for power in range(8, 31)}


def test_between_two_nodes_a_tree_sends_half_of_what_a_ring_does() -> None:
    # 64 MiB is the share 0.8 of a tree: S / (2 x 24 x 0.92 x 0.8 / 2) with 8.4 + 2 (3 x 4 + 14) us, ring 7/4 S / 24.
    at = {"bus": 240e9, "network_bandwidth": 24e9, "shared_port": 1.0}
    found = reduce(group(8.0, 2.0, **at), 64 * MIB, "ampere")
    assert named(found) == "tree-simple"
    assert float(found.time) == pytest.approx(60.4e-6 + 64 * MIB / (24e9 * 0.92 * 0.8), rel=1e-12)
    assert named(reduce(group(12.0, 3.0, **at), 64 * MIB, "ampere")) == "ring-simple"


def test_until_2_20_a_step_of_a_tree_took_28_us() -> None:
    # 2.20.3, tuning.cc: no base, 2 (3 + 1) steps of 28 us; 64 MiB as above. Eight A100 of a node never take a tree.
    at = {"bus": 240e9, "network_bandwidth": 24e9, "shared_port": 1.0}
    found = reduce(group(8.0, 2.0, **at), 64 * MIB, "ampere", OLD)
    assert named(found) == "tree-simple"
    assert float(found.time) == pytest.approx(8 * 28e-6 + 64 * MIB / (24e9 * 0.92 * 0.8), rel=1e-12)
    # 1 MiB: rings, by LL128 or Simple, 4 crossings instead of 2; today's trees are faster.
    small = reduce(group(8.0, 2.0, **at), MIB, "ampere", OLD)
    assert named(small) == "ring-simple"
    assert float(small.time) == pytest.approx((8.4 + 10 * 6.0 + 4 * 14.0) * 1.4e-6 + MIB * 14 / 8 / 24e9, rel=1e-12)
    assert named(reduce(group(8.0, 2.0, **at), MIB, "ampere")) == "tree-simple"


def test_until_2_20_a_ring_with_ll_had_a_quarter_of_the_bus_between_nodes() -> None:
    at = group(8.0, 2.0, bus=240e9, network_bandwidth=24e9, shared_port=1.0)
    slopes = []
    for version in (NEW, OLD):
        times = [gather(at, nccl_tier("ampere", version), as_float(size)).time for size in (1024.0, 2048.0)]
        slopes.append(float(times[1] - times[0]) / 1024)
    assert slopes == pytest.approx([7 / 8 / 12e9, 7 / 8 / 6e9], rel=1e-6)


def test_one_rank_has_nobody_to_talk_to() -> None:
    alone = group(1.0)
    assert float(reduce(alone, MIB).time) == 0.0
    assert float(gather(alone, nccl_tier("hopper"), as_float(MIB)).time) == 0.0
    assert float(nccl_send_time(alone, as_float(MIB))) == float(exchange(alone, as_float(MIB))) == 0.0


def test_sends_of_a_group_share_the_rate_and_not_the_latency() -> None:
    # 6.6 us for the call, 3.4 us over NVLink beside 14 us between nodes, there at a rank's 50 GB/s of 400.
    near, far = group(8.0), group(16.0, 2.0, network_bandwidth=400e9)
    send = nccl_send_time
    inside, between = 16 * MIB / 360e9, 16 * MIB / 50e9
    assert float(exchange(near, as_float(128 * MIB))) == pytest.approx(10e-6 + 7 * inside, rel=1e-12)
    assert float(exchange(far, as_float(256 * MIB))) == pytest.approx(20.6e-6 + 8 * between, rel=1e-12)
    assert float(exchange(group(8.0), as_float(8.0))) == pytest.approx(
        float(exchange(group(2.0), as_float(8.0))), rel=1e-3
    )
    assert float(send(near, as_float(16 * MIB))) == pytest.approx(10e-6 + inside, rel=1e-12)
    assert float(send(far, as_float(16 * MIB))) == pytest.approx(20.6e-6 + between, rel=1e-12)


def test_cards_send_to_their_node_and_to_others_through_one_slot() -> None:
    """Eight cards of a node send 7 parts to each other and 8 to the next node: 15 through a slot of PCIe, 8 in the
    time of the longer where NVLink and a port are two ways."""
    size, part = as_float(256 * MIB), 16 * MIB / 24e9
    wide = {"bus": 24e9, "network_bandwidth": 8 * 25e9}
    two, one = (float(exchange(group(16.0, 2.0, **wide, pcie=pcie), size)) for pcie in (0.0, 1.0))
    assert two == pytest.approx(20.6e-6 + 8 * part, rel=1e-12)
    assert one == pytest.approx(6.6e-6 + 15 * part, rel=1e-12)


@given(st.sampled_from((2.0, 4.0, 16.0)), st.sampled_from((1.0, 4.0, 8.0)), st.booleans(), st.floats(10.0, 34.0))
def test_nothing_passes_the_ports_of_a_node_faster_than_they_carry(
    nodes: float, per_node: float, shared: bool, log2_size: float
) -> None:
    """A sum enters and leaves every node, an exchange leaves it for all others, a send takes one port."""
    size, rate = 2.0**log2_size, 25e9 if shared else 25e9 * per_node
    at = group(nodes * per_node, nodes, network_bandwidth=rate, shared_port=float(shared), nvls_bandwidth=320e9)
    left = (nodes - 1.0) / nodes * size
    assert float(reduce(at, size).time) >= left / rate
    assert float(gather(at, nccl_tier("hopper"), as_float(size)).time) >= left / rate
    assert float(exchange(at, as_float(size))) >= left * per_node / rate
    assert float(nccl_send_time(at, as_float(size))) >= size / 25e9


@pytest.mark.parametrize("tier", TIERS)
def test_the_chosen_time_is_finite_and_grows_with_the_size(tier: str) -> None:
    sizes = jnp.exp2(jnp.linspace(6.0, 33.0, 109))
    for nodes in (1.0, 2.0, 8.0):
        at = group(8.0 * nodes, nodes)
        times = jax.vmap(lambda size, at=at: nccl_all_reduce_time(at, nccl_tier(tier), size).time)(sizes)
        assert bool(jnp.isfinite(times).all())
        # The tabulated shares of trees jump at powers of two, so only a doubling is sure to be slower.
        assert bool((times[4:] >= times[:-4]).all())


@given(st.integers(2, 64), st.floats(1e3, 1e9), st.floats(1.0, 8.0))
def test_more_bandwidth_is_never_slower(ranks: int, size: float, factor: float) -> None:
    slow, fast = (reduce(group(float(ranks), bus=bus), size).time for bus in (100e9, 100e9 * factor))
    assert float(fast) <= float(slow)


# Devices of a node of eight: what 18 links carry one way as NCCL counts them, and eight ports of 50 GB/s.
BUSES = {"ampere": 0.8 * 300e9, "hopper": 0.8 * 450e9, "blackwell": 0.8 * 900e9}


@pytest.mark.parametrize(("newer", "older"), [("hopper", "ampere"), ("blackwell", "hopper")])
@pytest.mark.parametrize("nodes", [1.0, 2.0, 4.0, 8.0, 32.0, 256.0])
@given(size=st.floats(1024.0, 2.0**34))
def test_faster_links_of_a_newer_generation_are_not_slower(newer: str, older: str, nodes: float, size: float) -> None:
    """Each with as many channels as NCCL's search finds."""

    def time(name: str) -> float:
        channels = float(nccl_tier(name).channels)
        at = group(8.0 * nodes, nodes, bus=BUSES[name], channels=channels, network_bandwidth=400e9)
        return float(reduce(at, size, name).time)

    assert time(newer) <= 1.02 * time(older)


def test_channels_are_those_of_the_search() -> None:
    # search.cc: the fastest speed whose channels the links of a GPU hold, each then divided in two (18 links of 20.6
    # GB/s, speeds from 60; of 40.1 GB/s, speeds from 90).
    for tier, links, speed in (("hopper", 18 * 20.6, 60.0), ("blackwell", 18 * 40.1, 90.0)):
        assert float(nccl_tier(tier).channels) == 2.0 * (links // speed)
    # Trees over many nodes: 24 GB/s a channel fill eight ports of which NCCL takes 48 GB/s.
    assert float(nccl_tier("blackwell").channels * nccl_tier("blackwell").tree[2]) == 8 * 48e9


def test_the_slope_of_the_time_is_that_of_the_bus() -> None:
    slope = jax.grad(lambda size: nccl_all_reduce_time(group(8.0), nccl_tier("hopper"), size).time)(as_float(512 * MIB))
    assert float(slope) == pytest.approx(14 / 8 / 360e9, rel=1e-9)


def test_a_way_that_is_asked_for_is_taken_whatever_its_time() -> None:
    at, tier, size = group(16.0, 2.0, bus=200e9), nccl_tier("ampere"), as_float(512 * MIB)
    each = [all_reduce(at, tier, size, as_float(place)) for place in range(len(WAYS))]
    assert [named(found).partition("-")[0] for found in each[:2]] == ["ring", "tree"]
    free = all_reduce(at, tier, size)
    assert float(free.time) == min(float(found.time) for found in each)
    assert float(each[WAYS.index("nvls")].time) == float("inf")  # no switch joins two nodes


def test_architectures_have_the_tier_of_their_compute_capability() -> None:
    assert (tier_of("ampere-ga102"), tier_of("hopper-h20"), tier_of("ada")) == ("ampere", "hopper", "ampere")
    assert tier_of("cdna3") is None
    with pytest.raises(InputError, match=r"'hoper' is no generation.*hopper"):
        nccl_tier("hoper")


def test_shots_of_serving_engines_by_hand() -> None:
    hop, library, limit = Hop(3e-6, 450e9), as_float(1.0), as_float(LIMIT)
    one, _ = custom_all_reduce_time(as_float(8), as_float(1e5), hop, library, limit)
    two, _ = custom_all_reduce_time(as_float(8), as_float(1e6), hop, library, limit)
    assert float(one) == pytest.approx(3e-6 + 7e5 / 450e9, rel=1e-12)
    assert float(two) == pytest.approx(6e-6 + 2 * 7 / 8 * 1e6 / 450e9, rel=1e-12)
    assert float(custom_all_reduce_time(as_float(1), as_float(1e5), hop, library, limit)[0]) == 0.0


@pytest.mark.parametrize(
    ("ranks", "size", "kind"),
    [(8, 255 * 1024, 0), (8, 256 * 1024, 1), (4, 256 * 1024, 0), (4, 512 * 1024, 1), (2, 4 * MIB, 0), (2, 8 * MIB, 2)],
)
def test_the_engine_switches_at_its_thresholds(ranks: int, size: float, kind: int) -> None:
    hop, library = Hop(3e-6, 450e9), as_float(1.0)
    time, found = custom_all_reduce_time(as_float(ranks), as_float(size), hop, library, as_float(LIMIT))
    assert int(found) == kind
    assert (float(time) == 1.0) == (kind == 2)
