"""Prefix caching by block hash, as vLLM v1 does it: full blocks stay in the queue of free ones until they are taken.

A full block is known by the hash of all tokens up to its end, here a node; a request's nodes, first block first, are
its path. A request that ends or is evicted puts its blocks at the end of the queue, its last block first, as one group,
the nodes from the deepest up; blocks without a node go to the front of it (vLLM since 0.23). Whoever uses a node uses
those above it too. So of any group the deepest nodes go first to new blocks and the shallowest first to hits: what is
left of it is an interval of depths, and a path is in the cache down to some depth.

A prompt that is cached to its end computes its last block again; that copy, and what follows it, stays without a node.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxperf.core.numerics import floor_div

NOWHERE = -1


class PrefixCache(eqx.Module):
    """The nodes N in the cache, and the groups G of the queue of free blocks in order.

    `holders`: requests that hold the node; `group`: where a node that nobody holds is, `NOWHERE` for nowhere; `plain`:
    free blocks without a node, at the front of the queue; `nodes` left in the group, of which the deepest has `depth`;
    `groups` made so far; `copies`: requests R that computed the last block of their prompt again though it was cached.
    """

    holders: Int32[Array, "*lanes N"]
    group: Int32[Array, "*lanes N"]
    plain: Int32[Array, "*lanes"]
    nodes: Int32[Array, "*lanes G"]
    depth: Int32[Array, "*lanes G"]
    groups: Int32[Array, "*lanes"]
    copies: Bool[Array, "*lanes R"]


class Match(NamedTuple):
    """Leading blocks of a prompt that are cached, and how many of them nobody holds."""

    hits: Int32[Array, ""]
    idle: Int32[Array, ""]


class Holding(NamedTuple):
    """A request that takes or gives back its place: `path` [P] nodes, `prompt` and `computed` tokens, `blocks` held,
    and its number."""

    path: Int32[Array, " P"]
    prompt: Int32[Array, ""]
    computed: Int32[Array, ""]
    blocks: Int32[Array, ""]
    request: Int32[Array, ""]


def empty_cache(blocks: Int32[Array, ""], nodes: int, groups: int, requests: int) -> PrefixCache:
    """A cache of `blocks` blocks that were never used; the sizes are structure."""
    zeros = jnp.zeros(groups, jnp.int32)
    return PrefixCache(
        holders=jnp.zeros(nodes, jnp.int32),
        group=jnp.full(nodes, NOWHERE, jnp.int32),
        plain=blocks,
        nodes=zeros,
        depth=zeros,
        groups=jnp.int32(1),
        copies=jnp.zeros(requests, bool),
    )


def match(cache: PrefixCache, path: Int32[Array, " P"], prompt: Int32[Array, ""], size: Int32[Array, ""]) -> Match:
    """How much of a prompt is cached; at least its last token is computed, so its last block never counts whole."""
    depths = _depths(path)
    absent = ~_cached(cache, path)
    first = jnp.min(jnp.where(absent, depths - 1, path.shape[0]))
    hits = jnp.minimum(first, _full(prompt - 1, size))
    idle = jnp.sum((depths <= hits) & (cache.holders[jnp.maximum(path, 0)] == 0), dtype=jnp.int32)
    return Match(hits, idle)


def touched(cache: PrefixCache, one: Holding, hits: Int32[Array, ""], when: Bool[Array, ""]) -> PrefixCache:
    """After an admission found its hits: those that nobody holds leave the queue."""
    nodes, groups = cache.holders.shape[0], cache.nodes.shape[0]
    node = jnp.where(when & (_depths(one.path) <= hits), one.path, nodes)
    idle = cache.holders.at[node].get(mode="fill", fill_value=1) == 0
    group = jnp.where(idle, cache.group.at[node].get(mode="fill", fill_value=groups), groups)
    return eqx.tree_at(lambda old: old.nodes, cache, cache.nodes.at[group].add(-1, mode="drop"))


def held(
    cache: PrefixCache, one: Holding, hits: Int32[Array, ""], size: Int32[Array, ""], when: Bool[Array, ""]
) -> PrefixCache:
    """After an admission took its new blocks: every full block of the prompt has one more holder.

    Nobody else can be admitted before the whole prompt is scheduled, so its blocks may count from now on.
    """
    depths, last = _depths(one.path), _full(one.prompt, size)
    nodes = cache.holders.shape[0]
    copy = when & (last > hits) & jnp.any((depths == last) & _cached(cache, one.path))
    own = when & (depths <= last) & ~(copy & (depths == last)) & (one.path >= 0)
    request = jnp.where(when, one.request, cache.copies.shape[0])
    return eqx.tree_at(
        lambda old: (old.holders, old.copies),
        cache,
        (
            cache.holders.at[jnp.where(own, one.path, nodes)].add(1, mode="drop"),
            cache.copies.at[request].set(copy, mode="drop"),
        ),
    )


def given_back(
    cache: PrefixCache, one: Holding, size: Int32[Array, ""], when: Bool[Array, ""]
) -> tuple[PrefixCache, Int32[Array, ""]]:
    """After a completion or an eviction: the blocks nobody else holds form the last group; also how many they are."""
    depths, last, full = _depths(one.path), _full(one.prompt, size), _full(one.computed, size)
    copy = cache.copies[jnp.minimum(one.request, cache.copies.shape[0] - 1)]
    own = (depths <= last) & ~(copy & (depths == last))
    full = jnp.where(copy, jnp.minimum(full, last - 1), full)
    nodes = cache.holders.shape[0]
    node = jnp.where(when & (one.path >= 0), one.path, nodes)
    others = cache.holders.at[node].get(mode="fill", fill_value=0) - own.astype(jnp.int32)
    kept = (depths <= full) & (one.path >= 0)
    queued = kept & (others == 0)
    moved = jnp.where(queued | (own & (others == 0)), node, nodes)
    number = jnp.sum(queued, dtype=jnp.int32)
    freed = one.blocks - jnp.sum(kept & (others > 0), dtype=jnp.int32)
    place = jnp.where(when, cache.groups, cache.nodes.shape[0])
    found = PrefixCache(
        holders=cache.holders.at[jnp.where(own, node, nodes)].add(-1, mode="drop"),
        group=cache.group.at[moved].set(jnp.where(queued, cache.groups, NOWHERE), mode="drop"),
        plain=cache.plain + jnp.where(when, freed - number, 0),
        nodes=cache.nodes.at[place].set(number, mode="drop"),
        depth=cache.depth.at[place].set(full, mode="drop"),
        groups=cache.groups + when.astype(jnp.int32),
        copies=cache.copies,
    )
    return found, jnp.where(when, freed, 0)


def popped(cache: PrefixCache, blocks: Int32[Array, ""]) -> PrefixCache:
    """The first `blocks` of the queue given to requests: whatever they held is forgotten."""
    plain = jnp.minimum(blocks, cache.plain)
    before = jnp.cumsum(cache.nodes) - cache.nodes
    gone = jnp.clip(blocks - plain - before, 0, cache.nodes)
    return eqx.tree_at(
        lambda old: (old.plain, old.nodes, old.depth),
        cache,
        (cache.plain - plain, cache.nodes - gone, cache.depth - gone),
    )


def _depths(path: Int32[Array, " P"]) -> Int32[Array, " P"]:
    return jnp.arange(1, path.shape[0] + 1, dtype=jnp.int32)


def _full(tokens: Int32[Array, ""], size: Int32[Array, ""]) -> Int32[Array, ""]:
    """Whole blocks among so many tokens."""
    return floor_div(tokens.astype(jnp.float64), size.astype(jnp.float64)).astype(jnp.int32)


def _cached(cache: PrefixCache, path: Int32[Array, " P"]) -> Bool[Array, " P"]:
    """Whether each node of a path is held, or in the queue and not yet taken."""
    node = jnp.maximum(path, 0)
    group = cache.group[node]
    queued = (group != NOWHERE) & (_depths(path) <= cache.depth[jnp.maximum(group, 0)])
    return (path >= 0) & ((cache.holders[node] > 0) | queued)
