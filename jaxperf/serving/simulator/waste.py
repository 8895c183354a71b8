"""How full the KV blocks of a replica are: tokens in them, and places that they hold open (internal fragmentation).

Paged blocks leave the last one of a sequence partly empty, (B - 1) / 2 places in the mean; blocks reserved for the
longest sequence leave all that it does not reach (Kwon et al., PagedAttention, SOSP 2023, section 3.1).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float64, Int32

from jaxperf.core.numerics import ceil_div, floor_div
from jaxperf.serving.simulator.state import EMPTY, Slots
from jaxperf.serving.simulator.steps import Run


class Filling(NamedTuple):
    """Means over the steps of a run: `sequences` that hold blocks, their `tokens` in these, and `empty` places. A block
    that sequences share counts for each; it is full."""

    sequences: Float64[Array, ""]
    tokens: Float64[Array, ""]
    empty: Float64[Array, ""]


def filling_of(slots: Slots, run: Run, block_size: Int32[Array, ""]) -> Filling:
    """What the blocks hold while a run is under way, each step's tokens written and its blocks taken.

    A run of more than one step is of decodes: each adds one token a step, and a block when the last is full.
    """
    size, steps = block_size.astype(jnp.float64), run.steps.astype(jnp.float64)
    taken, each = slots.request != EMPTY, run.work.tokens.astype(jnp.float64)
    last_not_cached = (slots.processed > slots.prompt).astype(jnp.float64)
    first = slots.processed.astype(jnp.float64) - last_not_cached + each  # in the cache at the end of the first step
    places = jnp.maximum(slots.blocks.astype(jnp.float64), ceil_div(first, size)) * size
    within = jnp.where(each > 0.0, jnp.clip(places - first + 1.0, 0.0, steps), steps)  # steps that need no other block
    grows = jnp.where(each > 0.0, 1.0, 0.0)
    inside = within * (places - first) - grows * _sum_below(within)
    beyond = _empty_below(first + steps, size) - _empty_below(first + within, size)
    empty = inside + jnp.where(within < steps, beyond, 0.0)
    tokens = steps * first + grows * _sum_below(steps)
    return Filling(
        sequences=jnp.sum(taken, dtype=jnp.float64),
        tokens=jnp.sum(jnp.where(taken, tokens, 0.0)) / steps,
        empty=jnp.sum(jnp.where(taken, empty, 0.0)) / steps,
    )


def _sum_below(number: Float64[Array, " S"]) -> Float64[Array, " S"]:
    """0 + 1 + ... + (number - 1)."""
    return 0.5 * number * (number - 1.0)


def _empty_below(tokens: Float64[Array, " S"], size: Float64[Array, ""]) -> Float64[Array, " S"]:
    """Empty places of the last block, (-t) mod `size`, summed over t = 0 ... `tokens` - 1."""
    whole = floor_div(tokens, size)
    rest = tokens - whole * size
    return whole * _sum_below(size) + jnp.maximum(rest - 1.0, 0.0) * size - _sum_below(rest)
