"""The event loop of one replica: one micro-operation a call, so that many replicas advance together under `vmap`.

Complete one request | pass over the head of the queue | admit one | evict one | take blocks | run | wait or reject.
Steps that only decode and take the same time are run at once, up to the next thing that can change the batch.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.simulator.policies.base import MANY, Plan, Policy, View, add, count, view_of
from jaxperf.serving.simulator.prefix import Holding, PrefixCache, given_back, held, popped, touched
from jaxperf.serving.simulator.state import EMPTY, Log, Requests, Settings, Slots, State, Status, Totals, Trace
from jaxperf.serving.simulator.step_time import AbstractStepTime
from jaxperf.serving.simulator.steps import Run, planned_run


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


def advance(policy: Policy, step_time: AbstractStepTime, settings: Settings, trace: Trace, state: State) -> State:
    """The state after one micro-operation; unchanged where all requests have ended."""
    view = view_of(settings, trace, state)
    plan = policy.plan(settings, view)
    finished = (state.slots.request != EMPTY) & (state.slots.processed == state.slots.total)
    event = _event(trace, state, view, plan, jnp.any(finished))
    run = planned_run(policy, step_time, settings, trace, state, view, plan)
    place = _place(state.slots, event, finished, plan.victims)
    elapsed = jnp.where(event.run, run.steps.astype(jnp.float64) * run.seconds, 0.0)
    arrival = trace.arrived[jnp.minimum(state.head, trace.count - 1)]
    clock = jnp.where(event.jump, jnp.maximum(state.clock, arrival), state.clock + elapsed)
    grown = jnp.where(event.grow, plan.needs, jnp.where(event.run, run.needs, 0))
    fresh = jnp.where(event.admit, plan.blocks - view.hits, 0) + add(grown)
    cache, freed = _cached(settings, trace, state, view, event, place, fresh)
    waited = jnp.where(jnp.asarray(plan.tried), 0, state.waited) + jnp.where(view.formed, 0, run.steps)
    return State(
        clock=clock,
        head=jnp.where(event.evict, place.request, state.head + _one(event.admit | event.skip | event.reject)),
        free=state.free - fresh - jnp.where(event.admit, view.idle, 0) + freed,
        ended=state.ended + _one(event.complete | event.reject),
        evicted=event.evict | (state.evicted & ~(event.run | event.jump)),
        waited=jnp.where(event.run, waited, state.waited),
        events=state.events + _one(event.alive),
        slots=_slots(settings, view, event, plan, run, place, grown, state.head, clock),
        requests=_requests(policy, trace, state, event, place),
        totals=_totals(settings, state, event, run, elapsed),
        log=_logged(state, event, run),
        cache=cache,
    )


def _event(trace: Trace, state: State, view: View, plan: Plan, finished: Bool[Array, ""]) -> Event:
    """Completions come first because they free blocks; then the queue, the policy's plan, and at last time passes."""
    alive = state.ended < trace.count
    complete = alive & finished
    queued = state.head < trace.count
    status = state.requests.status[jnp.minimum(state.head, trace.count - 1)]
    skip = alive & ~complete & queued & (status != jnp.int32(Status.WAITING))
    free = alive & ~complete & ~skip
    admit = free & plan.admit
    evict = free & ~plan.admit & plan.evict
    grow = free & ~plan.admit & ~plan.evict & plan.grow
    rest = free & ~plan.admit & ~plan.evict & ~grow
    run = rest & (view.running > 0)
    # A replica that evicted its last request starts its next step without the rule against admissions.
    idle = rest & (view.running == 0)
    reject = idle & view.arrived & ~view.evicted
    return Event(alive, complete, skip, admit, evict, grow, run, reject, idle & ~reject)


def _place(slots: Slots, event: Event, finished: Bool[Array, " S"], victims: Bool[Array, " S"]) -> Place:
    """The slot of the earliest request that is finished, of the latest among the victims, or the first empty one."""
    earliest = jnp.min(jnp.where(finished, slots.request, MANY))
    latest = jnp.max(jnp.where(victims, slots.request, EMPTY))
    wanted = slots.request == jnp.where(event.complete, earliest, jnp.where(event.evict, latest, EMPTY))
    numbers = jnp.arange(slots.request.shape[0], dtype=jnp.int32)
    index = jnp.minimum(jnp.min(jnp.where(wanted, numbers, numbers.shape[0])), numbers.shape[0] - 1)
    names = ("request", "processed", "prompt", "blocks", "first_token")
    return Place(numbers == index, *[getattr(slots, name)[index] for name in names])


def _cached(
    settings: Settings, trace: Trace, state: State, view: View, event: Event, place: Place, fresh: Int32[Array, ""]
) -> tuple[PrefixCache | None, Int32[Array, ""]]:
    """The prefix cache after the micro-operation, `fresh` blocks having been taken; and the blocks that became free."""
    leaves, cache, size = event.complete | event.evict, state.cache, settings.block_size
    if cache is None or trace.path is None:
        return cache, jnp.where(leaves, place.blocks, 0)
    request = jnp.where(leaves, place.request, jnp.minimum(state.head, trace.count - 1))
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
    settings: Settings,
    view: View,
    event: Event,
    plan: Plan,
    run: Run,
    place: Place,
    grown: Int32[Array, " S"],
    head: Int32[Array, ""],
    clock: Float64[Array, ""],
) -> Slots:
    """A slot filled or emptied, or all of them after a run; a prompt that is done has made one token."""
    slots, admitted = view.slots, place.one & event.admit
    left = place.one & (event.complete | event.evict)
    tokens = jnp.where(event.run, run.work.tokens * run.steps, 0)
    reached = slots.processed + tokens
    prefilled = event.run & ~view.decoding & (run.work.tokens > 0) & (reached == slots.prompt)
    return Slots(
        request=jnp.where(admitted, head, jnp.where(left, EMPTY, slots.request)),
        processed=jnp.where(admitted, view.hits * settings.block_size, reached + prefilled.astype(jnp.int32)),
        prompt=jnp.where(admitted, view.prompt, slots.prompt),
        total=jnp.where(admitted, view.total, slots.total),
        blocks=jnp.where(admitted, plan.blocks, slots.blocks + grown),
        chunk=jnp.where(admitted, plan.tokens, jnp.where(event.run | left, 0, slots.chunk)),
        first_token=jnp.where(
            admitted, -1.0, jnp.where(prefilled & (slots.first_token < 0.0), clock, slots.first_token)
        ),
    )


def _requests(policy: Policy, trace: Trace, state: State, event: Event, place: Place) -> Requests:
    """The record of the one request that a micro-operation concerns, and of the one sent because another ended."""
    old = state.requests
    nobody = old.status.shape[0]
    leaves = event.complete | event.evict
    named = jnp.where(leaves, place.request, jnp.where(event.admit | event.reject, state.head, nobody))
    here = jnp.minimum(named, nobody - 1)
    status = jnp.where(
        event.complete,
        jnp.int32(Status.COMPLETED),
        jnp.where(
            event.evict,
            jnp.int32(Status.WAITING),
            jnp.where(event.admit, jnp.int32(Status.RUNNING), jnp.int32(Status.REJECTED)),
        ),
    )
    again = place.processed if policy.forgets_prompt else jnp.maximum(place.processed, place.prompt)
    first = leaves & (old.first_token[here] < 0.0)
    begins = event.admit & (old.scheduled[here] < 0.0)
    next_sent = trace.concurrency + state.ended
    sent_at = jnp.maximum(state.clock, trace.arrived[jnp.minimum(next_sent, nobody - 1)])
    sends = jnp.where((event.complete | event.reject) & (next_sent < trace.count), next_sent, nobody)

    def write(values: Array, new: Array, when: Array) -> Array:
        return values.at[jnp.where(when, named, nobody)].set(new, mode="drop")

    return Requests(
        status=write(old.status, status, event.alive),
        prompt=write(old.prompt, again, event.evict),
        arrived=old.arrived.at[sends].set(sent_at, mode="drop"),
        scheduled=write(old.scheduled, state.clock, begins),
        first_token=write(old.first_token, place.first_token, first),
        completed=write(old.completed, state.clock, event.complete),
        restarts=old.restarts.at[jnp.where(event.evict, named, nobody)].add(1, mode="drop"),
    )


def _totals(settings: Settings, state: State, event: Event, run: Run, elapsed: Float64[Array, ""]) -> Totals:
    """Sums over the steps; blocks that a run adds count from its beginning."""
    old = state.totals
    sequences = count(run.work.tokens > 0).astype(jnp.float64)
    held = settings.blocks - state.free + jnp.where(event.run, add(run.needs), 0)
    return Totals(
        steps=old.steps + jnp.where(event.run, run.steps, 0),
        busy=old.busy + elapsed,
        sequence_seconds=old.sequence_seconds + sequences * elapsed,
        block_seconds=old.block_seconds + held.astype(jnp.float64) * elapsed,
        most_blocks=jnp.maximum(old.most_blocks, held),
        beyond=old.beyond + jnp.where(event.run & ~run.covered, run.steps, 0),
    )


def _logged(state: State, event: Event, run: Run) -> Log:
    """The run written behind the others, while there is room; it is counted in any case."""
    log, size = state.log, state.log.start.shape[0]
    written = {}
    if size:
        place = jnp.where(event.run, log.count, size)
        entry = {
            "start": state.clock,
            "seconds": run.seconds,
            "steps": run.steps,
            "sequences": count(run.work.tokens > 0),
            "tokens": add(run.work.tokens),
            "decodes": count(run.work.decoding),
        }
        written = {name: getattr(log, name).at[place].set(value, mode="drop") for name, value in entry.items()}
    return dataclasses.replace(log, count=log.count + _one(event.run), **written)


def _one(event: Bool[Array, ""]) -> Int32[Array, ""]:
    return event.astype(jnp.int32)
