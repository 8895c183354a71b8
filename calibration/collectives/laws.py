"""The law of a collective: what `jaxperf.network` says of it with published constants; a few assumed ones stand here.

Nothing in it is fitted: what the assumptions miss, the curves of `terms` take up.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.network import expert_exchange
from jaxperf.network.alpha_beta import Hop, direct_all_gather, ring_all_gather
from jaxperf.network.alpha_beta_best import BROADCAST, best
from jaxperf.network.alpha_beta_exchange import send
from jaxperf.network.custom_all_reduce import LIMIT, custom_all_reduce_time
from jaxperf.network.expert_exchange import ExpertGroup
from jaxperf.network.nccl import (
    ALGORITHMS,
    NcclGroup,
    nccl_all_reduce_time,
    nccl_all_to_all_time,
    nccl_broadcast_time,
    nccl_gather_time,
    nccl_send_time,
)
from jaxperf.network.nccl_constants import NcclTier
from jaxperf.sweeps.once import evaluate_over

OPS = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "moe_a2a_dispatch", "moe_a2a_combine"),
    *("broadcast", "reduce"),
)
# Who runs it: the collective library, a serving engine's own all-reduce, or an exchange of tokens in one of two modes.
RUNNERS = ("library", "engine", "normal", "low-latency")
KINDS = (*ALGORITHMS, "one-shot", "two-shot", "send-receive", "normal", "low-latency")
BROADCASTS = [BROADCAST[name] for name in ("binomial", "chain", "scatter-gather")]
# The way of each kind; only an all-reduce is run in several.
WAYS = tuple(kind.partition("-")[0] if kind.endswith(("-ll", "-ll128", "-simple")) else kind for kind in KINDS)
# What one streaming multiprocessor of a copy kernel moves: 20 of them use NVLink of 450 GB/s fully (DeepSeek-V3,
# section 3.2.2), of which a kernel is assumed to reach 80 %.
LINK_SHARE = 0.8
SM_RATE = LINK_SHARE * 450e9 / 20.0  # [byte/s]
PCIE_SHARE = 24.0 / 31.5  # PCIe 4.0 x16 counts as 24 GB/s, twice the 12 GB/s that topo.h gives to 3.0
PAIR = 2.0  # ranks behind one PCIe switch
BARRIER = 3e-6  # assumed, of an engine's kernel: launch, and flags in the memory of the peers [s]
# Assumed, of an exchange of tokens: launch, counts, notification; those of the normal kernels are of one node [s].
CALL = {"dispatch": 25e-6, "combine": 38e-6, "low-latency": 12e-6}
# Assumed, of a normal kernel between nodes: it counts and waits in rounds that double the nodes heard of (a barrier by
# dissemination: Hensgen, Finkel, Manber 1988) [s].
ROUND = 32e-6
ADDING_SHARE = 0.75  # assumed, of the rate of cores that add the copies of several nodes up while they combine
# Static routes to nodes below other leaf switches conflict (Geoffray, Hoefler 2008: a non-blocking Clos network keeps
# as little as 38 % of its bisection; DeepEP's README on adaptive routing). Half is assumed, beyond the ranks of one
# leaf: half of the 64 ports of NVIDIA's Quantum-2 QM9700.
STATIC_SHARE, LEAF_RANKS = 0.5, 32.0


class CollectivePoint(eqx.Module):
    """One collective, scalars in SI units.

    `op`, `runner`: places in `OPS` and `RUNNERS`; `size` of the whole buffer [byte]; `tokens` a rank, `token_bytes` and
    `topk` of an exchange of tokens; `sms`: cores that its kernel has; `link`, `network`: rates of a rank, one direction
    [byte/s]; `link_latency`, `network_latency` [s]; `port_pairs`: 0 where each rank has a network port beside it, else
    how many pairs of ranks, each behind one PCIe switch as in DGX A100, fill the one port that their node has;
    `static_routes`: 1 where those beyond a leaf switch conflict; `way`: place in `nccl.WAYS` of the only way that a
    library's all-reduce may take, `nccl.ANY_WAY` for its own choice.
    """

    op: Float[Array, "*batch"]
    runner: Float[Array, "*batch"]
    size: Float[Array, "*batch"]
    tokens: Float[Array, "*batch"]
    token_bytes: Float[Array, "*batch"]
    topk: Float[Array, "*batch"]
    sms: Float[Array, "*batch"]
    ranks: Float[Array, "*batch"]
    nodes: Float[Array, "*batch"]
    pcie: Float[Array, "*batch"]
    nvls: Float[Array, "*batch"]
    link: Float[Array, "*batch"]
    link_latency: Float[Array, "*batch"]
    network: Float[Array, "*batch"]
    network_latency: Float[Array, "*batch"]
    port_pairs: Float[Array, "*batch"]
    static_routes: Float[Array, "*batch"]
    way: Float[Array, "*batch"]
    tier: NcclTier


class LawTime(eqx.Module):
    """`time` by the law, `empty` of the same without a byte, `alpha_beta` by the plain closed form [s]; `kind`: place
    in `KINDS` of what the law chose."""

    time: Float[Array, "*batch"]
    empty: Float[Array, "*batch"]
    alpha_beta: Float[Array, "*batch"]
    kind: Int[Array, "*batch"]


def law_time(point: CollectivePoint) -> LawTime:
    """The law at one point: NCCL's own model, one-shot or two-shot, or the exchange of tokens."""
    time, kind = _time_and_kind(point)
    empty, _ = _time_and_kind(dataclasses.replace(point, size=jnp.zeros_like(time), tokens=jnp.zeros_like(time)))
    return LawTime(time, empty, alpha_beta_time(point), kind)


def _time_and_kind(point: CollectivePoint) -> tuple[Scalar, Scalar]:
    library, chosen = _library(point)
    limit = jnp.where(
        point.nodes > 1.0, 0.0, LIMIT
    )  # peers' memory is that of one node; beyond it engines call the library
    engine, way = custom_all_reduce_time(point.ranks, point.size, Hop(BARRIER, point.link), library, limit)
    normal, low_latency = _exchanges(point)
    place = lambda name: KINDS.index(name)  # noqa: E731
    shots = jnp.where(way == 0, place("one-shot"), jnp.where(way == 1, place("two-shot"), chosen))
    times = (library, engine, normal, low_latency)
    kinds = (chosen, shots, place("normal"), place("low-latency"))
    return _choose(point.runner, times), _choose(point.runner, kinds)


def alpha_beta_time(point: CollectivePoint) -> Scalar:
    """The closed form with the datasheet's rates and one latency a step [s].

    Ring all-reduce 2 (n-1) alpha + 2 (n-1)/n S / B, all-gather and reduce-scatter half of it, all-to-all alpha +
    (n-1)/n S / B, send alpha + S / B, exchange of tokens alpha + T c b / B, broadcast and reduce the least of a chain,
    a binomial tree, and a scatter with a gather. Between nodes alpha and B are of the slowest: of a ring or a
    broadcast, which goes through all ports of a node, the least of the link and the ports together; else of a rank.
    """
    ports, _ = _ports(point)
    hop = Hop(_slowest_latency(point), _slowest_rate(point, point.network))
    around = Hop(hop.latency, _slowest_rate(point, ports))
    ring = ring_all_gather(point.ranks, point.size, around)
    told = best(BROADCASTS, point.ranks, point.size, around).time
    direct = direct_all_gather(point.ranks, point.size, hop)
    copies = expert_exchange.remote_copies(point.ranks, point.topk)
    tokens = send(point.tokens * point.token_bytes * copies, hop)
    return _choose(point.op, (2.0 * ring, ring, ring, direct, send(point.size, hop), tokens, tokens, told, told))


def laws(points: CollectivePoint) -> LawTime:
    """`law_time` of every point [rows], on the host: tables have as many lengths as there are tables."""
    return evaluate_over(_law_time, points, along=((0,),))


_law_time = jax.jit(law_time)


def _library(point: CollectivePoint) -> tuple[Scalar, Scalar]:
    inside = point.link * jnp.where(point.pcie > 0.0, PCIE_SHARE, point.tier.link_share)
    ports, shared = _ports(point)
    switch = point.nvls * point.link * point.tier.nvls_share
    parts = (inside, point.tier.channels, point.pcie, switch, ports, shared)
    group = NcclGroup(point.ranks, point.nodes, *parts)
    reduced = nccl_all_reduce_time(group, point.tier, point.size, point.way)
    gathered = nccl_gather_time(group, point.tier, point.size)
    chained = nccl_broadcast_time(group, point.tier, point.size)
    sent, scattered = nccl_send_time(group, point.size), nccl_all_to_all_time(group, point.size)
    send = KINDS.index("send-receive")
    times = (reduced.time, *2 * (gathered.time,), scattered, sent, *2 * (gathered.time,), *2 * (chained.time,))
    kinds = (reduced.algorithm, *2 * (gathered.algorithm,), *4 * (send,), *2 * (chained.algorithm,))
    return _choose(point.op, times), _choose(point.op, kinds)


def _ports(point: CollectivePoint) -> tuple[Scalar, Scalar]:
    """Rate of a node to the network [byte/s], and 1 where its ranks share one port."""
    per_node = point.ranks / point.nodes
    filled = jnp.minimum(ceil_div(per_node, PAIR) / jnp.maximum(point.port_pairs, 1.0), 1.0)
    shared = (point.port_pairs > 0.0).astype(per_node.dtype)
    return point.network * jnp.where(shared > 0.0, filled, per_node), shared


def _exchanges(point: CollectivePoint) -> tuple[Scalar, Scalar]:
    """(normal, low-latency) times of an exchange of tokens [s]."""
    cores = point.sms * SM_RATE
    combine = point.op == OPS.index("moe_a2a_combine")
    copying = cores * jnp.where(combine & (point.nodes > 1.0), ADDING_SHARE, 1.0)
    call = jnp.where(combine, CALL["combine"], CALL["dispatch"])
    link = LINK_SHARE * point.link
    conflicting = (point.static_routes > 0.0) & (point.ranks > LEAF_RANKS)
    network = point.network * jnp.where(conflicting, STATIC_SHARE, 1.0)
    normal = ExpertGroup(point.ranks, point.nodes, link, network, call + ROUND * jnp.log2(point.nodes))
    slowest = jnp.minimum(link, cores), jnp.minimum(point.network, cores)
    quick = ExpertGroup(point.ranks, point.nodes, *slowest, as_float(CALL["low-latency"]))
    phi = expert_exchange.uniform_imbalance(point.ranks, point.tokens, point.topk)
    load = (point.tokens, point.token_bytes, point.topk, phi)
    return (
        expert_exchange.exchange_time(normal, *load, point.nodes, copying),
        expert_exchange.low_latency_exchange_time(quick, *load),
    )


def _slowest_rate(point: CollectivePoint, between: Scalar) -> Scalar:
    return jnp.where(point.nodes > 1.0, jnp.minimum(point.link, between), point.link)


def _slowest_latency(point: CollectivePoint) -> Scalar:
    return jnp.where(point.nodes > 1.0, point.network_latency, point.link_latency)


def _choose(place: Scalar, values: tuple) -> Scalar:
    """The value at a place that is traced."""
    found = values[0]
    for index, value in enumerate(values[1:], start=1):
        found = jnp.where(place == index, value, found)
    return found
