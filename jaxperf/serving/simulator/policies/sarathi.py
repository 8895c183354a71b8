"""Sarathi: chunked prefill beside decodes within a budget of tokens (Agrawal et al., OSDI 2024; Vidur's `sarathi`)."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.serving.simulator.policies.base import (
    Plan,
    Policy,
    View,
    add,
    decodes_fit,
    in_turn,
    spared,
    whole_prompt_blocks,
)
from jaxperf.serving.simulator.state import Settings


def plan(settings: Settings, view: View) -> Plan:
    """All decodes, then what is left of prompts that were begun, then new ones, while tokens of the chunk are left.

    The blocks of a whole prompt are taken at admission. The latest arrival is evicted while a decode finds no block.
    """
    slots = view.slots
    begun = in_turn(view, view.partial, slots.prompt - slots.processed, settings.chunk - view.decodes)
    left = settings.chunk - view.decodes - add(begun) - add(slots.chunk)
    need = whole_prompt_blocks(settings, view)
    free = view.free - add(view.growth)
    evict = ~view.formed & ~decodes_fit(view)
    room = (free - need >= spared(settings, view)) & (view.running < settings.cap) & (left > 0)
    return Plan(
        admit=view.arrived & room & ~evict,
        tokens=jnp.minimum(view.prompt - view.present, left),
        blocks=need,
        evict=evict,
        victims=view.decoding | view.partial,
        wants=jnp.where(view.decoding, 1, begun),
        needs=view.growth,
    )


SARATHI = Policy(plan, spare=1)
SARATHI_OF_VIDUR = Policy(plan, spare=1, forgets_prompt=True)
