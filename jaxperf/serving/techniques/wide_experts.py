"""Experts spread over many nodes: copies of hot experts against imbalance (DeepSeek-V3, arXiv 2412.19437, 3.4).

The expert with the most load a copy gets the next spare slot, then the copies are packed, the heaviest first, each on
the least loaded rank with a slot left (DeepSeek's EPLB, 2025).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar


def expert_copies(load: Float[Array, " experts"], spare: int) -> Float[Array, " experts"]:
    """Copies of each expert: one, and one of `spare` more for whoever has the most load a copy, in turn [experts]."""

    def one(_: int, copies: Array) -> Array:
        return copies.at[jnp.argmax(load / copies)].add(1.0)

    return jax.lax.fori_loop(0, spare, one, jnp.ones_like(load))


def rank_loads(load: Float[Array, " experts"], ranks: int, spare: int) -> Float[Array, " ranks"]:
    """Load of each rank once the copies are packed, slots shared out evenly [ranks].

    **Arguments:** `load` of each expert, in any unit; `ranks` must divide the experts and the spare slots together.
    **Raises:** `InputError` where they do not.
    """
    slots = load.shape[0] + spare
    if ranks < 1 or spare < 0 or slots % ranks:
        raise InputError(
            f"{load.shape[0]} experts and {spare} copies are not shared out evenly by {ranks} ranks; choose the copies "
            "so that they are."
        )
    copies = expert_copies(load, spare)
    expert = jnp.repeat(jnp.arange(load.shape[0]), copies.astype(jnp.int32), total_repeat_length=slots)
    each = jnp.sort((load / copies)[expert], descending=True)

    def place(state: tuple[Array, Array], weight: Array) -> tuple[tuple[Array, Array], None]:
        loads, room = state
        rank = jnp.argmin(jnp.where(room > 0.0, loads, jnp.inf))
        return (loads.at[rank].add(weight), room.at[rank].add(-1.0)), None

    room = jnp.full(ranks, float(slots // ranks))
    (loads, _), _ = jax.lax.scan(place, (jnp.zeros(ranks), room), each)
    return loads


def imbalance(load: Float[Array, " experts"], ranks: int, spare: int) -> Scalar:
    """Load of the busiest rank over the mean, at least 1 [1]. Raises `InputError` as `rank_loads` does."""
    return jnp.max(rank_loads(load, ranks, spare)) * ranks / jnp.sum(load)
