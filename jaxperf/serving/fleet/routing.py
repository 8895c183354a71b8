"""Which replica takes a request: one function from what a router sees (`Seen`) to a replica, a few lines each.

In turn: every replica the n-th request. Least outstanding: fewest requests given and not ended, ties to the lowest
number (vLLM's internal load balancer, SGLang's `shortest queue`). Prefix aware: the longest cached prefix, among those
the least outstanding, unless the load is out of balance (SGLang's and vLLM's router, policy `cache_aware`: busiest less
idlest above `balance_abs_threshold` 64 and busiest above `balance_rel_threshold` 1.5 times idlest). The cache looked
into is the replica's own at that moment, as routers fed by KV events see it; one that remembers what it sent guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxperf.serving.simulator.policies.base import MANY, count

BALANCE_DIFFERENCE, BALANCE_RATIO = 64, 1.5


class Seen(NamedTuple):
    """A fleet when a request arrives: `number` of requests before it; of each replica R whether it is `live`, the
    requests `outstanding` there, and the leading blocks of the prompt in its prefix cache (`hits`)."""

    number: Int32[Array, ""]
    live: Bool[Array, " R"]
    outstanding: Int32[Array, " R"]
    hits: Int32[Array, " R"]


Router = Callable[[Seen], Int32[Array, ""]]


def round_robin(seen: Seen) -> Int32[Array, ""]:
    """The live replicas, which have the lowest numbers, in turn."""
    return jnp.remainder(seen.number, count(seen.live))


def least_outstanding(seen: Seen) -> Int32[Array, ""]:
    """The live replica with the fewest unfinished requests."""
    return _fewest(seen.outstanding, seen.live)


def prefix_aware(seen: Seen) -> Int32[Array, ""]:
    """Where most of the prompt is cached; the least outstanding where the fleet is out of balance."""
    most = jnp.max(jnp.where(seen.live, seen.outstanding, 0))
    fewest = jnp.min(jnp.where(seen.live, seen.outstanding, MANY))
    uneven = (most - fewest > BALANCE_DIFFERENCE) & (
        most.astype(jnp.float64) > BALANCE_RATIO * fewest.astype(jnp.float64)
    )
    longest = jnp.max(jnp.where(seen.live, seen.hits, 0))
    return _fewest(seen.outstanding, seen.live & (uneven | (seen.hits == longest)))


def _fewest(outstanding: Int32[Array, " R"], among: Bool[Array, " R"]) -> Int32[Array, ""]:
    return jnp.argmin(jnp.where(among, outstanding, MANY)).astype(jnp.int32)


ROUTINGS: dict[str, Router] = {
    "round_robin": round_robin,
    "least_outstanding": least_outstanding,
    "prefix_aware": prefix_aware,
}
