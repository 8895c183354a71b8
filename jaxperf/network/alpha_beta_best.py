"""The fastest algorithm of a collective at cost level (a), and which one it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxperf.core.numerics import Scalar
from jaxperf.network import alpha_beta as reduce
from jaxperf.network import alpha_beta_exchange as exchange
from jaxperf.network.alpha_beta import Hop

Algorithm = Callable[[Scalar, Scalar, Hop], Scalar]

#: By name, for a network in which every rank reaches every other one; in-switch reduction is asked for by name.
ALL_REDUCE: dict[str, Algorithm] = {
    "ring": reduce.ring_all_reduce,
    "recursive-doubling": reduce.recursive_doubling_all_reduce,
    "halving-doubling": reduce.halving_doubling_all_reduce,
    "direct": reduce.direct_all_reduce,
    "one-shot": reduce.one_shot_all_reduce,
    "binary-tree": reduce.binary_tree_all_reduce,
    "double-binary-tree": reduce.double_binary_tree_all_reduce,
    "in-switch": reduce.in_switch_all_reduce,
}
REDUCE_SCATTER: dict[str, Algorithm] = {
    "ring": reduce.ring_reduce_scatter,
    "halving": reduce.halving_reduce_scatter,
    "direct": reduce.direct_reduce_scatter,
}
ALL_GATHER: dict[str, Algorithm] = {
    "ring": reduce.ring_all_gather,
    "doubling": reduce.doubling_all_gather,
    "direct": reduce.direct_all_gather,
}
ALL_TO_ALL: dict[str, Algorithm] = {
    "pairwise": exchange.pairwise_all_to_all,
    "bruck": exchange.bruck_all_to_all,
}
BROADCAST: dict[str, Algorithm] = {
    "binomial": exchange.binomial_broadcast,
    "chain": exchange.chain_broadcast,
    "scatter-gather": exchange.scatter_gather_broadcast,
    "multicast": exchange.multicast_broadcast,
}


class Best(eqx.Module):
    """`time` of the fastest algorithm [s] and `winner`, its place among those that were compared."""

    time: Float[Array, "*batch"]
    winner: Int[Array, "*batch"]


def best(algorithms: Sequence[Algorithm], ranks: Scalar, size: Scalar, hop: Hop) -> Best:
    """The fastest of `algorithms` for `ranks` [1] and `size` [byte]; the first one in a tie.

    `best([ALL_REDUCE[name] for name in names], ...)`; `names[int(found.winner)]` is its name.
    """
    return fastest([algorithm(ranks, size, hop) for algorithm in algorithms])


def fastest(times: Sequence[Scalar]) -> Best:
    """The least of several times of one point, compared one by one because stacking them is slow."""
    least, winner = times[0], jnp.zeros((), int)
    for index, time in enumerate(times[1:], start=1):
        winner = jnp.where(time < least, index, winner)
        least = jnp.minimum(least, time)
    return Best(least, winner)
