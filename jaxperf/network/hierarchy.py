"""Which links a parallel group really has: how many of its ranks share a node, and how many ports leave the node.

Ranks are numbered densely, node after node. A group of every `stride`-th rank (tensor parallel 1, data parallel the
product of the inner degrees) has g / stride members in a node of g devices, so its ring over the nodes has that many
network ports per node: g / stride times the port of one device, not one port and not all g. Where they do not fill the
last node, what passes every node goes through the ports of the ranks there.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, floor_div
from jaxperf.network.link import Fabric, filled_fabric


def local_members(node_size: Scalar, members: Scalar, stride: Scalar) -> Scalar:
    """Members of a group, one at every `stride`-th device, that sit in one node of `node_size` devices [1]."""
    return jnp.clip(floor_div(node_size, stride), 1.0, members)


def group_link(device: Device, members: Scalar, stride: Scalar) -> Fabric:
    """The fabric of a group of `members` ranks that are `stride` devices apart.

    **Arguments:** `members`, `stride`: positive integers [1]. All of the links' rate is reached.
    **Returns:** the split between local and remote ranks; each rank keeps its own share of the network.
    """
    return filled_fabric(device, local_members(device.node_size, members, stride), members, as_float(1.0))


def pair_link(device: Device, members: Scalar, stride: Scalar) -> Fabric:
    """The fabric of neighbors of a group, as in a pipeline or a ring: of all pairs, those with the slowest link.

    Neighbors meet over the network as soon as the whole group does not fit into one node.
    """
    group = group_link(device, members, stride)
    pair = group_link(device, jnp.minimum(members, 2.0), stride)
    ranks = jnp.minimum(members, 2.0)
    nodes = jnp.where(group.nodes > 1.0, ranks, 1.0)
    return dataclasses.replace(pair, local_ranks=ranks / nodes, nodes=nodes)


def ring_bandwidth(fabric: Fabric) -> Scalar:
    """Bus bandwidth of a ring through the whole group, min(B_link, m B_port) where m of it share a node [byte/s].

    All members of a node inject at once, each through its own port; inside one node only the link counts.
    """
    ports = fabric.ports * fabric.network_bandwidth
    inside = jnp.where(fabric.local_ranks > 1.0, fabric.local_bandwidth, ports)
    return jnp.where(fabric.nodes > 1.0, jnp.minimum(inside, ports), fabric.local_bandwidth)
