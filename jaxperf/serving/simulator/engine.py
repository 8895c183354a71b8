"""The event loop of one replica: one micro-operation a call, so that many replicas advance together under `vmap`.

Complete one request | pass over the head of the queue | admit one | evict one | take blocks | run | wait or reject.
Steps that only decode and take the same time are run at once, up to the next thing that can change the batch.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.simulator.passage import Passage, passage_of
from jaxperf.serving.simulator.pipeline import in_flight
from jaxperf.serving.simulator.policies.base import MANY, Plan, Policy, View, add, count, flying, view_of
from jaxperf.serving.simulator.prefix import Holding, PrefixCache, given_back, held, popped, touched
from jaxperf.serving.simulator.priority import last_of_all, order_after
from jaxperf.serving.simulator.state import (
    EMPTY,
    Log,
    Order,
    Requests,
    Settings,
    Slots,
    State,
    Status,
    Totals,
    Trace,
    blocks_of,
)
from jaxperf.serving.simulator.step_time import AbstractStepTime
from jaxperf.serving.simulator.steps import Run, planned_run
from jaxperf.serving.simulator.swap import Copies, copied


class Event(NamedTuple):
    """Which micro-operation this is; at most one holds, and `alive` is false where nothing is left to do."""

    alive: Bool[Array, ""]
    complete: Bool[Array, ""]
    skip: Bool[Array, ""]
    admit: Bool[Array, ""]
    evict: Bool[Array, ""]
    grow: Bool[Array, ""]
    run: Bool[Array, ""]
    reject: Bool[Array, ""]
    jump: Bool[Array, ""]


class Place(NamedTuple):
    """The slot that a micro-operation changes: a mask of it, and what it holds."""

    one: Bool[Array, " S"]
    request: Int32[Array, ""]
    processed: Int32[Array, ""]
    prompt: Int32[Array, ""]
    blocks: Int32[Array, ""]
    first_token: Float64[Array, ""]


class Left(NamedTuple):
    """An evicted request: how it waits, the prompt it will have, and how much of that it brings."""

    status: Int32[Array, ""]
    prompt: Int32[Array, ""]
    brought: Int32[Array, ""]


def advance(policy: Policy, step_time: AbstractStepTime, settings: Settings, trace: Trace, state: State) -> State:
    """The state after one micro-operation; unchanged where all requests have ended."""
    view = view_of(settings, trace, state)
    plan = policy.plan(settings, view)
    done = finished(state)
    run = planned_run(policy, step_time, settings, state, view, plan)
    event = _event(trace, state, view, plan, run, jnp.any(done))
    place = _place(trace, state.slots, event, done, plan.victims)
    copies = _copies(settings, state, view, event, place)
    passage = passage_of(state, view, run, event.run, event.jump)
    grown = jnp.where(event.grow, plan.needs, jnp.where(event.run, run.needs, 0))
    fresh = jnp.where(event.admit, plan.blocks - view.hits, 0) + add(grown)
    cache, freed = _cached(settings, trace, state, view, event, place, fresh)
    waited = jnp.where(jnp.asarray(plan.tried), 0, state.waited) + jnp.where(view.formed, 0, run.steps)
    return State(
        clock=passage.clock,
        head=jnp.where(
            event.evict,
            jnp.minimum(place.request, state.head),
            state.head + _one(event.admit | event.skip | event.reject),
        ),
        free=state.free - fresh - jnp.where(event.admit, view.idle, 0) + freed,
        ended=state.ended + _one(event.complete | event.reject),
        evicted=event.evict | (state.evicted & ~(event.run | event.jump)),
        joined=(event.admit & view.whole) | (state.joined & ~event.run),
        waited=jnp.where(event.run, waited, state.waited),
        events=state.events + _one(event.alive),
        slots=_slots(view, event, plan, run, place, grown, state, passage.tokens_at),
        requests=_requests(policy, trace, state, view, event, place, None if copies is None else copies.out > 0),
        totals=_totals(settings, state, event, run, passage.busy),
        log=_logged(state, event, run, passage),
        cache=cache,
        swap=None if state.swap is None or copies is None else copied(state.swap, copies, event.run),
        order=None if state.order is None else _order(state.order, state, view, event, plan, place),
        pipeline=passage.pipeline,
    )


def finished(state: State) -> Bool[Array, " S"]:
    """Slots whose request has made its last token and is not yet taken out."""
    slots = state.slots
    return (slots.request != EMPTY) & (slots.processed == slots.total) & ~flying(state)


def _event(trace: Trace, state: State, view: View, plan: Plan, run: Run, finished: Bool[Array, ""]) -> Event:
    """Completions come first because they free blocks; then the queue, the policy's plan, and at last time passes."""
    alive = state.ended < trace.count
    complete = alive & finished
    skip = alive & ~complete & view.passed
    free = alive & ~complete & ~skip
    room, waits = jnp.bool_(True), jnp.bool_(False)
    if state.pipeline is not None:
        flights = in_flight(state.pipeline, state.clock)
        room, waits = flights < state.pipeline.ends.shape[0], flights > 0
    admit = free & room & plan.admit
    evict = free & room & ~plan.admit & plan.evict
    grow = free & room & ~plan.admit & ~plan.evict & plan.grow
    rest = free & ~admit & ~evict & ~grow
    works = room & (run.sequences > 0)
    # A step in which everybody was evicted is followed by one without the rule against admissions.
    idle = rest & ~works
    reject = idle & view.arrived & ~view.evicted & ~waits
    return Event(alive, complete, skip, admit, evict, grow, rest & works, reject, idle & ~reject)


def _place(trace: Trace, slots: Slots, event: Event, finished: Bool[Array, " S"], victims: Bool[Array, " S"]) -> Place:
    """The slot of the earliest request that is finished, of the last among the victims, or the first empty one."""
    earliest = jnp.min(jnp.where(finished, slots.request, MANY))
    latest = last_of_all(slots, victims, trace.priority)
    wanted = slots.request == jnp.where(event.complete, earliest, jnp.where(event.evict, latest, EMPTY))
    numbers = jnp.arange(slots.request.shape[0], dtype=jnp.int32)
    index = jnp.minimum(jnp.min(jnp.where(wanted, numbers, numbers.shape[0])), numbers.shape[0] - 1)
    names = ("request", "processed", "prompt", "blocks", "first_token")
    return Place(numbers == index, *[getattr(slots, name)[index] for name in names])


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
    leaves, cache, size = event.complete | event.evict, state.cache, settings.block_size
    if cache is None or trace.path is None:
        return cache, jnp.where(leaves, place.blocks, 0)
    request = jnp.where(leaves, place.request, view.head)
    one = Holding(
        path=trace.path[request],
        prompt=jnp.where(leaves, place.prompt, view.prompt),
        # The last token of a request that decodes is known but not in the cache.
        computed=place.processed - _one(place.processed > place.prompt),
        blocks=place.blocks,
        request=request,
    )
    cache, freed = given_back(cache, one, size, leaves)
    cache = popped(touched(cache, one, view.hits, event.admit), fresh)
    return held(cache, one, view.hits, size, event.admit), freed


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
    left = place.one & (event.complete | event.evict)
    tokens = jnp.where(event.run, run.work.tokens * run.steps, 0)
    reached = slots.processed + tokens
    prefilled = event.run & ~view.decoding & (run.work.tokens > 0) & (reached == slots.prompt)
    made = jnp.where(view.whole, state.requests.arrived[view.head], -1.0)
    return Slots(
        request=jnp.where(admitted, view.head, jnp.where(left, EMPTY, slots.request)),
        processed=jnp.where(admitted, view.present + _one(view.whole), reached + prefilled.astype(jnp.int32)),
        prompt=jnp.where(admitted, view.prompt, slots.prompt),
        total=jnp.where(admitted, view.total, slots.total),
        blocks=jnp.where(admitted, plan.blocks, slots.blocks + grown),
        chunk=jnp.where(admitted, plan.tokens, jnp.where(event.run | left, 0, slots.chunk)),
        first_token=jnp.where(
            admitted, made, jnp.where(prefilled & (slots.first_token < 0.0), clock, slots.first_token)
        ),
    )


def _order(order: Order, state: State, view: View, event: Event, plan: Plan, place: Place) -> Order:
    admitted, evicted = place.one & event.admit, place.one & event.evict
    formed = event.run | event.jump
    return order_after(order, admitted, state.events, evicted, plan.needs, view.free, view.partial, formed)


def _left(policy: Policy, place: Place, swapped: Bool[Array, ""] | None) -> Left:
    """What is left of an evicted request; where it is `swapped` out, all but its last token, and it is a decode."""
    again = place.processed if policy.forgets_prompt else jnp.maximum(place.processed, place.prompt)
    computed = Left(jnp.int32(Status.WAITING), again, jnp.int32(0))
    if swapped is None:
        return computed
    kept = Left(jnp.int32(Status.SWAPPED), place.processed - 1, place.processed - 1)
    return Left(*[jnp.where(swapped, new, old) for new, old in zip(kept, computed, strict=True)])


def _requests(
    policy: Policy,
    trace: Trace,
    state: State,
    view: View,
    event: Event,
    place: Place,
    swapped: Bool[Array, ""] | None,
) -> Requests:
    """The record of the one request that a micro-operation concerns, and of the one sent because another ended."""
    old = state.requests
    nobody = old.status.shape[0]
    leaves = event.complete | event.evict
    named = jnp.where(leaves, place.request, jnp.where(event.admit | event.reject, view.head, nobody))
    here = jnp.minimum(named, nobody - 1)
    left = _left(policy, place, swapped)
    status = jnp.where(
        event.complete,
        jnp.int32(Status.COMPLETED),
        jnp.where(
            event.evict,
            left.status,
            jnp.where(event.admit, jnp.int32(Status.RUNNING), jnp.int32(Status.REJECTED)),
        ),
    )
    first = leaves & (old.first_token[here] < 0.0)
    begins = event.admit & (old.scheduled[here] < 0.0)
    next_sent = trace.concurrency + state.ended
    sent_at = jnp.maximum(state.clock, trace.arrived[jnp.minimum(next_sent, nobody - 1)])
    sends = jnp.where((event.complete | event.reject) & (next_sent < trace.count), next_sent, nobody)

    def add_one(values: Array, when: Array) -> Array:
        return values.at[jnp.where(when, named, nobody)].add(1, mode="drop")

    def write(values: Array, new: Array, when: Array) -> Array:
        return values.at[jnp.where(when, named, nobody)].set(new, mode="drop")

    return Requests(
        status=write(old.status, status, event.alive),
        prompt=write(old.prompt, left.prompt, event.evict),
        arrived=old.arrived.at[sends].set(sent_at, mode="drop"),
        scheduled=write(old.scheduled, state.clock, begins),
        first_token=write(old.first_token, place.first_token, first),
        completed=write(old.completed, state.clock, event.complete),
        restarts=add_one(old.restarts, event.evict & (left.status == jnp.int32(Status.WAITING))),
        brought=None if old.brought is None else write(old.brought, left.brought, event.evict),
        swaps=None if old.swaps is None or swapped is None else add_one(old.swaps, swapped),
    )


def _totals(settings: Settings, state: State, event: Event, run: Run, elapsed: Float64[Array, ""]) -> Totals:
    """Sums over the steps; blocks that a run adds count from its beginning."""
    old = state.totals
    sequences = run.sequences.astype(jnp.float64)
    held = settings.blocks - state.free + jnp.where(event.run, add(run.needs), 0)
    return Totals(
        steps=old.steps + jnp.where(event.run, run.steps, 0),
        busy=old.busy + elapsed,
        sequence_seconds=old.sequence_seconds + sequences * elapsed,
        block_seconds=old.block_seconds + held.astype(jnp.float64) * elapsed,
        most_blocks=jnp.maximum(old.most_blocks, held),
        beyond=old.beyond + jnp.where(event.run & ~run.covered, run.steps, 0),
    )


def _logged(state: State, event: Event, run: Run, passage: Passage) -> Log:
    """The run written behind the others, while there is room; it is counted in any case."""
    log, size = state.log, state.log.start.shape[0]
    written = {}
    if size:
        place = jnp.where(event.run, log.count, size)
        entry = {
            "start": passage.start,
            "seconds": passage.seconds,
            "steps": run.steps,
            "sequences": run.sequences,
            "tokens": add(run.work.tokens),
            "decodes": count(run.work.decoding),
        }
        written = {name: getattr(log, name).at[place].set(value, mode="drop") for name, value in entry.items()}
    return dataclasses.replace(log, count=log.count + _one(event.run), **written)


def _one(event: Bool[Array, ""]) -> Int32[Array, ""]:
    return event.astype(jnp.int32)
