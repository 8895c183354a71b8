"""Scheduling ahead of the device, as vLLM v1 does by default since 0.14 (`async_scheduling`): while a step is computed,
the next is already formed, and a third waits until the first has ended (its queue of two batches).

A step that is formed at `clock` starts when the one before it ends, and only then is the next one formed:

    start = max(clock, end),    end' = start + seconds,    clock' = start

So a request that comes during a step waits for the end of it and for all of the next one. Who will have made the last
token is not scheduled again, but holds its place and its blocks until that token is there. Where nothing can be formed,
the end of the step under way is waited for, whatever comes before it.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64

from jaxperf.serving.simulator.pipeline import NEVER


class Ahead(eqx.Module):
    """`end` of the step under way, or of the last one [s]; `until`: when the last token of each slot's request is made
    [s], `NEVER` where it is not in a step that was formed."""

    end: Float64[Array, "*lanes"]
    until: Float64[Array, "*lanes S"]


def nothing_ahead(slots: int) -> Ahead:
    """No step under way; the number of slots is structure."""
    return Ahead(jnp.float64(NEVER), jnp.full(slots, NEVER))


def formed(ahead: Ahead, end: Float64[Array, ""], last: Bool[Array, " S"], when: Bool[Array, ""]) -> Ahead:
    """After steps were formed that end at `end`, with the last token of some slots (`last`) in the last of them."""
    return Ahead(jnp.where(when, end, ahead.end), jnp.where(when & last, end, ahead.until))
