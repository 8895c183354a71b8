"""Networks as data: one axis after the other, each a ring, a line, a full connection or a switch.

A torus is several rings, a mesh several lines, a node behind a switch in a fat tree a switch inside and a switch
outside; sizes, bandwidths and latencies may differ from axis to axis. Only the kinds are structure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar, as_float, floor_div
from jaxperf.network.alpha_beta import Hop

if TYPE_CHECKING:
    from hwspecs.network import NetworkSpec

Kind = Literal["ring", "line", "full", "switch"]
KINDS: tuple[Kind, ...] = ("ring", "line", "full", "switch")


class Axis(eqx.Module):
    """`size` ranks [1] joined by links of `bandwidth` in one direction [byte/s] and `latency` of one step [s].

    A ring or line has one link to each neighbor, a full connection one to each other rank, a switch one port for each
    rank. `oversubscription` is that of the switch: ports over uplinks, 1 where it does not block. `same_port`: whether
    it is reached through the port to the axis before, as a spine through the leaves.
    """

    kind: Kind = eqx.field(static=True)
    size: Float[Array, "*batch"] = eqx.field(converter=as_float)
    bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    latency: Float[Array, "*batch"] = eqx.field(converter=as_float)
    oversubscription: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    same_port: bool = eqx.field(static=True, default=False)


Topology = tuple[Axis, ...]  # innermost axis first


def torus(sizes: Sequence[Scalar | float], bandwidth: Scalar, latency: Scalar, wrapped: bool = True) -> Topology:
    """Rings along every axis; with `wrapped` false a mesh, as a slice of a torus has no wrap-around links."""
    return tuple(Axis("ring" if wrapped else "line", size, bandwidth, latency) for size in sizes)


def torus_slice(spec: NetworkSpec, sizes: Sequence[int], latency: Scalar) -> Topology:
    """A slice of a pod: an axis closes into a ring where the slice has a multiple of `spec.wrapped_multiple` chips; in
    three dimensions all axes must, because optical switches join whole cubes, in any row.

    **Raises:** `InputError` if the network is no torus, or the slice does not fit into its pod or is of no whole cubes.
    """
    if spec.kind != "torus" or spec.wrapped_multiple is None or spec.pod_size is None:
        raise InputError(f"{spec.name} is not a torus.")
    shape = _shape(sizes)
    if len(sizes) != spec.axes:
        raise InputError(f"A slice of {spec.name} has {spec.axes} axes, and {shape} has {len(sizes)}.")
    if min(sizes) < 1 or math.prod(sizes) > spec.pod_size.si:
        raise InputError(f"A slice of {shape} chips does not fit into the {spec.pod_size.quantity} of {spec.name}.")
    side = int(spec.wrapped_multiple.si)
    closed = [size % side == 0 for size in sizes]
    if len(sizes) > 2:
        if not all(closed) and max(sizes) > side:
            raise InputError(
                f"{shape} is neither whole cubes of {side} chips a side, as {spec.name} joins, nor in one."
            )
        closed = [all(closed)] * len(sizes)
    elif spec.extents is not None and any(
        a > b for a, b in zip(sorted(sizes), sorted(spec.extents.sizes()), strict=True)
    ):
        raise InputError(f"A slice of {shape} chips is longer than the {_shape(spec.extents.sizes())} of {spec.name}.")
    rate = spec.bandwidth.si
    return tuple(
        Axis("ring" if ring else "line", size, rate, latency) for size, ring in zip(sizes, closed, strict=True)
    )


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def fat_tree(node: Axis, leaf_nodes: Scalar, leaves: Scalar, port: Hop, oversubscription: Scalar) -> Topology:
    """`leaves` leaf switches of `leaf_nodes` nodes each below a spine; every rank has a `port` [byte/s, s].

    The leaves' uplinks are 1 / oversubscription of their ports, and reaching another leaf takes two more switches.
    """
    leaf = Axis("switch", leaf_nodes, port.bandwidth, port.latency)
    return node, leaf, Axis("switch", leaves, port.bandwidth, 2.0 * port.latency, oversubscription, same_port=True)


def rail_optimized(node: Axis, nodes: Scalar, rail_bandwidth: Scalar, rail_latency: Scalar) -> Topology:
    """A fat tree whose leaves join the ranks of equal place in all nodes: between nodes each rank has a rail.

    A leaf does not block, so an all-reduce of shards along the rails meets no oversubscription; what changes rails
    first crosses the node (NCCL's PXN).
    """
    return node, Axis("switch", nodes, rail_bandwidth, rail_latency)


def injection(axis: Axis) -> Scalar:
    """What one rank can send along an axis, all its links together, one direction [byte/s].

    A ring of two has one link, not two; a line has one that counts, because its ends have no other; an oversubscribed
    switch lets only its share of the port through.
    """
    if axis.kind == "ring":
        return axis.bandwidth * jnp.where(axis.size > 2.0, 2.0, 1.0)
    if axis.kind == "full":
        return axis.bandwidth * jnp.maximum(axis.size - 1.0, 1.0)
    return axis.bandwidth / axis.oversubscription if axis.kind == "switch" else axis.bandwidth


def bisection(axis: Axis) -> Scalar:
    """What crosses the middle of an axis in one direction, of all its ranks [byte/s].

    Ring 2 b (b for two ranks), line b, full connection n/2 n/2 b, switch n/2 b / oversubscription; of an odd number of
    ranks the smaller half is on one side.
    """
    if axis.kind in ("ring", "line"):
        return injection(axis)
    half = smaller_half(axis)
    return half * (axis.size - half) * axis.bandwidth if axis.kind == "full" else half * injection(axis)


def smaller_half(axis: Axis) -> Scalar:
    """Ranks on the smaller side of the middle of an axis [1]."""
    return floor_div(axis.size, 2.0 * jnp.ones_like(axis.size))


def hop_of(axis: Axis, reduction: Scalar | None = None) -> Hop:
    """The axis as the closed forms of `alpha_beta` see it: all links of a rank as one."""
    return Hop(axis.latency, injection(axis), reduction)


def leaf_share(nodes: Scalar, leaf_nodes: Scalar, oversubscription: Scalar) -> Scalar:
    """Share of its port that a node keeps in an all-to-all over `nodes` behind leaves of `leaf_nodes` each [1].

    A leaf of L nodes has uplinks for L / o. Of a node's traffic (N - L) / (N - 1) leaves the leaf, which keeps the
    uplinks busy o (N - L) / (N - 1) times as long as the port; the slower of the two counts. A ring of neighbors
    leaves a leaf once and the rails of an all-reduce do not, so neither slows down.
    """
    leaving = jnp.maximum(nodes - leaf_nodes, 0.0) / jnp.maximum(nodes - 1.0, 1.0)
    return 1.0 / jnp.maximum(oversubscription * leaving, 1.0)
