"""Orca: iteration-level batching with memory reserved for the longest sequence (Yu et al., OSDI 2022)."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.serving.simulator.policies.base import Plan, Policy, View
from jaxperf.serving.simulator.state import Settings


def plan(settings: Settings, view: View) -> Plan:
    """All decodes and as many whole prompts as there are places and reservations for, in one iteration."""
    room = (view.running < settings.cap) & (view.free >= settings.reserved)
    return Plan(
        admit=view.arrived & room,
        tokens=view.prompt - view.present,
        blocks=settings.reserved,
        evict=jnp.bool_(False),
        victims=view.decoding,
        wants=view.decoding.astype(jnp.int32),
        needs=jnp.zeros_like(view.growth),
    )


ORCA = Policy(plan, paged=False)
