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
    if state.pipeline is not None:
        return _in_stages(policy, state.pipeline, state.clock, view, run, runs, waits, coming)
    took = run.steps.astype(jnp.float64) * run.seconds
    busy = jnp.where(runs, took, 0.0)
    if state.ahead is None:
        clock = jnp.where(waits, coming, state.clock + busy)
        return Passage(clock, clock, state.clock, run.seconds, busy, None)
    end = state.ahead.end
    start = jnp.maximum(state.clock, end)
    last = start + (run.steps - 1).astype(jnp.float64) * run.seconds
    until = jnp.where(end > state.clock, end, coming)
    clock = jnp.where(waits, until, jnp.where(runs, last, state.clock))
    return Passage(clock, start + took, start, run.seconds, busy, None)


def _in_stages(
    policy: Policy,
    pipeline: Pipeline,
    clock: Float64[Array, ""],
    view: View,
    run: Run,
    runs: Bool[Array, ""],
    waits: Bool[Array, ""],
    coming: Float64[Array, ""],
) -> Passage:
    stages = pipeline.ends.shape[0]
    flight, number, end = flight_of(pipeline, clock, run.seconds), in_flight(pipeline, clock), next_end(pipeline, clock)
    members = run.work.tokens > 0
    if policy.queues:
        members &= view.slots.processed + run.work.tokens >= view.slots.prompt
    else:
        end = jnp.minimum(end, jnp.where(number < stages, view.coming, jnp.inf))
    return Passage(
        clock=jnp.where(waits, jnp.where(number == 0, coming, end), clock),
        tokens_at=flight.end,
        start=flight.start,
        seconds=flight.end - flight.start,
        busy=jnp.where(runs, run.seconds / stages, 0.0),
        pipeline=launched(pipeline, flight, members, runs),
    )
