"""Engines that share a device, coupled at every instant: whoever begins or ends a step changes the speed of the others.

Every engine is a state machine of its own (`simulator.engine`), which knows nothing of the others. Its next step is
planned when the one before it has ended, and how long that would take alone is the work in it. Work is done at the
speeds that go with what all engines do; a step that has come to its end is then carried out by the state machine as one
that took as long as that did. Time goes from one event to the next: the end of a step, or an arrival at an idle engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.colocate.overlap import IDLE, PHASES
from jaxperf.serving.simulator.engine import advance
from jaxperf.serving.simulator.event import event_of, finished
from jaxperf.serving.simulator.policies import Policy
from jaxperf.serving.simulator.policies.base import view_of
from jaxperf.serving.simulator.run import Simulated, enough, padded, power_of_two
from jaxperf.serving.simulator.settings import Scheduler
from jaxperf.serving.simulator.state import Settings, Sizes, State, initial_state
from jaxperf.serving.simulator.step_time import AbstractStepTime, Timing, Work
from jaxperf.serving.simulator.steps import planned_run
from jaxperf.serving.simulator.swap import copy_time
from jaxperf.serving.simulator.trace import Trace

STATES = len(PHASES) + 1  # of an engine: in one of the phases, or idle


class Member(eqx.Module):
    """One engine without a pipeline, and its requests: no axis of lanes. `policy` and `sizes` are structure."""

    settings: Settings
    trace: Trace
    step_time: AbstractStepTime
    policy: Policy = eqx.field(static=True)
    sizes: Sizes = eqx.field(static=True)


class Told(AbstractStepTime):
    """A single step that took so many `seconds`; whether the times that it was planned with `covered` it."""

    seconds: Float64[Array, ""]
    covered: Bool[Array, ""]

    def __call__(self, work: Work) -> Timing:
        return Timing(self.seconds, jnp.int32(1), self.covered)


class Next(NamedTuple):
    """What an engine does next: its `state`, the phase of a step or `IDLE`; `alone`: the time of that step at full
    speed [s], and whether its times `covered` it; `until`: when it has something to do again, where it waits [s];
    `now`: whether it is done at once; and whether anything is left to do."""

    state: Int32[Array, ""]
    alone: Float64[Array, ""]
    covered: Bool[Array, ""]
    until: Float64[Array, ""]
    now: Bool[Array, ""]
    alive: Bool[Array, ""]


class Meeting(NamedTuple):
    """All engines at one `clock` [s]: their states, and the work that is `left` of the step that each is in, which it
    is where it is `busy` [engines] s."""

    clock: Float64[Array, ""]
    engines: tuple[State, ...]
    busy: Bool[Array, " engines"]
    left: Float64[Array, " engines"]


def member_of(scheduler: Scheduler, step_time: AbstractStepTime, requests: Any, steps: int) -> Member:
    """One engine, with room in its log for so many steps to begin with.

    **Arguments:** `requests`: as one of the shares of `simulate_requests`.
    **Raises:** `InputError` as `simulate_requests` does.
    """
    trace, sizes = padded(scheduler, [requests])
    settings, trace = jax.tree.map(lambda values: values[0], (scheduler.arrays(), trace))
    return Member(settings, trace, step_time, scheduler.policy, sizes._replace(log=power_of_two(max(steps, 1))))


def simulate_together(members: Sequence[Member], speeds: np.ndarray) -> list[Simulated]:
    """What came of each engine, with a leading axis of one replica; all runs logged, each a single step.

    **Arguments:** `speeds` [states of the first, ..., of the last, engines]: of each engine over its speed alone, above
    zero where it is in a phase [1].
    """
    everyone = tuple(members)
    while True:
        found = _simulated(everyone, jnp.asarray(speeds, jnp.float64))
        sizes = [enough(one.sizes, own) for one, own in zip(everyone, found, strict=True)]
        if all(one.sizes == size for one, size in zip(everyone, sizes, strict=True)):
            return [jax.tree.map(lambda values: np.asarray(values)[None], own) for own in found]
        everyone = tuple(dataclasses.replace(one, sizes=size) for one, size in zip(everyone, sizes, strict=True))


@jax.jit
def _simulated(members: tuple[Member, ...], speeds: Array) -> tuple[Simulated, ...]:
    begin = Meeting(
        clock=jnp.float64(0.0),
        engines=tuple(initial_state(one.settings, one.trace, one.sizes) for one in members),
        busy=jnp.zeros(len(members), bool),
        left=jnp.zeros(len(members), jnp.float64),
    )

    def alive(meeting: Meeting) -> Array:
        left = [state.ended < one.trace.count for one, state in zip(members, meeting.engines, strict=True)]
        return jnp.any(jnp.stack(left))

    ended = jax.lax.while_loop(alive, lambda meeting: _turn(members, speeds, meeting), begin)
    return tuple(Simulated(one.requests, one.totals, one.log, one.events, one.cache) for one in ended.engines)


def _turn(members: tuple[Member, ...], speeds: Array, meeting: Meeting) -> Meeting:
    """What takes no time is done first; where nobody has any such thing, time goes on to the next event."""
    plans = [_next(one, state) for one, state in zip(members, meeting.engines, strict=True)]
    state, alone, covered, until, now, alive = (jnp.stack(each) for each in zip(*plans, strict=True))
    works = alive & ~now & (state != IDLE)
    left = jnp.where(meeting.busy, meeting.left, alone)
    speed = speeds[tuple(jnp.where(works, state, IDLE))]
    ends = jnp.where(works, meeting.clock + left / speed, jnp.where(alive, until, jnp.inf))
    passes = ~jnp.any(now)
    clock = jnp.where(passes, jnp.min(ends), meeting.clock)
    goes = jnp.where(passes, ends <= clock, now)
    engines = tuple(
        _carried_out(one, before, clock, covered[place], goes[place])
        for place, (one, before) in enumerate(zip(members, meeting.engines, strict=True))
    )
    rest = jnp.maximum(left - speed * (clock - meeting.clock), 0.0)
    return Meeting(clock, engines, works & ~goes, rest)


def _next(member: Member, state: State) -> Next:
    """What the engine is about to do; the same until it is carried out, whatever arrives meanwhile."""
    view = view_of(member.settings, member.trace, state)
    plan = member.policy.plan(member.settings, view)
    run = planned_run(member.policy, member.step_time, member.settings, state, view, plan)
    event = event_of(member.trace, state, view, plan, run, jnp.any(finished(state)))
    prompts = jnp.any((run.work.tokens > 0) & ~run.work.decoding)
    waits = event.jump & ~view.arrived
    return Next(
        state=jnp.where(event.run, jnp.where(prompts, 0, 1), IDLE).astype(jnp.int32),
        alone=run.seconds,
        covered=run.covered,
        until=view.coming,
        now=event.alive & ~event.run & ~waits,
        alive=event.alive,
    )


def _carried_out(
    member: Member, state: State, clock: Float64[Array, ""], covered: Bool[Array, ""], goes: Bool[Array, ""]
) -> State:
    """The state after its next micro-operation, a step of which ends at `clock`; unchanged where it is not its turn.

    To an engine whose turn it is not all of its requests seem to have ended.
    """
    trace = eqx.tree_at(lambda one: one.count, member.trace, jnp.where(goes, member.trace.count, 0))
    seconds = clock - state.clock - copy_time(state.swap, member.settings.swap_seconds)
    return advance(member.policy, Told(seconds, covered), member.settings, trace, state)
