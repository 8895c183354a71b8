"""What comes next in a replica: one micro-operation, and the slot that it changes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.simulator.pipeline import in_flight
from jaxperf.serving.simulator.policies.base import MANY, Plan, View, flying
from jaxperf.serving.simulator.priority import last_of_all
from jaxperf.serving.simulator.state import EMPTY, Slots, State
from jaxperf.serving.simulator.steps import Run
from jaxperf.serving.simulator.trace import Trace


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
    """The slot that a micro-operation changes: a mask of it, and what it holds; `ending`: it is evicted while its last
    token is under way (ahead of the device, in vLLM's queue of batches), so that it ends all the same."""

    one: Bool[Array, " S"]
    request: Int32[Array, ""]
    processed: Int32[Array, ""]
    prompt: Int32[Array, ""]
    blocks: Int32[Array, ""]
    first_token: Float64[Array, ""]
    ending: Bool[Array, ""]


def finished(state: State) -> Bool[Array, " S"]:
    """Slots whose request has made its last token and is not yet taken out."""
    slots = state.slots
    return (slots.request != EMPTY) & (slots.processed == slots.total) & ~flying(state)


def event_of(trace: Trace, state: State, view: View, plan: Plan, run: Run, done: Bool[Array, ""]) -> Event:
    """Completions come first because they free blocks; then the queue, the policy's plan, and at last time passes."""
    alive = state.ended < trace.count
    complete = alive & done
    skip = alive & ~complete & view.passed
    free = alive & ~complete & ~skip
    room, waits = jnp.bool_(True), jnp.bool_(False)
    if state.pipeline is not None:
        flights = in_flight(state.pipeline, state.clock)
        room, waits = flights < state.pipeline.ends.shape[0], flights > 0
    if state.ahead is not None:
        waits = state.ahead.end > state.clock
    admit = free & room & plan.admit
    evict = free & room & ~plan.admit & plan.evict
    grow = free & room & ~plan.admit & ~plan.evict & plan.grow
    rest = free & ~admit & ~evict & ~grow
    works = room & (run.sequences > 0)
    # A step in which everybody was evicted is followed by one without the rule against admissions.
    idle = rest & ~works
    reject = idle & view.arrived & ~view.evicted & ~waits
    return Event(alive, complete, skip, admit, evict, grow, rest & works, reject, idle & ~reject)


def place_of(
    trace: Trace,
    slots: Slots,
    event: Event,
    done: Bool[Array, " S"],
    victims: Bool[Array, " S"],
    ending: Bool[Array, " S"] | None = None,
) -> Place:
    """The slot of the earliest request that is finished, of the last among the victims, or the first empty one."""
    earliest = jnp.min(jnp.where(done, slots.request, MANY))
    latest = last_of_all(slots, victims, trace.priority)
    wanted = slots.request == jnp.where(event.complete, earliest, jnp.where(event.evict, latest, EMPTY))
    numbers = jnp.arange(slots.request.shape[0], dtype=jnp.int32)
    index = jnp.minimum(jnp.min(jnp.where(wanted, numbers, numbers.shape[0])), numbers.shape[0] - 1)
    names = ("request", "processed", "prompt", "blocks", "first_token")
    ends = jnp.bool_(False) if ending is None else event.evict & ending[index]
    return Place(numbers == index, *[getattr(slots, name)[index] for name in names], ending=ends)


def as_count(event: Bool[Array, ""]) -> Int32[Array, ""]:
    """1 where it holds, else 0."""
    return event.astype(jnp.int32)
