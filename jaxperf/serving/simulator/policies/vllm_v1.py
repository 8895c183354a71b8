"""vLLM v1: one budget of tokens a step, for running requests first, then for waiting ones (vLLM's default)."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.serving.simulator.policies.base import (
    Plan,
    Policy,
    View,
    add,
    count,
    in_turn,
    that_fit,
    whole_prompt_blocks,
)
from jaxperf.serving.simulator.state import Settings, blocks_of


def plan(settings: Settings, view: View) -> Plan:
    """Running requests in order of arrival take blocks as they compute, evicting the last while they do not fit; where
    none was evicted, waiting ones follow while budget, places and blocks for all their tokens are left.

    What is cached of a prompt is not computed; its blocks leave the free ones if nobody else holds them. Without a
    pipeline, a prompt that was begun is the last of the running, so the decodes before it take their token each.
    """
    slots, decoding, partial = view.slots, view.decoding, view.partial
    rest = slots.prompt - slots.processed
    if view.pipelined:
        wants = in_turn(view, decoding | partial, jnp.where(decoding, 1, rest), settings.chunk)
    else:
        wants = jnp.where(decoding, 1, in_turn(view, partial, rest, settings.chunk - count(decoding) - view.spent))
    held = blocks_of(slots.processed + wants, settings.block_size)
    needs = jnp.where(partial, held - slots.blocks, jnp.where(wants > 0, view.growth, 0))
    free = view.free - add(needs)
    short = ~view.formed & (free < 0)
    if view.caching:  # what those take who come before the first that finds no block is lost to the cache
        needs = that_fit(view, needs)
    taken = view.caching & (add(needs) > 0)
    left = settings.chunk - view.spent - add(wants) - add(slots.chunk)
    tokens = jnp.minimum(view.prompt - view.present, left)
    wanted = whole_prompt_blocks(settings, view) - view.hits + view.idle
    room = (view.running < settings.cap) & (left > 0) & (wanted <= free)
    grow = taken & (view.arrived | short)
    return Plan(
        admit=view.arrived & room & ~view.evicted & ~grow,
        tokens=tokens,
        blocks=blocks_of(view.present + jnp.maximum(tokens, 0) + view.whole.astype(jnp.int32), settings.block_size),
        evict=short & ~grow,
        victims=decoding | partial,
        wants=wants,
        needs=needs,
        grow=grow,
    )


VLLM_V1 = Policy(plan)
VLLM_V1_QUEUE = Policy(plan, queues=True)
