"""Cost level (a): all-to-all, broadcast and send in closed form.

Sources: Bruck et al. 1997 (all-to-all in log2 n rounds); Thakur, Rabenseifner, Gropp 2005 (pairwise exchange); Chan et
al. 2007 and van de Geijn 1994 (broadcasts); Kumar et al. (Blue Gene) and Jain, Sabharwal 2010 (tori, `topology`).
An all-to-all of `size` S [byte] is the send buffer of one rank, its own part included; a broadcast's the message.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.network.alpha_beta import Hop, log2_rounds, ring_all_gather, when_several


def send(size: Scalar, hop: Hop) -> Scalar:
    """alpha + S/B (Hockney 1994)."""
    return hop.latency + size / hop.bandwidth


def pairwise_all_to_all(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """(n-1) alpha + (n-1)/n S/B: one peer after the other."""
    return ring_all_gather(ranks, size, hop)


def bruck_all_to_all(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """log2(n) (alpha + S/(2B)): half of the buffer moves in every round, on behalf of others."""
    return log2_rounds(ranks) * (hop.latency + 0.5 * size / hop.bandwidth)


def connected_all_to_all(ranks: Scalar, size: Scalar, link: Hop) -> Scalar:
    """alpha + S/(n b): all peers at once, each over a link of bandwidth b of its own (a full connection)."""
    return when_several(ranks, link.latency + size / ranks / link.bandwidth)


def imbalanced_all_to_all(ranks: Scalar, size: Scalar, hop: Hop, imbalance: Scalar) -> Scalar:
    """(n-1) alpha + phi (n-1)/n S/B: the rank that receives phi times the mean is done last."""
    return pairwise_all_to_all(ranks, size * imbalance, hop)


def binomial_broadcast(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """log2(n) (alpha + S/B): who has the message passes it on."""
    return log2_rounds(ranks) * send(size, hop)


def pipelined_broadcast(ranks: Scalar, size: Scalar, hop: Hop, pieces: Scalar) -> Scalar:
    """(n - 2 + k) (alpha + S/(k B)): k pieces, one after the other down a chain of ranks."""
    return when_several(ranks, (ranks - 2.0 + pieces) * (hop.latency + size / pieces / hop.bandwidth))


def chain_broadcast(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """`pipelined_broadcast` with the best k, sqrt((n-2) S / (alpha B)), not rounded: (sqrt((n-2) alpha) + sqrt(S/B))^2;
    in one piece, (n-1) (alpha + S/B), where that k is less than 1."""
    filling, moving = (ranks - 2.0) * hop.latency, size / hop.bandwidth
    split = filling + moving + 2.0 * safe_sqrt(filling * moving)
    whole = (ranks - 1.0) * (hop.latency + moving)
    return jnp.where((ranks - 2.0) * moving > hop.latency, split, whole)


def scatter_gather_broadcast(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """(log2(n) + n - 1) alpha + 2 (n-1)/n S/B: a binomial scatter, then a ring all-gather (van de Geijn)."""
    scatter = log2_rounds(ranks) * hop.latency + (ranks - 1.0) / ranks * size / hop.bandwidth
    return scatter + ring_all_gather(ranks, size, hop)


def multicast_broadcast(ranks: Scalar, size: Scalar, hop: Hop) -> Scalar:
    """alpha + S/B: the switch copies."""
    return when_several(ranks, send(size, hop))
