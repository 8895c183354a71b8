"""Routing limited to some groups of experts: how many places a token is sent to (DeepSeek-V2, arXiv:2405.04434, 2.1.3).

E experts lie in G equal groups and on B equal bins (ranks, nodes), both in order. A token uses M groups, and its k
experts are drawn evenly and without replacement from the K = M E / G in them. A bin of c = G / B groups touches some
whole ones and at its ends parts of two; of the whole ones j are among the M with hypergeometric chance, and where h of
a bin's experts are in the pool, none of them is drawn with chance C(K - h, k) / C(K, k). Groups that nest in the bins:

    B (1 - sum_j C(c, j) C(G - c, M - j) / C(G, M) C(K - j E / G, k) / C(K, k))

Real routers choose groups for their best experts, so that more of the M have one: up to a tenth more bins.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float


@dataclass(frozen=True)
class GroupLimit:
    """`chosen` of `experts`, all in `allowed` of `groups` equal groups [1]; what a step is traced with is its
    `hits_table`."""

    experts: int
    chosen: int
    groups: int
    allowed: int

    @property
    def pool(self) -> int:
        """Experts that a token chooses among [1]."""
        return self.allowed * self.experts // self.groups


def limited_hits(table: Float[Array, "*batch bins"], bins: Scalar) -> Scalar:
    """Distinct bins among `bins` equal ones that the experts of a token are in, of a `hits_table` [1].

    Exact where `bins` is whole, on a line between; with more bins than experts each expert is in its own.
    """
    return jnp.interp(as_float(bins), as_float(np.arange(1.0, table.shape[-1] + 1.0)), table)


@functools.lru_cache(maxsize=64)
def hits_table(limit: GroupLimit) -> np.ndarray:
    """Distinct bins that the experts of a token are in, of 1, 2, ... E bins [E] [1]."""
    # All bins of all these in one array, each by the whole groups j and the two parts of it that a token uses or not.
    counts = np.arange(1, limit.experts + 1)
    starts = np.cumsum(counts) - counts
    bins = np.repeat(counts, counts)
    first = (np.arange(bins.size) - np.repeat(starts, counts)) * limit.groups  # in 1 / bins of a group
    last = first + limit.groups
    whole = np.maximum(last // bins - -(-first // bins), 0)
    inside = first // bins == (last - 1) // bins  # of one group, which it has whole or in part
    left = np.where(inside, np.where(whole > 0, 0, last - first), -first % bins)
    right = np.where(inside, 0, last % bins)
    missed = np.zeros(bins.size)
    for used in itertools.product(range(limit.allowed + 1), (0, 1), (0, 1)):
        held = (used[0] * bins + used[1] * left + used[2] * right) * limit.experts / (limit.groups * bins)
        missed += _in_pool(limit, whole, left > 0, right > 0, used) * _none_drawn(limit, held)
    return counts - np.add.reduceat(missed, starts)


def _in_pool(
    limit: GroupLimit, whole: np.ndarray, left: np.ndarray, right: np.ndarray, used: tuple[int, int, int]
) -> np.ndarray:
    """The chance that a token uses so many of a bin's `whole` groups, of its `left` part's and its `right` part's."""
    others = limit.groups - whole - left - right  # bool arrays count as 0 and 1
    ways = _combinations(whole, used[0]) * _combinations(others, limit.allowed - sum(used))
    possible = (left | (used[1] == 0)) & (right | (used[2] == 0))
    return np.where(possible, ways, 0.0) / math.comb(limit.groups, limit.allowed)


def _combinations(n: np.ndarray, k: int) -> np.ndarray:
    if k < 0:
        return np.zeros(n.shape)
    return np.array([math.comb(each, k) for each in range(int(n.max()) + 1)], float)[n]


def _none_drawn(limit: GroupLimit, held: np.ndarray) -> np.ndarray:
    """C(K - h, k) / C(K, k)."""
    left = [np.maximum(1.0 - held / (limit.pool - drawn), 0.0) for drawn in range(limit.chosen)]
    return np.prod(left, axis=0)
