"""What a scheduling policy sees of a replica and what it decides. A policy is one function from `View` to `Plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.simulator.prefix import Match, match
from jaxperf.serving.simulator.priority import Front, first_of_all
from jaxperf.serving.simulator.state import EMPTY, Settings, Slots, State, Status, blocks_of
from jaxperf.serving.simulator.trace import Trace

MANY = jnp.iinfo(jnp.int32).max // 2  # steps, where nothing limits them


class View(NamedTuple):
    """One replica while a step is formed; masks are over its S slots.

    `fresh`: admitted to this step, blocks taken; `decoding`: prompt done in an earlier step; `partial`: prompt begun in
    an earlier step; `running` requests in slots; `decodes`: how many decode; `growth`: blocks each decode adds to hold
    its next token; `head`: the request at the front of the queue; `arrived`: it waits; `coming`, `passed`: see `Front`;
    `prompt`, `total`: its tokens; `present`: those of its prompt
    that need not be computed, `whole`: all, so that it is a decode; `formed`: some request is fresh; `free` blocks now;
    `barred`: the head begins with no step of decodes, because the one being formed began with others out of memory;
    `spent`: see `Order`; `pipelined`: several
    batches may be in flight, whose requests are running but neither fresh, decoding nor partial, which is structure;
    `evicted`, `joined`, `waited`: see `State`; `hits`: leading blocks of that prompt in the prefix cache, `idle` of
    them held by nobody and so counted as free; `caching`: whether there is such a cache, which is structure.
    """

    slots: Slots
    fresh: Bool[Array, " S"]
    decoding: Bool[Array, " S"]
    partial: Bool[Array, " S"]
    running: Int32[Array, ""]
    decodes: Int32[Array, ""]
    growth: Int32[Array, " S"]
    head: Int32[Array, ""]
    arrived: Bool[Array, ""]
    coming: Float64[Array, ""]
    passed: Bool[Array, ""]
    prompt: Int32[Array, ""]
    total: Int32[Array, ""]
    present: Int32[Array, ""]
    whole: Bool[Array, ""]
    formed: Bool[Array, ""]
    free: Int32[Array, ""]
    evicted: Bool[Array, ""]
    joined: Bool[Array, ""]
    waited: Int32[Array, ""]
    barred: Bool[Array, ""]
    spent: Int32[Array, ""]
    pipelined: bool
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
    scheduled; `forgets_prompt`: what of a prompt was not computed at an eviction is made token by token afterwards;
    `queues`: in a pipeline it works as vLLM's queue of batches, see `pipeline`."""

    plan: Callable[[Settings, View], Plan]
    paged: bool = True
    spare: int = 0
    forgets_prompt: bool = False
    queues: bool = False


def view_of(settings: Settings, trace: Trace, state: State) -> View:
    """What a policy sees of `state`."""
    slots = state.slots
    active = slots.request != EMPTY
    fresh = slots.chunk > 0
    here = active & ~flying(state)
    decoding = here & (slots.processed >= slots.prompt)
    grows = decoding & (slots.processed > slots.blocks * settings.block_size)
    front = in_order(trace, state) if trace.priority is None else first_of_all(trace, state, trace.priority)
    head = front.request
    prompt, waiting = state.requests.prompt[head], state.requests.status[head] == jnp.int32(Status.WAITING)
    spent = jnp.int32(0) if state.order is None else state.order.spent
    present, whole = jnp.int32(0), jnp.bool_(False)
    if state.requests.brought is not None:
        present = state.requests.brought[head]
        whole = present >= prompt
    found = Match(jnp.int32(0), jnp.int32(0))
    if state.cache is not None and trace.path is not None:
        found = match(state.cache, trace.path[head], prompt, settings.block_size)
        present = jnp.maximum(present, found.hits * settings.block_size)
    return View(
        slots=slots,
        fresh=fresh,
        decoding=decoding,
        partial=here & ~decoding & ~fresh,
        running=count(active),
        decodes=count(decoding),
        growth=grows.astype(jnp.int32),
        head=head,
        arrived=front.arrived,
        coming=front.coming,
        passed=front.passed,
        prompt=prompt,
        total=trace.prompt[head] + trace.output[head],
        present=present,
        whole=whole,
        formed=jnp.any(fresh),
        free=state.free,
        evicted=state.evicted,
        joined=state.joined,
        waited=state.waited,
        barred=jnp.bool_(False) if state.swap is None else state.swap.returned & waiting,
        spent=spent,
        pipelined=state.pipeline is not None,
        hits=found.hits,
        idle=found.idle,
        caching=state.cache is not None,
    )


def in_order(trace: Trace, state: State) -> Front:
    """The front of a queue in order of arrival, which is a pointer into the trace."""
    head = jnp.minimum(state.head, trace.count - 1)
    status, sent_at = state.requests.status[head], trace.arrived[head]
    waiting = status == jnp.int32(Status.WAITING)
    if state.swap is not None:
        waiting |= status == jnp.int32(Status.SWAPPED)
    queued = state.head < trace.count
    waits = queued & (state.head < trace.concurrency + state.ended) & waiting
    here = sent_at <= state.clock
    return Front(head, waits & here, jnp.where(waits & ~here, sent_at, jnp.inf), queued & ~waiting)


def flying(state: State) -> Bool[Array, " S"]:
    """Slots whose request is in a batch that has not left the pipeline; ahead of the device, in one that makes its last
    token."""
    if state.ahead is not None:
        return state.ahead.until > state.clock
    if state.pipeline is None:
        return jnp.zeros_like(state.slots.request, bool)
    return state.pipeline.until > state.clock


def in_turn(
    view: View, among: Bool[Array, " S"], wants: Int32[Array, " S"], budget: Int32[Array, ""]
) -> Int32[Array, " S"]:
    """Tokens of a budget that these slots get, in order of arrival; without a pipeline it is one at most.

    Where they want more, the latest of those that have any left lose theirs, which is seldom.
    """
    if not view.pipelined:
        return jnp.where(among, jnp.minimum(wants, jnp.maximum(budget, 0)), 0)
    budget = jnp.maximum(budget, 0)

    def lost(tokens: Int32[Array, " S"]) -> Int32[Array, " S"]:
        latest = jnp.max(jnp.where(tokens > 0, view.slots.request, EMPTY))
        return jnp.where(view.slots.request == latest, jnp.maximum(tokens - (add(tokens) - budget), 0), tokens)

    return jax.lax.while_loop(lambda tokens: add(tokens) > budget, lost, jnp.where(among, wants, 0))


def that_fit(view: View, needs: Int32[Array, " S"]) -> Int32[Array, " S"]:
    """The blocks of those before the first, in order of arrival, that finds too few; all where there are enough.

    Where there are not, which is seldom, the latest of those that have any left lose theirs.
    """

    def lost(blocks: Int32[Array, " S"]) -> Int32[Array, " S"]:
        latest = jnp.max(jnp.where(blocks > 0, view.slots.request, EMPTY))
        return jnp.where(view.slots.request == latest, 0, blocks)

    return jax.lax.while_loop(lambda blocks: add(blocks) > view.free, lost, needs)


def count(mask: Bool[Array, " S"]) -> Int32[Array, ""]:
    """How many slots a mask has."""
    return jnp.sum(mask, dtype=jnp.int32)


def add(values: Int32[Array, " S"]) -> Int32[Array, ""]:
    """The sum over the slots."""
    return jnp.sum(values, dtype=jnp.int32)


def whole_prompt_blocks(settings: Settings, view: View) -> Int32[Array, ""]:
    """Blocks that the prompt at the head of the queue fills; with the next token, where it is a decode."""
    return blocks_of(view.prompt + view.whole.astype(jnp.int32), settings.block_size)


def spared(settings: Settings, view: View) -> Int32[Array, ""]:
    """Blocks left free by an admission: the watermark, and for a decode the one that every decode must find."""
    return jnp.where(view.whole, jnp.maximum(settings.watermark, 1), settings.watermark)


def decodes_fit(view: View) -> Bool[Array, ""]:
    """Whether every decode, in order of arrival, finds at least one free block, even where it needs none (vLLM v0).

    The last of them sees the fewest: what is free less the blocks that those before it took.
    """
    last = jnp.max(jnp.where(view.decoding, view.slots.request, EMPTY))
    before_last = add(jnp.where(view.slots.request == last, 0, view.growth))
    return (view.decodes == 0) | (view.free - before_last >= 1)
