"""Static batching: a batch runs until its last request is done, then the next is taken (Vidur's FasterTransformer)."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.serving.simulator.policies.base import Plan, Policy, View, count
from jaxperf.serving.simulator.state import Settings


def plan(settings: Settings, view: View) -> Plan:
    """Admit only into an empty replica, with memory reserved for the longest sequence; then decode to the end."""
    empty = view.running == count(view.fresh)
    room = (view.running < settings.cap) & (view.free >= settings.reserved)
    return Plan(
        admit=view.arrived & empty & room,
        tokens=view.prompt,
        blocks=settings.reserved,
        evict=jnp.bool_(False),
        victims=view.decoding,
        wants=view.decoding.astype(jnp.int32),
        needs=jnp.zeros_like(view.growth),
    )


STATIC_BATCH = Policy(plan, paged=False)
