"""NCCL's choice and time of a collective: the fastest algorithm and protocol by its own cost model.

t = latency + S / (bus bandwidth x ratio), minimized over ring and tree with the LL, LL128 and Simple protocols, and
in-switch reduction (NVLS) where there is one. Source: NVIDIA/nccl, src/graph/tuning.cc (constants: `nccl_constants`, of
today and of until 2.20).
Not modelled: CollNet, PAT (one GPU a node) and the tree of NVLS between nodes.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxperf.core.numerics import Scalar, floor_div
from jaxperf.network.alpha_beta_best import fastest
from jaxperf.network.nccl_constants import (
    BASE_LATENCY,
    LONE_LATENCY,
    MICRO,
    NETWORK_LATENCY,
    NETWORK_OVERHEAD,
    NVLINK_LATENCY,
    NVLS_CHANNELS,
    NVLS_LATENCY,
    PCIE_LATENCY,
    PROTOCOLS,
    TREE_SHARE,
    NcclTier,
)

ALGORITHMS = tuple(f"{algorithm}-{protocol}" for algorithm in ("ring", "tree") for protocol in PROTOCOLS) + ("nvls",)
WAYS = ("ring", "tree", "nvls")  # algorithms without their protocols
ANY_WAY = -1.0
LL, LL128, SIMPLE = range(3)
LL_SHARE = 0.5  # of 16 bytes on the wire eight are flags
LL128_WIRE = 120.0 / 128.0  # of 128 bytes on the wire eight are flags
TREE_LL = 3.8  # the bus over what a tree with LL is credited with
TREE_LL128_INSIDE = 7.0 / 9.0  # of the bus, a tree with LL128 in one node
BUS_SHARE = 0.92  # of the bus that the LL128 ring and trees are credited with
PLATEAU_BYTES = 64.0  # of a rank and channel, from which a ring between nodes is slowed


class NcclGroup(eqx.Module):
    """A communicator: `ranks` over `nodes` [1], `bus_bandwidth`: all channels of a rank together inside a node, one
    direction [byte/s], `channels` [1], `pcie`: 1 where the ranks of a node are joined by PCIe, `nvls_bandwidth`: what
    the channels of in-switch reduction carry, 0 where the switch cannot add this format or so few ranks [byte/s];
    `network_bandwidth`: all network ports of a node together [byte/s]; `shared_port`: 1 where these are one port that
    the ranks reach through the host, 0 where each rank has a port beside it."""

    ranks: Float[Array, "*batch"]
    nodes: Float[Array, "*batch"]
    bus_bandwidth: Float[Array, "*batch"]
    channels: Float[Array, "*batch"]
    pcie: Float[Array, "*batch"]
    nvls_bandwidth: Float[Array, "*batch"]
    network_bandwidth: Float[Array, "*batch"]
    shared_port: Float[Array, "*batch"]


class NcclTime(eqx.Module):
    """`time` [s] of the fastest and `algorithm`, its place in `ALGORITHMS`."""

    time: Float[Array, "*batch"]
    algorithm: Int[Array, "*batch"]


def nccl_all_reduce_time(group: NcclGroup, tier: NcclTier, size: Scalar, way: Scalar | float = ANY_WAY) -> NcclTime:
    """All-reduce of a buffer of `size` bytes: rings of 2 (n-1) steps, trees, or the switch.

    `way`: place in `WAYS` of the only one that may be taken, `ANY_WAY` for NCCL's own choice.

    **Returns:** exactly zero for one rank, infinite time where the group cannot take the way.
    """
    steps = 2.0 * (group.ranks - 1.0)
    crossings = jnp.where(group.nodes > 1.0, 2.0 * (group.nodes - 1.0) + tier.more_crossings, 0.0)
    rings = [_ring(group, tier, size, steps, crossings, protocol, plateau=True) for protocol in range(3)]
    trees = [_tree(group, tier, size, protocol) for protocol in range(3)]
    ways = (rings, trees, [_nvls(group, tier, size)])
    allowed = [(way == ANY_WAY) | (way == place) for place, times in enumerate(ways) for _ in times]
    every = [time for times in ways for time in times]
    return _fastest(group, [jnp.where(may, time, jnp.inf) for may, time in zip(allowed, every, strict=True)])


def nccl_gather_time(group: NcclGroup, tier: NcclTier, size: Scalar) -> NcclTime:
    """All-gather to, or reduce-scatter from, a full buffer of `size` bytes: rings of n-1 steps."""
    steps, crossings = group.ranks - 1.0, group.nodes - 1.0
    rings = [_ring(group, tier, size, steps, crossings, protocol, plateau=False) for protocol in range(3)]
    return _fastest(group, rings)


def nccl_broadcast_time(group: NcclGroup, tier: NcclTier, size: Scalar) -> NcclTime:
    """Broadcast, or reduce, of a buffer of `size` bytes: rings of n steps, which carry each byte once.

    For the latency NCCL counts one step or n, by the channels that its search finds; here the hops of the chain are
    counted as those of a gather.
    """
    crossings = group.nodes - 1.0
    rings = [_ring(group, tier, size, group.ranks, crossings, protocol, plateau=False) for protocol in range(3)]
    return _fastest(group, rings)


def nccl_send_time(group: NcclGroup, size: Scalar) -> Scalar:
    """A send of `size` bytes from one rank to another, of the next node where there are several [s].

    NCCL has no cost model of sends. base + step + S / B with the latencies of the ring's Simple protocol, B the bus
    inside a node, and between nodes the rank's own port, or the one port of its node.
    """
    several = (group.nodes > 1.0).astype(size.dtype)
    port = jnp.where(group.shared_port > 0.0, group.network_bandwidth, _own_port(group))
    return _sends(group, size, 1.0 - several, several, port)


def nccl_all_to_all_time(group: NcclGroup, size: Scalar) -> Scalar:
    """An exchange of buffers of `size` bytes [s]: n - 1 sends of S / n in one group, those to other nodes through a
    rank's share of its node's ports.

    Calls within a group progress independently (NCCL's user guide, point-to-point communication): they share the rate
    of a link, not its latency, and both links are busy at once; ranks joined by PCIe have one slot for both.
    """
    near = group.ranks / group.nodes - 1.0
    return _sends(group, size / group.ranks, near, group.ranks - 1.0 - near, _own_port(group))


def _sends(group: NcclGroup, size: Scalar, near: Scalar, far: Scalar, port: Scalar) -> Scalar:
    """So many sends at once inside the node and to other nodes, those at the rate `port` [s]."""
    inside = _step(group, "ring", SIMPLE) + near * size / group.bus_bandwidth
    between = NETWORK_LATENCY["ring"][SIMPLE] * MICRO + far * size / jnp.minimum(group.bus_bandwidth, port)
    slot = jnp.where(group.pcie > 0.0, (near + far) * size / group.bus_bandwidth, 0.0)
    longest = jnp.maximum(jnp.where(near > 0.0, inside, 0.0), jnp.where(far > 0.0, between, 0.0))
    longest = jnp.maximum(longest, slot)
    return jnp.where(group.ranks > 1.0, BASE_LATENCY["ring"][LL] * MICRO + longest, 0.0)


def _own_port(group: NcclGroup) -> Scalar:
    """A rank's share of the ports of its node [byte/s]."""
    return group.network_bandwidth * group.nodes / group.ranks


def _ring(
    group: NcclGroup, tier: NcclTier, size: Scalar, steps: Scalar, crossings: Scalar, protocol: int, plateau: bool
) -> Scalar:
    """base + (steps - crossings) x inside + crossings x between + S / (bus x n / steps) [s]."""
    bus, channels, several = _bus(group), group.channels, group.nodes > 1.0
    ll_share = jnp.where(several, tier.ll_between, LL_SHARE)
    rate = (
        jnp.minimum(_of_nodes(tier.ll, group), ll_share * bus),
        jnp.minimum(BUS_SHARE * bus, channels * _of_nodes(tier.ring_ll128, group)),
        bus,
    )[protocol]
    inside = _step(group, "ring", protocol)
    inside = jnp.where(several, jnp.maximum(inside, NETWORK_OVERHEAD[protocol] * tier.post), inside)
    between = jnp.where(group.ranks == group.nodes, LONE_LATENCY[protocol], NETWORK_LATENCY["ring"][protocol]) * MICRO
    latency = BASE_LATENCY["ring"][protocol] * MICRO + (steps - crossings) * inside + crossings * between
    if plateau and protocol == SIMPLE:
        large = several & (size >= PLATEAU_BYTES * channels * group.ranks)
        latency = latency * jnp.where(large, tier.plateau, 1.0)
    time = latency + size * steps / (jnp.maximum(group.ranks, 1.0) * rate)
    return _usable(group, time, protocol)


def _tree(group: NcclGroup, tier: NcclTier, size: Scalar, protocol: int) -> Scalar:
    """base + 2 ((g-1) x inside + log2 N x between) + S / (bus / 2), g ranks on each of N nodes [s].

    Between two nodes a tree sends S over the network and a ring 2 (n-1)/n S, so a port carries twice the bus of trees
    (`ncclTopoCompute`, search.cc, and NVIDIA/nccl issue 812).
    """
    bus, channels = _bus(group, jnp.where(group.nodes == 2.0, 2.0, 1.0)), group.channels
    rate = jnp.minimum(BUS_SHARE * bus, channels * _of_nodes(tier.tree, group))
    if protocol == LL:
        rate = jnp.minimum(rate / TREE_LL, _of_nodes(tier.ll, group))
    if protocol == LL128:
        wire = jnp.where(group.nodes > 1.0, LL128_WIRE, TREE_LL128_INSIDE)
        rate = jnp.minimum(rate * wire, channels * _of_nodes(tier.tree_ll128, group))
    _, exponent = jnp.frexp(group.nodes)
    depth = (exponent - 1).astype(group.nodes.dtype)  # floor(log2 N), exactly
    hops = floor_div(group.ranks, group.nodes) - 1.0
    base, inside, between = _tree_latencies(group, tier, protocol)
    latency = base + 2.0 * (hops * inside + depth * between)
    time = latency + 2.0 * size / (rate * _tree_share(size, protocol))
    return _usable(group, time, protocol)


def _nvls(group: NcclGroup, tier: NcclTier, size: Scalar) -> Scalar:
    """latency + S / (channels' rate x efficiency x (c - 1) / c); infinite without one switch that joins all ranks and
    reduces [s]."""
    able = (group.nvls_bandwidth > 0.0) & (tier.nvls_efficiency > 0.0) & (group.nodes <= 1.0)
    rate = group.nvls_bandwidth * tier.nvls_efficiency * (NVLS_CHANNELS - 1.0) / NVLS_CHANNELS
    return jnp.where(able, NVLS_LATENCY * MICRO + size / jnp.where(able, rate, 1.0), jnp.inf)


def _fastest(group: NcclGroup, times: list[Scalar]) -> NcclTime:
    """The least of the times and its place; zero where there is nobody to talk to."""
    best = fastest(times)
    return NcclTime(jnp.where(group.ranks > 1.0, best.time, 0.0), best.winner)


def _bus(group: NcclGroup, ports: Scalar | float = 1.0) -> Scalar:
    """The bus inside a node; between nodes the ports of a node, counted `ports` times, if these are slower [byte/s]."""
    between = jnp.minimum(group.bus_bandwidth, ports * group.network_bandwidth)
    return jnp.where(group.nodes > 1.0, between, group.bus_bandwidth)


def _usable(group: NcclGroup, time: Scalar, protocol: int) -> Scalar:
    """LL128 needs stores of 128 bytes that arrive whole, which NVLink and a port beside the GPU promise, no host."""
    through_host = (group.pcie > 0.0) | ((group.nodes > 1.0) & (group.shared_port > 0.0))
    return jnp.where(through_host, jnp.inf, time) if protocol == LL128 else time


def _tree_latencies(group: NcclGroup, tier: NcclTier, protocol: int) -> tuple[Scalar | float, Scalar, Scalar | float]:
    """What a tree pays for the call, for a step inside a node and between nodes [s]."""
    if protocol == SIMPLE:
        return tier.tree_simple[..., 0], tier.tree_simple[..., 1], tier.tree_simple[..., 2]
    base, between = BASE_LATENCY["tree"][protocol], NETWORK_LATENCY["tree"][protocol]
    return base * MICRO, _step(group, "tree", protocol), between * MICRO


def _step(group: NcclGroup, algorithm: str, protocol: int) -> Scalar:
    """One step between two ranks of a node [s]."""
    pcie, nvlink = PCIE_LATENCY[algorithm][protocol], NVLINK_LATENCY[algorithm][protocol]
    return jnp.where(group.pcie > 0.0, pcie, nvlink) * MICRO


def _of_nodes(constant: Array, group: NcclGroup) -> Scalar:
    """The constant of one node, two nodes or more."""
    more = jnp.where(group.nodes > 2.0, constant[..., 2], constant[..., 1])
    return jnp.where(group.nodes > 1.0, more, constant[..., 0])


def _tree_share(size: Scalar, protocol: int) -> Scalar:
    """The tabulated share of the rate at the power of two not above `size` [1]."""
    shares = jnp.asarray(TREE_SHARE[protocol], size.dtype)
    _, exponent = jnp.frexp(jnp.maximum(size / 64.0, 1.0))
    place = exponent - 1  # floor(log2), exactly
    return jnp.where(place < len(TREE_SHARE[protocol]), shares[jnp.clip(place, 0, len(TREE_SHARE[protocol]) - 1)], 1.0)
