"""vLLM v1: one budget of tokens a step, for running requests first, then for waiting ones (vLLM's default)."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.serving.simulator.policies.base import Plan, Policy, View, add, whole_prompt_blocks
from jaxperf.serving.simulator.state import Settings, blocks_of


def plan(settings: Settings, view: View) -> Plan:
    """Running requests in order of arrival take blocks as they compute, evicting the last while they do not fit; where
    none was evicted, waiting ones follow while budget, places and blocks for all their tokens are left.

    What is cached of a prompt is not computed; its blocks leave the free ones if nobody else holds them. A prompt that
    was begun is always the last of the running, so the decodes before it take their token each.
    """
    slots = view.slots
    left = jnp.maximum(settings.chunk - view.decodes, 0)
    begun = jnp.where(view.partial, jnp.minimum(slots.prompt - slots.processed, left), 0)
    held = blocks_of(slots.processed + begun, settings.block_size)
    needs = jnp.where(view.partial, held - slots.blocks, view.growth)
    free = view.free - add(needs)
    left = settings.chunk - view.decodes - add(begun) - add(slots.chunk)
    cached = view.hits * settings.block_size
    tokens = jnp.minimum(view.prompt - cached, left)
    wanted = whole_prompt_blocks(settings, view) - view.hits + view.idle
    room = (view.running < settings.cap) & (left > 0) & (wanted <= free)
    evict = ~view.formed & (free < 0)
    grow = view.arrived & (add(needs) > 0) & ~evict & view.caching
    return Plan(
        admit=view.arrived & room & ~view.evicted & ~grow,
        tokens=tokens,
        blocks=blocks_of(cached + jnp.maximum(tokens, 0), settings.block_size),
        evict=evict,
        victims=view.decoding | view.partial,
        wants=jnp.where(view.decoding, 1, begun),
        needs=needs,
        grow=grow,
    )


VLLM_V1 = Policy(plan)
