"""What a scheduling policy sees of a replica and what it decides. A policy is one function from `View` to `Plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxperf.serving.simulator.prefix import Match, match
from jaxperf.serving.simulator.state import EMPTY, Settings, Slots, State, Status, Trace, blocks_of

MANY = jnp.iinfo(jnp.int32).max // 2  # steps, where nothing limits them


class View(NamedTuple):
    """One replica while a step is formed; masks are over its S slots.

    `fresh`: admitted to this step, blocks taken; `decoding`: prompt done in an earlier step; `partial`: prompt begun in
    an earlier step; `running` requests in slots; `decodes`: how many decode; `growth`: blocks each decode adds to hold
    its next token; `arrived`: a request waits at the head of the queue; `coming`: it has been sent and will; `prompt`,
    `total`: its tokens; `formed`: some request is fresh; `free` blocks now; `evicted`, `waited`: see `State`; `hits`:
    leading blocks of that prompt in the prefix cache, `idle` of them held by nobody and so counted as free; `caching`:
    whether there is such a cache, which is structure.
    """

    slots: Slots
    fresh: Bool[Array, " S"]
    decoding: Bool[Array, " S"]
    partial: Bool[Array, " S"]
    running: Int32[Array, ""]
    decodes: Int32[Array, ""]
    growth: Int32[Array, " S"]
    arrived: Bool[Array, ""]
    coming: Bool[Array, ""]
    prompt: Int32[Array, ""]
    total: Int32[Array, ""]
    formed: Bool[Array, ""]
    free: Int32[Array, ""]
    evicted: Bool[Array, ""]
    waited: Int32[Array, ""]
    hits: Int32[Array, ""]
    idle: Int32[Array, ""]
    caching: bool


class Plan(NamedTuple):
    """What happens next: an admission, else an eviction, else blocks taken, else the step itself.

    `admit` the head of the queue with `tokens` of its prompt in this step and `blocks` held from now on, its hits
    included; `evict` the latest request among `victims`; `wants`: tokens of the step for requests that ran before it,
    with `needs` more blocks;
    `grow`: take those blocks before the step, because what is cached afterwards decides about admissions;
    `longest`: steps after which to plan again though nothing else happened; `tried`: admission counts as tried.
    """

    admit: Bool[Array, ""]
    tokens: Int32[Array, ""]
    blocks: Int32[Array, ""]
    evict: Bool[Array, ""]
    victims: Bool[Array, " S"]
    wants: Int32[Array, " S"]
    needs: Int32[Array, " S"]
    grow: Bool[Array, ""] | bool = False
    longest: Int32[Array, ""] | int = MANY
    tried: Bool[Array, ""] | bool = True


@dataclass(frozen=True)
class Policy:
    """A scheduler. `paged`: decodes take blocks as they grow; `spare` blocks that must be left when a decode is
    scheduled; `forgets_prompt`: what of a prompt was not computed at an eviction is made token by token afterwards."""

    plan: Callable[[Settings, View], Plan]
    paged: bool = True
    spare: int = 0
    forgets_prompt: bool = False


def view_of(settings: Settings, trace: Trace, state: State) -> View:
    """What a policy sees of `state`."""
    slots = state.slots
    active = slots.request != EMPTY
    fresh = slots.chunk > 0
    decoding = active & (slots.processed >= slots.prompt)
    grows = decoding & (slots.processed > slots.blocks * settings.block_size)
    head = jnp.minimum(state.head, trace.count - 1)
    sent = (state.head < trace.count) & (state.head < trace.concurrency + state.ended)
    waits = sent & (state.requests.status[head] == jnp.int32(Status.WAITING))
    prompt = state.requests.prompt[head]
    found = Match(jnp.int32(0), jnp.int32(0))
    if state.cache is not None and trace.path is not None:
        found = match(state.cache, trace.path[head], prompt, settings.block_size)
    return View(
        slots=slots,
        fresh=fresh,
        decoding=decoding,
        partial=active & ~decoding & ~fresh,
        running=count(active),
        decodes=count(decoding),
        growth=grows.astype(jnp.int32),
        arrived=waits & (trace.arrived[head] <= state.clock),
        coming=waits & (trace.arrived[head] > state.clock),
        prompt=prompt,
        total=trace.prompt[head] + trace.output[head],
        formed=jnp.any(fresh),
        free=state.free,
        evicted=state.evicted,
        waited=state.waited,
        hits=found.hits,
        idle=found.idle,
        caching=state.cache is not None,
    )


def count(mask: Bool[Array, " S"]) -> Int32[Array, ""]:
    """How many slots a mask has."""
    return jnp.sum(mask, dtype=jnp.int32)


def add(values: Int32[Array, " S"]) -> Int32[Array, ""]:
    """The sum over the slots."""
    return jnp.sum(values, dtype=jnp.int32)


def whole_prompt_blocks(settings: Settings, view: View) -> Int32[Array, ""]:
    """Blocks that the prompt at the head of the queue fills."""
    return blocks_of(view.prompt, settings.block_size)


def decodes_fit(view: View) -> Bool[Array, ""]:
    """Whether every decode, in order of arrival, finds at least one free block, even where it needs none (vLLM v0).

    The last of them sees the fewest: what is free less the blocks that those before it took.
    """
    last = jnp.max(jnp.where(view.decoding, view.slots.request, EMPTY))
    before_last = add(jnp.where(view.slots.request == last, 0, view.growth))
    return (view.decodes == 0) | (view.free - before_last >= 1)
