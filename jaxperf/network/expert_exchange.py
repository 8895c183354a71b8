"""The exchange of tokens with the experts of a mixture: dispatch before them, combine after (DeepSeek-V3, DeepEP).

A normal kernel sends one copy to each *rank* that holds a chosen expert; a low-latency kernel one to each expert. With
uniform routing n bins are hit by k draws n (1 - (1 - 1/n)^k) times; the busiest receiver gets phi times the mean.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, safe_sqrt
from jaxperf.network.limited_routing import limited_hits
from jaxperf.network.link import Fabric

FP8_BYTES = 1.0 + 4.0 / 128.0  # an element, and its share of one fp32 scale for 128 of them (DeepSeek-V3, 3.3)


class ExpertGroup(eqx.Module):
    """`ranks` over `nodes` that hold the experts [1]; `local_bandwidth`: of a rank to the others of its node,
    `network_bandwidth`: of a rank to other nodes, one direction [byte/s]; `latency` of a call [s]."""

    ranks: Float[Array, "*batch"]
    nodes: Float[Array, "*batch"]
    local_bandwidth: Float[Array, "*batch"]
    network_bandwidth: Float[Array, "*batch"]
    latency: Float[Array, "*batch"]


def expected_hits(bins: Scalar, draws: Scalar) -> Scalar:
    """Distinct bins among `bins` that `draws` uniform draws hit: n (1 - (1 - 1/n)^k); 1 of a single bin [1]."""
    missed = jnp.where(bins > 1.0, 1.0 - 1.0 / jnp.maximum(bins, 2.0), 1.0)
    return jnp.where(bins > 1.0, bins * (1.0 - missed**draws), 1.0)


def token_hits(bins: Scalar, draws: Scalar, table: Float[Array, "*batch bins"] | None = None) -> Scalar:
    """Distinct bins that the `draws` experts of a token are in: of limited routing by its `hits_table`, else, where
    there is none or it holds zeros, drawn evenly [1]."""
    even = expected_hits(bins, draws)
    return even if table is None else jnp.where(table[..., 0] > 0.0, limited_hits(table, bins), even)


def remote_copies(ranks: Scalar, topk: Scalar) -> Scalar:
    """Copies of a token that leave its rank, one for each other rank that is hit [1]."""
    return expected_hits(ranks, topk) * (ranks - 1.0) / ranks


def uniform_imbalance(ranks: Scalar, tokens: Scalar, topk: Scalar) -> Scalar:
    """Busiest receiver over the mean with uniform multinomial routing: 1 + sqrt(2 ln n (1 - 1/n) / (T k)) [1].

    `tokens` of one rank. The extreme of n Gaussian loads; skewed routing puts its own factor on top.
    """
    spread = 2.0 * jnp.log(ranks) * (1.0 - 1.0 / ranks)
    return 1.0 + safe_sqrt(spread / (jnp.maximum(tokens, 1.0) * jnp.maximum(topk, 1.0)))


def exchange_time(
    group: ExpertGroup,
    tokens: Scalar,
    token_bytes: Scalar,
    topk: Scalar,
    imbalance: Scalar,
    most_nodes: Scalar,
    core_bandwidth: Scalar | float = jnp.inf,
) -> Scalar:
    """alpha + max over the links and the cores of phi T c b / B: a normal kernel, one copy a rank and one a node on the
    network.

    A copy crosses the network to the rank of the same place in the other node, which passes it on inside. Cores write
    the copies for all nodes and take in those of all ranks, their own ones too (DeepEP, `internode.cu`: senders and
    receivers share the odd cores, the even ones forward).

    **Arguments:** `tokens` of one rank [1]; `token_bytes`: hidden size x element (1 + scales in fp8 dispatch, 2 in bf16
    combine) [byte]; `imbalance`: phi >= 1; `most_nodes`: a token goes to at most so many nodes; `core_bandwidth`: what
    the kernel's cores copy in all [byte/s].
    **Returns:** one dispatch or one combine [s]; zero for one rank.
    """
    inside = group.ranks / group.nodes
    nodes_hit = jnp.minimum(expected_hits(group.nodes, topk), most_nodes)
    ranks_hit = expected_hits(group.ranks, topk)
    local = ranks_hit * (inside - 1.0) / inside
    across = nodes_hit * (group.nodes - 1.0) / group.nodes
    copied = ranks_hit + jnp.where(group.nodes > 1.0, nodes_hit, 0.0)
    load = imbalance * tokens * token_bytes
    links = jnp.maximum(load * local / group.local_bandwidth, load * across / group.network_bandwidth)
    busy = jnp.maximum(links, load * copied / core_bandwidth)
    return jnp.where(group.ranks > 1.0, group.latency + busy, 0.0)


def low_latency_exchange_time(
    group: ExpertGroup, tokens: Scalar, token_bytes: Scalar, topk: Scalar, imbalance: Scalar
) -> Scalar:
    """alpha + phi T k b x (share on each link) / B: one copy for each chosen expert, straight to its rank [s].

    As `exchange_time`; of the copies (n - g)/n leave the node and (g - 1)/n stay in it, g ranks a node.
    """
    inside = group.ranks / group.nodes
    load = imbalance * tokens * topk * token_bytes
    local = load * (inside - 1.0) / group.ranks / group.local_bandwidth
    across = load * (group.ranks - inside) / group.ranks / group.network_bandwidth
    return jnp.where(group.ranks > 1.0, group.latency + jnp.maximum(local, across), 0.0)


def exchange_pass(
    fabric: Fabric,
    size: Scalar,
    copies: Scalar,
    deduplicate: Scalar | float = 0.0,
    sharing: Scalar | float = 1.0,
    receivers: Scalar | float = 1.0,
    table: Float[Array, "*batch bins"] | None = None,
) -> Scalar:
    """One rank's tokens of `size` bytes in all, each sent to `copies` places drawn evenly: inside the node and between
    nodes at once, the slower counts [s].

    Without `deduplicate` a token travels once for each place; with it once for each rank and, between nodes, once
    for each node, n (1 - (1 - 1/n)^k) of them or those of the `hits_table` of limited routing; the rank of the same
    place in that node passes it on inside (DeepSeek-V3, arXiv:2412.19437, section 3.2.2). A place is `sharing` ranks
    (those that hold one expert together), `receivers` of which get the copy. Zero for one rank.
    """
    n, nodes = fabric.members, fabric.nodes
    merged = as_float(deduplicate) > 0.0
    to_ranks = receivers * jnp.where(merged, token_hits(n / sharing, copies, table), copies)
    spans = jnp.maximum(sharing / fabric.local_ranks, 1.0)  # nodes of a place
    once_a_node = jnp.minimum(spans, receivers) * token_hits(nodes / spans, copies, table)
    to_nodes = jnp.where(merged, once_a_node, receivers * copies)
    senders = jnp.where(merged, fabric.local_ranks, n)  # of the copies that a rank gets: its node's, or all
    local = size * to_ranks * (fabric.local_ranks - 1.0) / senders * fabric.hops / fabric.local_bandwidth
    apart = jnp.where(merged, 1.0 - 1.0 / nodes, fabric.elsewhere)
    remote = size * to_nodes * apart / fabric.network_bandwidth
    hops = jnp.where(nodes > 1.0, fabric.network_latency, fabric.local_latency)
    return jnp.where(n > 1.0, jnp.maximum(local, jnp.where(nodes > 1.0, remote, 0.0)) + hops, 0.0)
