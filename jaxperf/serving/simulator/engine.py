"""The event loop of one replica: one micro-operation a call, so that many replicas advance together under `vmap`.

Complete one request | pass over the head of the queue | admit one | evict one | take blocks | run | wait or reject.
Steps that only decode and take the same time are run at once, up to the next thing that can change the batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float64, Int32

from jaxperf.serving.simulator.ahead import formed
from jaxperf.serving.simulator.event import Event, Place, as_count, event_of, finished, place_of
from jaxperf.serving.simulator.passage import passage_of
from jaxperf.serving.simulator.pipeline import left
from jaxperf.serving.simulator.policies.base import Plan, Policy, View, add, flying, view_of
from jaxperf.serving.simulator.prefix import Holding, PrefixCache, given_back, held, popped, touched
from jaxperf.serving.simulator.priority import order_after
from jaxperf.serving.simulator.records import log_after, requests_after, totals_after
from jaxperf.serving.simulator.state import EMPTY, Order, Settings, Slots, State, Status, blocks_of
from jaxperf.serving.simulator.step_time import AbstractStepTime
from jaxperf.serving.simulator.steps import Run, planned_run
from jaxperf.serving.simulator.swap import Copies, copied
from jaxperf.serving.simulator.trace import Trace


def advance(policy: Policy, step_time: AbstractStepTime, settings: Settings, trace: Trace, state: State) -> State:
    """The state after one micro-operation; unchanged where all requests have ended."""
    view = view_of(settings, trace, state)
    plan = policy.plan(settings, view)
    done = finished(state)
    run = planned_run(policy, step_time, settings, state, view, plan)
    event = event_of(trace, state, view, plan, run, jnp.any(done))
    victims, ending = plan.victims, None
    if state.ahead is not None or (state.pipeline is not None and policy.queues):
        victims |= flying(state) & (state.slots.blocks > 0)
        ending = flying(state) & (state.slots.processed == state.slots.total)
    place = place_of(trace, state.slots, event, done, victims, ending)
    copies = _copies(settings, state, view, event, place)
    passage = passage_of(policy, state, view, run, event.run, event.jump)
    grown = jnp.where(event.grow, plan.needs, jnp.where(event.run, run.needs, 0))
    fresh = jnp.where(event.admit, plan.blocks - view.hits, 0) + add(grown)
    cache, freed = _cached(settings, trace, state, view, event, place, fresh)
    waited = jnp.where(jnp.asarray(plan.tried), 0, state.waited) + jnp.where(view.formed, 0, run.steps)
    slots = _slots(view, event, plan, run, place, grown, state, passage.tokens_at)
    last = (slots.request != EMPTY) & (slots.processed == slots.total) & (state.slots.processed != state.slots.total)
    return State(
        clock=passage.clock,
        head=jnp.where(
            event.evict & ~place.ending,
            jnp.minimum(place.request, state.head),
            state.head + as_count(event.admit | event.skip | event.reject),
        ),
        free=state.free - fresh - jnp.where(event.admit, view.idle, 0) + freed,
        ended=state.ended + as_count(event.complete | event.reject),
        evicted=event.evict | (state.evicted & ~(event.run | event.jump)),
        joined=(event.admit & view.whole) | (state.joined & ~event.run),
        waited=jnp.where(event.run, waited, state.waited),
        events=state.events + as_count(event.alive),
        slots=slots,
        requests=requests_after(policy, trace, state, view, event, place, None if copies is None else copies.out > 0),
        totals=totals_after(settings, state, event, run, passage.busy),
        log=log_after(settings, state, event, run, passage),
        cache=cache,
        swap=None if state.swap is None or copies is None else copied(state.swap, copies, event.run),
        order=None if state.order is None else _order(state.order, state, view, event, plan, place),
        pipeline=None if passage.pipeline is None else left(passage.pipeline, place.one & event.evict & ~place.ending),
        ahead=None if state.ahead is None else formed(state.ahead, passage.tokens_at, last, event.run),
    )


def _copies(settings: Settings, state: State, view: View, event: Event, place: Place) -> Copies | None:
    """Blocks that go to host memory while it has room for them, or leave it; None without such memory."""
    if state.swap is None or settings.swap_blocks is None:
        return None
    fits = state.swap.used + place.blocks <= settings.swap_blocks
    swapped = state.requests.status[view.head] == jnp.int32(Status.SWAPPED)
    held = jnp.where(swapped, blocks_of(view.prompt, settings.block_size), 0)
    return Copies(
        out=jnp.where(event.evict & fits, place.blocks, 0),
        back=jnp.where(event.admit, held, 0),
        dropped=jnp.where(event.reject, held, 0),
    )


def _cached(
    settings: Settings, trace: Trace, state: State, view: View, event: Event, place: Place, fresh: Int32[Array, ""]
) -> tuple[PrefixCache | None, Int32[Array, ""]]:
    """The prefix cache after the micro-operation, `fresh` blocks having been taken; and the blocks that became free."""
    leaves, cache, size = (event.complete | event.evict) & (place.blocks > 0), state.cache, settings.block_size
    if cache is None or trace.path is None:
        return cache, jnp.where(leaves, place.blocks, 0)
    request = jnp.where(leaves, place.request, view.head)
    one = Holding(
        path=trace.path[request],
        prompt=jnp.where(leaves, place.prompt, view.prompt),
        # The last token of a request that decodes is known but not in the cache.
        computed=place.processed - as_count(place.processed > place.prompt) - _unnamed(state, event, place),
        blocks=place.blocks,
        request=request,
    )
    cache, freed = given_back(cache, one, size, leaves)
    cache = popped(touched(cache, one, view.hits, event.admit), fresh)
    return held(cache, one, view.hits, size, event.admit), freed


def _unnamed(state: State, event: Event, place: Place) -> Int32[Array, ""]:
    """Ahead of the device, the token that an evicted decode is making is not known, so that the one before it cannot
    fill a block that has a name."""
    if state.ahead is None:
        return jnp.int32(0)
    return as_count(event.evict & (state.ahead.end > state.clock) & (place.processed > place.prompt + 1))


def _slots(
    view: View,
    event: Event,
    plan: Plan,
    run: Run,
    place: Place,
    grown: Int32[Array, " S"],
    state: State,
    clock: Float64[Array, ""],
) -> Slots:
    """A slot filled or emptied, or all of them after a run; a prompt that is done has made one token.

    Whoever brings all of a prompt has its first token before it comes.
    """
    slots, admitted = view.slots, place.one & event.admit
    left = place.one & (event.complete | (event.evict & ~place.ending))
    tokens = jnp.where(event.run, run.work.tokens * run.steps, 0)
    reached = slots.processed + tokens
    prefilled = event.run & ~view.decoding & (run.work.tokens > 0) & (reached == slots.prompt)
    made = jnp.where(view.whole, state.requests.arrived[view.head], -1.0)
    return Slots(
        request=jnp.where(admitted, view.head, jnp.where(left, EMPTY, slots.request)),
        processed=jnp.where(admitted, view.present + as_count(view.whole), reached + prefilled.astype(jnp.int32)),
        prompt=jnp.where(admitted, view.prompt, slots.prompt),
        total=jnp.where(admitted, view.total, slots.total),
        blocks=jnp.where(admitted, plan.blocks, jnp.where(place.one & event.evict, 0, slots.blocks + grown)),
        chunk=jnp.where(admitted, plan.tokens, jnp.where(event.run | left, 0, slots.chunk)),
        first_token=jnp.where(
            admitted, made, jnp.where(prefilled & (slots.first_token < 0.0), clock, slots.first_token)
        ),
    )


def _order(order: Order, state: State, view: View, event: Event, plan: Plan, place: Place) -> Order:
    admitted, evicted = place.one & event.admit, place.one & event.evict & ~place.ending
    formed = event.run | event.jump
    return order_after(order, admitted, state.events, evicted, plan.needs, view.free, view.partial, formed)
