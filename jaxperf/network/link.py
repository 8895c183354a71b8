"""The two links of a device as a group of ranks sees them: scale-up inside a node, scale-out between nodes."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides, next_power_of_two

CUBE = 64.0  # chips of 4 x 4 x 4, which optical switches join (`wrapped_multiple` of hwspecs/networks)


class Fabric(eqx.Module):
    """Links available to a group of ranks, per direction and device, after the link efficiency.

    `local_ranks` in the fullest of `nodes` nodes; `local_bandwidth`, `network_bandwidth` [byte/s]; `local_latency`,
    `network_latency`: alpha of one step [s]; `ring_steps`: steps around the rings of a torus, one way (0 where any
    rank reaches any other in one step); `hops`: links that a byte of an all-to-all takes on a torus (1 there); `gaps`:
    ranks that the nodes lack to have `local_ranks` each, `widest_gap`: those of the node with the fewest [1].
    """

    local_ranks: Float[Array, "*batch"]
    nodes: Float[Array, "*batch"]
    local_bandwidth: Float[Array, "*batch"]
    local_latency: Float[Array, "*batch"]
    network_bandwidth: Float[Array, "*batch"]
    network_latency: Float[Array, "*batch"]
    ring_steps: Float[Array, "*batch"]
    hops: Float[Array, "*batch"]
    gaps: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    widest_gap: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def members(self) -> Float[Array, "*batch"]:
        """Ranks of the group [1]."""
        return self.local_ranks * self.nodes - self.gaps

    @property
    def ports(self) -> Float[Array, "*batch"]:
        """Of the node with the fewest ranks, through which all that passes every node has to go [1]."""
        return self.local_ranks - self.widest_gap

    @property
    def elsewhere(self) -> Float[Array, "*batch"]:
        """Share of the ranks that are in other nodes than those of the node with the fewest [1]."""
        return 1.0 - self.ports / self.members

    def in_one_node(self) -> Fabric:
        """The part of the group in its fullest node."""
        return dataclasses.replace(self, nodes=as_float(1.0), gaps=as_float(0.0), widest_gap=as_float(0.0))


def group_fabric(device: Device, ranks: Scalar, link_efficiency: Scalar) -> Fabric:
    """The fabric of `ranks` devices placed densely: nodes are filled one after the other."""
    return filled_fabric(device, jnp.minimum(ranks, device.node_size), ranks, link_efficiency)


def filled_fabric(device: Device, local: Scalar, ranks: Scalar, link_efficiency: Scalar) -> Fabric:
    """The fabric of `ranks` ranks, `local` in each node and in the last one what is left."""
    nodes = ceil_div(ranks, local)
    gap = local * nodes - ranks
    return dataclasses.replace(split_fabric(device, local, nodes, link_efficiency), gaps=gap, widest_gap=gap)


def split_fabric(device: Device, local: Scalar, nodes: Scalar, link_efficiency: Scalar) -> Fabric:
    """The fabric of a group with `local` ranks in each of `nodes` nodes, each rank with its own port to the network."""
    axes, steps = torus_shape(local, device.torus_dimensions)
    share = link_share(device, local, axes)
    return Fabric(
        local_ranks=local,
        nodes=nodes,
        local_bandwidth=device.link_bandwidth * share * link_efficiency,
        local_latency=device.link_latency,
        network_bandwidth=device.network_bandwidth * link_efficiency,
        network_latency=device.network_latency,
        ring_steps=steps,
        hops=torus_hops(device, local, axes),
    )


def pair_fabric(device: Device, ranks: Scalar, link_efficiency: Scalar) -> Fabric:
    """The fabric of one sender and one receiver among `ranks`: across nodes where the group spans several, else the
    links that join two devices."""
    group = group_fabric(device, ranks, link_efficiency)
    pair = group_fabric(device, jnp.minimum(ranks, 2.0), link_efficiency)
    return dataclasses.replace(group, local_bandwidth=pair.local_bandwidth)


def torus_shape(ranks: Scalar, dimensions: Scalar) -> tuple[Scalar, Scalar]:
    """(axes in use, steps to go once along each axis) of a slice of a torus, as near to a cube as it gets [1].

    A slice of n = 2^j chips spreads over min(j, D) axes of n^(1/axes) chips. Zero steps where `dimensions` is 0.
    """
    is_torus = dimensions > 0.0
    axes = jnp.clip(jnp.log2(ranks), 1.0, jnp.maximum(dimensions, 1.0))
    side = ranks ** (1.0 / axes)
    return axes, jnp.where(is_torus, axes * (side - 1.0), 0.0)


def link_share(device: Device, ranks: Scalar, axes: Scalar) -> Scalar:
    """Share of a device's links that a group of `ranks` can use [1].

    Switch: all. Fully connected (mesh): the n - 1 links to the group's members, of N - 1. Torus: of 2 D, one link per
    axis in use and a second where the axis closes into a ring, which moves both ways.
    """
    mesh = (ranks - 1.0) / jnp.maximum(device.node_size - 1.0, 1.0)
    torus = (axes + closed_axes(device, ranks, axes)) / jnp.maximum(2.0 * device.torus_dimensions, 1.0)
    share = jnp.where(device.mesh > 0.0, mesh, jnp.where(device.torus_dimensions > 0.0, torus, 1.0))
    return jnp.where(ranks > 1.0, share, 1.0)


def closed_axes(device: Device, ranks: Scalar, axes: Scalar) -> Scalar:
    """Axes of a slice of `ranks` chips, of `axes` in use, whose ends are joined [1].

    Three dimensions: all of them where the slice is of whole cubes, else none (Jouppi et al. 2023, TPU v4, ISCA; Cloud
    TPU documentation, TPU v5p: 4x4x4 and larger slices have a full torus). Two dimensions: an axis as long as the
    pod's, of slices 2^i x 2^j as near to a square as they get (Cloud TPU documentation, TPU v5e).
    """
    cubes = jnp.where(divides(jnp.full_like(ranks, CUBE), ranks), axes, 0.0)
    pod = jnp.sqrt(device.node_size)
    long = next_power_of_two(jnp.sqrt(ranks))
    whole = jnp.where(long >= pod, 1.0, 0.0) + jnp.where(ranks >= long * pod, 1.0, 0.0)
    return jnp.where(device.torus_dimensions > 2.0, cubes, whole)


def torus_hops(device: Device, ranks: Scalar, axes: Scalar) -> Scalar:
    """Links that a byte of an all-to-all takes on a torus, by its busiest axis; 1 where there is no torus [1].

    An axis of s chips with links b takes s S / (8 b) where it closes and s S / (4 b) where not, for half of what is on
    one side of its middle crosses it (Jain, Sabharwal 2010; `topology_collectives.bisection_all_to_all`). That is over
    the (n-1)/n S / B of a chip's links together.
    """
    closed = closed_axes(device, ranks, axes)
    crossing = longest_axis(ranks, device.torus_dimensions) / jnp.where(closed > 0.0, 8.0, 4.0)
    others = jnp.maximum(ranks - 1.0, 1.0) / ranks
    found = crossing * (axes + closed) / others
    return jnp.where((device.torus_dimensions > 0.0) & (ranks > 1.0), found, 1.0)


def longest_axis(ranks: Scalar, dimensions: Scalar) -> Scalar:
    """Chips along the longest axis of a slice as near to a cube as powers of two get: the least s with s^D >= n [1]."""
    axes = jnp.maximum(dimensions, 1.0)
    side = next_power_of_two(ranks ** (1.0 / axes))
    shorter = 0.5 * side  # where rounding carried the root of a cube over its power of two
    return jnp.where(shorter**axes > ranks - 0.5, shorter, side)
