"""Collectives of a group that lies in several nodes: inside the nodes, and between them the fastest of what NCCL has.

Inside, `jaxperf.network.collectives` on the links of a node; between nodes each rank has a port of its own and carries
its share of the buffer, by rings or by trees (a closed form each, `jaxperf.network.alpha_beta`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.network.alpha_beta import Hop
from jaxperf.network.alpha_beta_best import ALL_GATHER, ALL_REDUCE, BROADCAST, best
from jaxperf.network.collectives import all_gather_cost, all_reduce_cost, all_to_all_cost, send_cost
from jaxperf.network.link import Fabric

BETWEEN_ALL_REDUCE = [ALL_REDUCE[name] for name in ("ring", "double-binary-tree")]
BETWEEN_ALL_GATHER = [ALL_GATHER[name] for name in ("ring", "doubling")]
ANY_BROADCAST = [BROADCAST[name] for name in ("binomial", "chain", "scatter-gather")]


def all_reduce_time(fabric: Fabric, size: Scalar) -> Scalar:
    """Of `size` bytes on every rank: reduce-scatter inside, all-reduce of shares between, all-gather inside [s]."""
    inside = _inside(fabric)
    share = size / fabric.local_ranks
    hierarchical = 2.0 * all_gather_cost(inside, size).time
    between = best(BETWEEN_ALL_REDUCE, fabric.nodes, share, _port(fabric)).time
    return jnp.where(fabric.nodes > 1.0, hierarchical + between, all_reduce_cost(inside, size).time)


def all_gather_time(fabric: Fabric, size: Scalar) -> Scalar:
    """To a whole buffer of `size` bytes; a reduce-scatter is the same run backwards [s]."""
    between = best(BETWEEN_ALL_GATHER, fabric.nodes, size / fabric.local_ranks, _port(fabric)).time
    return all_gather_cost(_inside(fabric), size).time + between


def all_to_all_time(fabric: Fabric, size: Scalar) -> Scalar:
    """Every rank scatters `size` bytes over all ranks [s]."""
    return all_to_all_cost(fabric, size).time


def broadcast_time(fabric: Fabric, size: Scalar) -> Scalar:
    """Of `size` bytes from one rank to a rank of each node, then inside; a reduce is the same run backwards [s]."""
    link = Hop(fabric.local_latency, fabric.local_bandwidth)
    between = best(ANY_BROADCAST, fabric.nodes, size, _port(fabric)).time
    return between + best(ANY_BROADCAST, fabric.local_ranks, size, link).time


def barrier_time(fabric: Fabric, size: Scalar) -> Scalar:
    """An all-reduce of nothing [s]."""
    return all_reduce_time(fabric, 0.0 * size)


def send_time(fabric: Fabric, size: Scalar) -> Scalar:
    """Of `size` bytes from one rank to another [s]."""
    return send_cost(fabric, size).time


MESSAGE_TIMES: Mapping[str, Callable[[Fabric, Scalar], Scalar]] = MappingProxyType(
    {
        "all_reduce": all_reduce_time,
        "reduce": broadcast_time,
        "all_gather": all_gather_time,
        "broadcast": broadcast_time,
        "all_to_all": all_to_all_time,
        "reduce_scatter": all_gather_time,
        "reduce_scatter_block": all_gather_time,
        "barrier": barrier_time,
        "send": send_time,
    }
)


def _inside(fabric: Fabric) -> Fabric:
    """The part of the group in one node."""
    return dataclasses.replace(fabric, nodes=as_float(1.0))


def _port(fabric: Fabric) -> Hop:
    """A rank's way to another node."""
    return Hop(fabric.network_latency, fabric.network_bandwidth)
