"""Collectives on one or several nodes with the closed forms of `alpha_beta` (cost level a).

Inside a node the small-message algorithms of serving engines compete with the bandwidth-optimal one; across nodes the
hierarchical form is used: reduce-scatter inside, all-reduce of the shards between nodes, all-gather inside.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.network.alpha_beta import (
    Hop,
    direct_all_reduce,
    one_shot_all_reduce,
    ring_all_reduce,
)
from jaxperf.network.alpha_beta_exchange import send
from jaxperf.network.link import Fabric


def network_cost(time: Scalar, wire_bytes: Scalar) -> Cost:
    """A `Cost` that keeps only the links busy."""
    zero = as_float(0.0)
    return Cost(time=time, compute=zero, memory=zero, network=time, latency=zero, flops=zero, bytes_moved=wire_bytes)


@jax.jit
def all_reduce_cost(fabric: Fabric, size: Scalar) -> Cost:
    """All-reduce of a buffer of `size` bytes held by every rank; exactly zero for one rank.

    Local: the faster of one-shot, alpha + (n-1) S / B, and two-shot, 2 alpha + 2 (n-1)/n S / B; on a torus rings,
    2 steps alpha + 2 (n-1)/n S / B. Between N nodes, a ring of the shards: 2 (N-1) alpha + 2 (N-1)/N (S/n) / B, with
    the largest shards, those of the node that has the fewest ranks.
    """
    n, nodes = fabric.local_ranks, fabric.nodes
    alpha, rate = fabric.local_latency, fabric.local_bandwidth
    one_shot = one_shot_all_reduce(n, size, Hop(alpha, rate))
    two_shot = direct_all_reduce(n, size, Hop(alpha, rate))
    rings = 2.0 * fabric.ring_steps * alpha + 2.0 * (n - 1.0) / n * size / rate
    direct = jnp.where(nodes > 1.0, two_shot, jnp.minimum(one_shot, two_shot))
    local = jnp.where(n > 1.0, jnp.where(fabric.ring_steps > 0.0, rings, direct), 0.0)
    between = ring_all_reduce(nodes, size / fabric.ports, Hop(fabric.network_latency, fabric.network_bandwidth))
    ranks = fabric.members
    return network_cost(local + between, 2.0 * (ranks - 1.0) / ranks * size)


@jax.jit
def all_gather_cost(fabric: Fabric, size: Scalar) -> Cost:
    """All-gather to a full buffer of `size` bytes: alpha + (n-1)/n S / B inside, a ring of shards between nodes.

    What the ranks of other nodes have enters a node through its ports: (N-1)/N (S/n) / B, and where one has fewer ranks
    m than the others, (n N - m)/(n N) (S/m) / B of all n N ranks.
    """
    n, nodes = fabric.local_ranks, fabric.nodes
    steps = jnp.where(fabric.ring_steps > 0.0, fabric.ring_steps, 1.0)
    local = jnp.where(n > 1.0, steps * fabric.local_latency + (n - 1.0) / n * size / fabric.local_bandwidth, 0.0)
    between = (nodes - 1.0) * fabric.network_latency
    between = between + fabric.elsewhere * size / fabric.ports / fabric.network_bandwidth
    ranks = fabric.members
    return network_cost(local + between, (ranks - 1.0) / ranks * size)


@jax.jit
def all_to_all_cost(fabric: Fabric, size: Scalar) -> Cost:
    """Each rank scatters a buffer of `size` bytes evenly over all ranks; local and remote parts move together.

    On a torus the bisection bounds it: a byte takes as many links as `link.torus_hops` says.
    """
    n, nodes = fabric.local_ranks, fabric.nodes
    ranks = fabric.members
    moved = fabric.hops * (n - 1.0) / ranks * size
    local = jnp.where(n > 1.0, fabric.local_latency + moved / fabric.local_bandwidth, 0.0)
    remote = fabric.network_latency + fabric.elsewhere * size / fabric.network_bandwidth
    remote = jnp.where(nodes > 1.0, remote, 0.0)
    return network_cost(jnp.maximum(local, remote), (ranks - 1.0) / ranks * size)


@jax.jit
def send_cost(fabric: Fabric, size: Scalar) -> Cost:
    """Point to point: alpha + S / B, between nodes where the group spans several."""
    local = send(size, Hop(fabric.local_latency, fabric.local_bandwidth))
    remote = send(size, Hop(fabric.network_latency, fabric.network_bandwidth))
    return network_cost(jnp.where(fabric.nodes > 1.0, remote, local), size)
