"""Cost level (a): reductions and gathers in closed form, alpha + S / B a message and gamma a reduced byte.

Sources: Hockney 1994 (alpha, beta); Thakur, Rabenseifner, Gropp 2005 (ring, recursive doubling, halving-doubling);
Chan, Heimlich, Purkayastha, van de Geijn 2007; Sanders, Speck, Traff 2009 (two trees); Klenk et al. 2020 (in-switch).
Every function takes `ranks` n [1] and `size` S [byte], the full buffer, and returns a time [s], zero for one rank.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, as_optional_float, next_power_of_two


class Hop(eqx.Module):
    """What a message meets: `latency` alpha of one step [s], `bandwidth` B of a rank in one direction [byte/s],
    `reduction` gamma, the time to add one received byte [s/byte]; `None` where adding costs nothing."""

    latency: Float[Array, "*batch"] = eqx.field(converter=as_float)
    bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    reduction: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)


def ring_reduce_scatter(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """(n-1) alpha + (n-1)/n S (1/B + gamma)."""
    share = (ranks - 1.0) / ranks * size
    return plus_reduction((ranks - 1.0) * hop.latency + share / hop.bandwidth, share, hop)


def ring_all_gather(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """(n-1) alpha + (n-1)/n S / B."""
    return (ranks - 1.0) * (hop.latency + size / ranks / hop.bandwidth)


def ring_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """2 (n-1) alpha + (n-1)/n S (2/B + gamma): a reduce-scatter, then an all-gather (Patarasuk, Yuan 2009)."""
    return ring_reduce_scatter(ranks, size, hop) + ring_all_gather(ranks, size, hop)


def direct_reduce_scatter(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """alpha + (n-1)/n S (1/B + gamma): every rank sends each peer its share at once."""
    return plus_reduction(direct_all_gather(ranks, size, hop), (ranks - 1.0) / ranks * size, hop)


def direct_all_gather(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """alpha + (n-1)/n S / B."""
    return when_several(ranks, hop.latency) + (ranks - 1.0) / ranks * size / hop.bandwidth


def direct_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """Two-shot: 2 alpha + (n-1)/n S (2/B + gamma)."""
    return direct_reduce_scatter(ranks, size, hop) + direct_all_gather(ranks, size, hop)


def one_shot_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """alpha + (n-1) S (1/B + gamma): every rank reads all buffers and adds them itself."""
    others = (ranks - 1.0) * size
    return plus_reduction(when_several(ranks, hop.latency) + others / hop.bandwidth, others, hop)


def recursive_doubling_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """log2(p) (alpha + S/B + S gamma) for p ranks, p the largest power of two up to n; the others join in before and
    are told after, 2 alpha + 2 S/B + S gamma."""
    power = power_of_two_below(ranks)
    step = plus_reduction(hop.latency + size / hop.bandwidth, size, hop)
    return jnp.log2(power) * step + _handed_in(ranks, size, hop) + _handed_out(ranks, size, hop)


def halving_reduce_scatter(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """log2(p) alpha + (p-1)/p S (1/B + gamma), and the others' alpha + S/B + S gamma before."""
    power = power_of_two_below(ranks)
    return _few_steps(power, hop) + ring_reduce_scatter(power, size, hop) + _handed_in(ranks, size, hop)


def doubling_all_gather(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """log2(p) alpha + (p-1)/p S / B, and the others' alpha + S/B after."""
    power = power_of_two_below(ranks)
    return _few_steps(power, hop) + ring_all_gather(power, size, hop) + _handed_out(ranks, size, hop)


def halving_doubling_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """2 log2(p) alpha + (p-1)/p S (2/B + gamma), and the others' 2 alpha + 2 S/B + S gamma."""
    return halving_reduce_scatter(ranks, size, hop) + doubling_all_gather(ranks, size, hop)


def binary_tree_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """Pipelined up and down one binary tree: 2 log2(n) alpha + 3 S/B + 2 S gamma.

    The link into a rank between root and leaves carries the buffers of two children and the result of the parent; two
    ranks have one of these three and three ranks two. Where each child has a link of its own the term is 2 S/B.
    """
    incoming = jnp.minimum(ranks - 1.0, 3.0) * size
    added = jnp.minimum(ranks - 1.0, 2.0) * size
    return plus_reduction(_tree_latency(ranks, hop) + incoming / hop.bandwidth, added, hop)


def double_binary_tree_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """Two trees with half the buffer each, inner ranks of one being leaves of the other: 2 log2(n) alpha +
    (n-1)/n S (2/B + gamma)."""
    share = (ranks - 1.0) / ranks * size
    return plus_reduction(_tree_latency(ranks, hop) + 2.0 * share / hop.bandwidth, share, hop)


def in_switch_all_reduce(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """NVLS: 2 alpha + (n+1)/n S / B; a rank reads its share, added up in the switch, and multicasts the result.

    On its link the buffer goes out once and comes in once, and the share of one rank goes both ways.
    """
    return when_several(ranks, 2.0 * hop.latency + (ranks + 1.0) / ranks * size / hop.bandwidth)


def in_network_all_reduce(ranks: Scalar, size: Scalar, hop: Hop, depth: Scalar) -> Scalar:
    """SHARP: 2 depth alpha + S / B over a tree of `depth` levels of switches that add (Graham et al. 2016)."""
    return when_several(ranks, 2.0 * depth * hop.latency + size / hop.bandwidth)


def hierarchical_all_reduce(local: Scalar, nodes: Scalar, size: Scalar, inner: Hop, outer: Hop) -> Scalar:
    """Rings: reduce-scatter in the node, all-reduce of S/g on each rail between nodes, all-gather in the node."""
    inside = ring_reduce_scatter(local, size, inner) + ring_all_gather(local, size, inner)
    return inside + ring_all_reduce(nodes, size / local, outer)


def when_several(ranks: Scalar, time: Scalar) -> Scalar:
    """`time`, but zero for one rank."""
    return jnp.where(ranks > 1.0, time, 0.0)


def plus_reduction(time: Scalar, added: Scalar, hop: Hop) -> Scalar:
    """`time` and that of adding `added` received bytes."""
    return time if hop.reduction is None else time + added * hop.reduction


def power_of_two_below(ranks: Scalar) -> Scalar:
    """The largest power of two that is at most `ranks` [1]."""
    above = next_power_of_two(ranks)
    return jnp.where(above > ranks, 0.5 * above, above)


def log2_rounds(ranks: Scalar) -> Scalar:
    """Rounds until every rank has heard of every other one, log2(n) rounded up [1]."""
    return jnp.log2(next_power_of_two(ranks))


def _few_steps(power: Scalar, hop: Hop) -> Scalar:
    """What log2(p) steps cost more than the p - 1 of a ring (negative) [s]."""
    return (jnp.log2(power) - (power - 1.0)) * hop.latency


def _tree_latency(ranks: Scalar, hop: Hop) -> Scalar:
    return 2.0 * log2_rounds(ranks) * hop.latency


def _handed_in(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """alpha + S/B + S gamma where n is not a power of two: who is left over gives its buffer to a neighbor before."""
    return _left_over(ranks, plus_reduction(hop.latency + size / hop.bandwidth, size, hop))


def _handed_out(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """alpha + S/B where n is not a power of two: and is given the result after."""
    return _left_over(ranks, hop.latency + size / hop.bandwidth)


def _left_over(ranks: Scalar, time: Scalar) -> Scalar:
    return jnp.where(ranks > power_of_two_below(ranks), time, 0.0)
