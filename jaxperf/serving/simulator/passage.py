"""How time passes in one micro-operation, with and without a pipeline."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64

from jaxperf.serving.simulator.pipeline import Pipeline, flight_of, in_flight, launched, next_end
from jaxperf.serving.simulator.policies.base import Policy, View
from jaxperf.serving.simulator.state import State
from jaxperf.serving.simulator.steps import Run


class Passage(NamedTuple):
    """How time passes in a micro-operation [s]: the `clock` after it; `tokens_at`: when the tokens of a step are made;
    when it starts, and the `seconds` to its end; how long a stage is `busy` with it; and the pipeline after it."""

    clock: Float64[Array, ""]
    tokens_at: Float64[Array, ""]
    start: Float64[Array, ""]
    seconds: Float64[Array, ""]
    busy: Float64[Array, ""]
    pipeline: Pipeline | None


def passage_of(
    policy: Policy, state: State, view: View, run: Run, runs: Bool[Array, ""], waits: Bool[Array, ""]
) -> Passage:
    """The time that passes where the planned `run` happens (`runs`) or something is waited for (`waits`).

    Without a pipeline that is the next arrival; ahead of the device, first the end of the step under way. With one,
    batches are formed at once, and the end of one is waited for, or an arrival while there is room for another.
    """
    coming = jnp.where(view.arrived, state.clock, view.coming)
    busy = jnp.where(runs, run.steps.astype(jnp.float64) * run.seconds, 0.0)
    if state.ahead is not None:
        start = jnp.maximum(state.clock, state.ahead.end)
        end = start + run.steps.astype(jnp.float64) * run.seconds
        until = jnp.where(state.ahead.end > state.clock, state.ahead.end, coming)
        last = start + (run.steps - 1).astype(jnp.float64) * run.seconds
        clock = jnp.where(waits, until, jnp.where(runs, last, state.clock))
        return Passage(clock, end, start, run.seconds, busy, None)
    if state.pipeline is None:
        clock = jnp.where(waits, coming, state.clock + busy)
        return Passage(clock, clock, state.clock, run.seconds, busy, None)
    flight = flight_of(state.pipeline, state.clock, run.seconds)
    end, number = next_end(state.pipeline, state.clock), in_flight(state.pipeline, state.clock)
    room = number < state.pipeline.ends.shape[0]
    sooner = jnp.where(room, view.coming, jnp.inf)
    until = jnp.where(number == 0, coming, end if policy.queues else jnp.minimum(end, sooner))
    members = run.work.tokens > 0
    if policy.queues:
        members &= view.slots.processed + run.work.tokens >= view.slots.prompt
    return Passage(
        clock=jnp.where(waits, until, state.clock),
        tokens_at=flight.end,
        start=flight.start,
        seconds=flight.end - flight.start,
        busy=jnp.where(runs, run.seconds / state.pipeline.ends.shape[0], 0.0),
        pipeline=launched(state.pipeline, flight, members, runs),
    )
