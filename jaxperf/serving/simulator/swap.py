"""Preemption by swap, as vLLM v0 does it: an evicted request's blocks wait in host memory instead of being computed
again (Kwon et al., SOSP 2023, section 4.5; vLLM 0.2 to 0.5, `_preempt_by_swap` and `_schedule_swapped`).

What is swapped out comes later than all that runs and before all that waits, so it stands in the queue like any evicted
request; it brings all of its prompt, and in front of the queue it bars the prompts behind it. Blocks are copied before
the step that follows, one after another: t = blocks x swap_seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32


class SwapSpace(eqx.Module):
    """Blocks of host memory: `used` of them; `moving`: to be copied before the next step, in or out; `returned`:
    whether a request came back since the last step, which began with it out, so that nobody who waits begins in it."""

    used: Int32[Array, "*lanes"]
    moving: Int32[Array, "*lanes"]
    returned: Bool[Array, "*lanes"]


class Copies(NamedTuple):
    """What a micro-operation does to the host's memory: blocks copied `out`, copied back, or `dropped` with a request
    that is rejected."""

    out: Int32[Array, ""]
    back: Int32[Array, ""]
    dropped: Int32[Array, ""]


def empty_swap_space() -> SwapSpace:
    """No block in host memory."""
    return SwapSpace(jnp.int32(0), jnp.int32(0), jnp.bool_(False))


def copied(space: SwapSpace, copies: Copies, ran: Bool[Array, ""]) -> SwapSpace:
    """The host's memory after a micro-operation; a step that `ran` has waited for all copies before it."""
    return SwapSpace(
        used=space.used + copies.out - copies.back - copies.dropped,
        moving=jnp.where(ran, 0, space.moving) + copies.out + copies.back,
        returned=(space.returned & ~ran) | (copies.back > 0),
    )


def copy_time(space: SwapSpace | None, swap_seconds: Float64[Array, ""] | None) -> Float64[Array, ""]:
    """Seconds that the next step waits for copies."""
    if space is None or swap_seconds is None:
        return jnp.float64(0.0)
    return space.moving.astype(jnp.float64) * swap_seconds
