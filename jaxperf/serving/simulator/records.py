"""What a micro-operation writes down: the record of the request it concerns, sums over the steps, the log of runs."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.simulator.event import Event, Place, as_count
from jaxperf.serving.simulator.passage import Passage
from jaxperf.serving.simulator.policies.base import Policy, View, add, count
from jaxperf.serving.simulator.state import Log, Requests, Settings, State, Status, Totals
from jaxperf.serving.simulator.steps import Run
from jaxperf.serving.simulator.trace import Trace


class Left(NamedTuple):
    """An evicted request: how it waits, the prompt it will have, and how much of that it brings."""

    status: Int32[Array, ""]
    prompt: Int32[Array, ""]
    brought: Int32[Array, ""]


def requests_after(
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
    leaves = event.complete | (event.evict & ~place.ending)
    named = jnp.where(
        event.complete | event.evict, place.request, jnp.where(event.admit | event.reject, view.head, nobody)
    )
    here = jnp.minimum(named, nobody - 1)
    left = _left(policy, place, swapped)
    status = jnp.where(
        event.complete,
        jnp.int32(Status.COMPLETED),
        jnp.where(
            event.evict & ~place.ending,
            left.status,
            jnp.where(event.admit | event.evict, jnp.int32(Status.RUNNING), jnp.int32(Status.REJECTED)),
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
        prompt=write(old.prompt, left.prompt, leaves & event.evict),
        arrived=old.arrived.at[sends].set(sent_at, mode="drop"),
        scheduled=write(old.scheduled, state.clock, begins),
        first_token=write(old.first_token, place.first_token, first),
        completed=write(old.completed, state.clock, event.complete),
        restarts=add_one(old.restarts, event.evict & (left.status == jnp.int32(Status.WAITING))),
        brought=None if old.brought is None else write(old.brought, left.brought, leaves & event.evict),
        swaps=None if old.swaps is None or swapped is None else add_one(old.swaps, swapped),
    )


def _left(policy: Policy, place: Place, swapped: Bool[Array, ""] | None) -> Left:
    """What is left of an evicted request; where it is `swapped` out, all but its last token, and it is a decode."""
    again = place.processed if policy.forgets_prompt else jnp.maximum(place.processed, place.prompt)
    computed = Left(jnp.int32(Status.WAITING), again, jnp.int32(0))
    if swapped is None:
        return computed
    kept = Left(jnp.int32(Status.SWAPPED), place.processed - 1, place.processed - 1)
    return Left(*[jnp.where(swapped, new, old) for new, old in zip(kept, computed, strict=True)])


def totals_after(settings: Settings, state: State, event: Event, run: Run, elapsed: Float64[Array, ""]) -> Totals:
    """Sums over the steps; a block that a run adds counts from the step that takes it."""
    old = state.totals
    sequences = run.sequences.astype(jnp.float64)
    held = _held(settings, state, event, run)
    return Totals(
        steps=old.steps + jnp.where(event.run, run.steps, 0),
        busy=old.busy + elapsed,
        sequence_seconds=old.sequence_seconds + sequences * elapsed,
        block_seconds=old.block_seconds + _mean_held(held, run) * elapsed,
        most_blocks=jnp.maximum(old.most_blocks, held),
        beyond=old.beyond + jnp.where(event.run & ~run.covered, run.steps, 0),
    )


def _held(settings: Settings, state: State, event: Event, run: Run) -> Int32[Array, ""]:
    """Blocks held in the end, which are the most."""
    return settings.blocks - state.free + jnp.where(event.run, add(run.needs), 0)


def _mean_held(held: Int32[Array, ""], run: Run) -> Float64[Array, ""]:
    """Blocks held in the mean over the steps of a run that has `held` of them in the end."""
    return held.astype(jnp.float64) - run.before / run.steps.astype(jnp.float64)


def log_after(settings: Settings, state: State, event: Event, run: Run, passage: Passage) -> Log:
    """The run written behind the others, while there is room; it is counted in any case."""
    log, size = state.log, state.log.start.shape[0]
    written = {}
    if size:
        held = _held(settings, state, event, run)
        place = jnp.where(event.run, log.count, size)
        entry = {
            "start": passage.start,
            "seconds": passage.seconds,
            "steps": run.steps,
            "sequences": run.sequences,
            "tokens": add(run.work.tokens),
            "decodes": count(run.work.decoding),
            "busy": passage.busy,
            "blocks": held,
            "mean_blocks": _mean_held(held, run),
        }
        written = {name: getattr(log, name).at[place].set(value, mode="drop") for name, value in entry.items()}
    return dataclasses.replace(log, count=log.count + as_count(event.run), **written)
