"""Collectives on a network of axes at cost level (a): axis after axis, or all axes at once.

Bucket algorithms for tori: Jain, Sabharwal 2010; Sack, Gropp 2015. A rank reduce-scatters along the first axis, then
its shard along the second and so on, and gathers back in reverse; with the buffer cut in D parts that start at
different axes, the links of all axes are busy. Sizes are of the full buffer [byte], results in [s].
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxperf.core.numerics import Scalar
from jaxperf.network import alpha_beta as flat
from jaxperf.network.topology import Axis, Topology, bisection, hop_of, smaller_half


def axis_reduce_scatter(axis: Axis, size: Scalar, reduction: Scalar | None = None) -> Scalar:
    """Along one axis: rings, in both directions where it closes; behind a switch or fully connected, directly."""
    algorithm = flat.ring_reduce_scatter if axis.kind in ("ring", "line") else flat.direct_reduce_scatter
    return algorithm(axis.size, size, hop_of(axis, reduction))


def axis_all_gather(axis: Axis, size: Scalar) -> Scalar:
    """Along one axis, as `axis_reduce_scatter` without the additions."""
    algorithm = flat.ring_all_gather if axis.kind in ("ring", "line") else flat.direct_all_gather
    return algorithm(axis.size, size, hop_of(axis))


def bucket_reduce_scatter(topology: Topology, size: Scalar, reduction: Scalar | None = None) -> Scalar:
    """sum_i T_i(S_i) with S_1 = S and S_(i+1) = S_i / n_i: one axis after the other."""
    time, data = 0.0 * size, size
    for axis in topology:
        time, data = time + axis_reduce_scatter(axis, data, reduction), data / axis.size
    return time


def bucket_all_gather(topology: Topology, size: Scalar) -> Scalar:
    """The same buckets in reverse order, to a full buffer of `size`."""
    time, data = 0.0 * size, size
    for axis in topology:
        time, data = time + axis_all_gather(axis, data), data / axis.size
    return time


def bucket_all_reduce(topology: Topology, size: Scalar, reduction: Scalar | None = None) -> Scalar:
    """sum_i 2 (n_i - 1) alpha_i + 2 (n_i - 1)/n_i S_i / B_i on a torus; of two axes, the hierarchical all-reduce."""
    return bucket_reduce_scatter(topology, size, reduction) + bucket_all_gather(topology, size)


def rotated_reduce_scatter(topology: Topology, size: Scalar, reduction: Scalar | None = None) -> Scalar:
    """D buckets of S / D at once, the p-th starting at axis p: in every stage each axis serves one of them.

    A stage lasts as long as its slowest axis; those behind the same port come one after the other. With D equal axes
    the bandwidth term is 1 / D of `bucket_reduce_scatter`. An axis of one rank serves none, and is passed by.
    """
    several = [axis.size > 1.0 for axis in topology]
    count = jnp.maximum(sum(jnp.where(each, 1.0, 0.0) for each in several), 1.0)
    parts = [size / count] * len(topology)  # by the axis that serves them
    time = 0.0 * size
    for stage in range(len(topology)):
        longest, port = 0.0 * size, 0.0 * size
        for axis, data in zip(topology, parts, strict=True):
            port = axis_reduce_scatter(axis, data, reduction) + (port if axis.same_port else 0.0)
            longest = jnp.maximum(longest, port)
        parts = _passed_on([data / axis.size for axis, data in zip(topology, parts, strict=True)], several)
        time = time + jnp.where(stage < count, longest, 0.0)
    return time


def _passed_on(parts: list[Scalar], several: list[Bool[Array, "*batch"]]) -> list[Scalar]:
    """Every part one axis further: each takes that of the nearest before it that has several ranks."""
    found = parts
    for back in range(len(parts), 0, -1):
        found = [jnp.where(several[index - back], parts[index - back], kept) for index, kept in enumerate(found)]
    return found


def rotated_all_reduce(topology: Topology, size: Scalar, reduction: Scalar | None = None) -> Scalar:
    """`rotated_reduce_scatter`, then the gathers in reverse, which differ from it by the additions only."""
    return rotated_reduce_scatter(topology, size, reduction) + rotated_reduce_scatter(topology, size)


def bisection_all_to_all(topology: Topology, size: Scalar, imbalance: Scalar | None = None) -> Scalar:
    """Each rank scatters `size` bytes over all ranks: the links along each axis, and the steps to the farthest rank.

    Cut an axis of n ranks in the middle: of the n/2 S bytes on one side half must cross, T_i = n S / 4 / bisection,
    which is n S / (8 b) on a ring and n S / (4 b) on a line. On a full connection and behind a switch a rank's own
    links carry (n-1)/n S at most, for all axes behind one port together. All others work at once and the slowest one
    counts, times `imbalance` (max over mean).
    """
    skew = 1.0 if imbalance is None else imbalance
    moving, steps, behind = 0.0 * size, 0.0 * size, 1.0
    for axis in topology:
        half = smaller_half(axis)
        crossing = half * (axis.size - half) / axis.size * size / jnp.where(axis.size > 1.0, bisection(axis), 1.0)
        behind = axis.size * behind if axis.same_port else axis.size
        leaving = (axis.size - 1.0) / axis.size * size / hop_of(axis).bandwidth
        through = (behind - 1.0) / behind * size / axis.bandwidth if axis.same_port else leaving
        needed = jnp.maximum(jnp.maximum(crossing, leaving), through)
        moving, steps = jnp.maximum(moving, needed), steps + axis.latency * _farthest(axis)
    return moving * skew + steps


def _farthest(axis: Axis) -> Scalar:
    """Steps to the farthest rank of an axis [1]."""
    several = jnp.where(axis.size > 1.0, 1.0, 0.0)
    if axis.kind == "ring":
        return several * jnp.maximum(0.5 * axis.size, 1.0)
    return axis.size - 1.0 if axis.kind == "line" else several
