"""Collectives of a group that lies in several nodes: inside the nodes, and between them the fastest of what NCCL has.

Inside, `jaxperf.network.collectives` on the links of a node; between nodes each rank has a port of its own and carries
its share of the buffer, by rings or by trees (a closed form each, `jaxperf.network.alpha_beta`). Gathers and reductions
move chunks on both at once, as NCCL does. The node with the fewest ranks has the fewest ports for what passes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.network.alpha_beta import Hop
from jaxperf.network.alpha_beta_best import ALL_GATHER, ALL_REDUCE, BROADCAST, Algorithm, best, fastest
from jaxperf.network.collectives import all_gather_cost, all_reduce_cost, all_to_all_cost, send_cost
from jaxperf.network.link import Fabric

Stage = Callable[[Scalar], Scalar]  # of a buffer's bytes, in seconds
BETWEEN_ALL_REDUCE = [ALL_REDUCE[name] for name in ("ring", "double-binary-tree")]
BETWEEN_ALL_GATHER = [ALL_GATHER[name] for name in ("ring", "doubling")]
ANY_BROADCAST = [BROADCAST[name] for name in ("binomial", "chain", "scatter-gather")]


def all_reduce_time(fabric: Fabric, size: Scalar) -> Scalar:
    """Of `size` bytes on every rank: reduce-scatter inside, all-reduce of shares between, all-gather inside [s]."""
    inside, share = fabric.in_one_node(), size / fabric.ports
    stages = _pipelined(lambda part: 2.0 * all_gather_cost(inside, part).time, BETWEEN_ALL_REDUCE, fabric, size, share)
    return jnp.where(fabric.nodes > 1.0, stages, all_reduce_cost(inside, size).time)


def all_gather_time(fabric: Fabric, size: Scalar) -> Scalar:
    """To a whole buffer of `size` bytes; a reduce-scatter is the same run backwards [s].

    The ports of a node take in what the ranks elsewhere have: (N-1)/N of a share of S / m of the m ranks of even nodes.
    """
    inside = fabric.in_one_node()
    entering = fabric.elsewhere * size / fabric.ports
    share = entering * fabric.nodes / jnp.maximum(fabric.nodes - 1.0, 1.0)
    return _pipelined(lambda part: all_gather_cost(inside, part).time, BETWEEN_ALL_GATHER, fabric, size, share)


def all_to_all_time(fabric: Fabric, size: Scalar) -> Scalar:
    """Every rank scatters `size` bytes over all ranks [s]."""
    return all_to_all_cost(fabric, size).time


def broadcast_time(fabric: Fabric, size: Scalar) -> Scalar:
    """Of `size` bytes from one rank to all; a reduce is the same run backwards [s].

    Pieces leave a node through all its ports and go around inside at the same time, as NCCL's chains of the ranks do,
    one for each port.
    """
    link = Hop(fabric.local_latency, fabric.local_bandwidth)

    def inside(part: Scalar) -> Scalar:
        return best(ANY_BROADCAST, fabric.local_ranks, part, link).time

    return _pipelined(inside, ANY_BROADCAST, fabric, size, size / fabric.ports)


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


def _pipelined(inside: Stage, between: Sequence[Algorithm], fabric: Fabric, size: Scalar, share: Scalar) -> Scalar:
    """A stage inside the nodes and the fastest between them, of a port's `share` [byte], in chunks, so that both links
    are busy at once: their latencies, and the longer of what they move, as
    `jaxperf.training.communication.ring_pass` [s]."""
    latency, moving = _parts(inside, size)
    port = _port(fabric)
    others = [_parts(lambda part, run=run: run(fabric.nodes, part, port), share) for run in between]
    return fastest([latency + first + jnp.maximum(moving, rest) for first, rest in others]).time


def _parts(stage: Stage, size: Scalar) -> tuple[Scalar, Scalar]:
    """What a stage takes without a byte, and what its bytes add [s]."""
    empty = stage(jnp.zeros_like(size))
    return empty, stage(size) - empty


def _port(fabric: Fabric) -> Hop:
    """A rank's way to another node."""
    return Hop(fabric.network_latency, fabric.network_bandwidth)
