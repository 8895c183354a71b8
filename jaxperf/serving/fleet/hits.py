"""How much of a prompt a replica has cached when a router asks, which may be in the middle of another prompt."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxperf.core.numerics import floor_div
from jaxperf.serving.simulator.policies.base import MANY
from jaxperf.serving.simulator.prefix import match
from jaxperf.serving.simulator.state import EMPTY, Settings, State
from jaxperf.serving.simulator.trace import Trace


def cached_blocks(
    settings: Settings, state: State, trace: Trace, path: Int32[Array, " P"], prompt: Int32[Array, ""]
) -> Int32[Array, ""]:
    """Leading blocks of a prompt with nodes `path` that are in the cache of a replica.

    The cache counts the blocks of a whole prompt from its admission on, as nobody can be admitted before all of it is
    scheduled. A router asks earlier: what is not scheduled of the one prompt that may be begun is not there yet.
    """
    if state.cache is None or trace.path is None:
        return jnp.int32(0)
    slots, depths = state.slots, jnp.arange(1, path.shape[0] + 1, dtype=jnp.int32)
    begun = (slots.request != EMPTY) & (slots.processed < slots.prompt)
    theirs = trace.path[jnp.max(jnp.where(begun, slots.request, 0))]
    scheduled = jnp.min(jnp.where(begun, slots.processed, MANY)).astype(jnp.float64)
    full = floor_div(scheduled, settings.block_size.astype(jnp.float64)).astype(jnp.int32)
    missing = (path == theirs) & (depths > full)
    present = jnp.min(jnp.where(missing, depths - 1, path.shape[0]))
    return jnp.minimum(match(state.cache, path, prompt, settings.block_size).hits, present)
