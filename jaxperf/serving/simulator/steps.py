"""The step as planned and, where it is nothing but decodes, how many of them can be run at once."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.core.numerics import ceil_div, floor_div
from jaxperf.serving.simulator.policies.base import MANY, Plan, Policy, View, add, count, flying
from jaxperf.serving.simulator.state import Settings, State, blocks_of
from jaxperf.serving.simulator.step_time import AbstractStepTime, Work
from jaxperf.serving.simulator.swap import copy_time

SHORTEST = 1e-12  # s: a slot without work takes no time, which nothing may be divided by


class Run(NamedTuple):
    """`steps` alike steps of `seconds` each, of so many `sequences`; whether the table of times covers them, what each
    slot computes in one, and the blocks that all of them add; `before`: for each such block the steps of the run before
    the one that takes it, in all."""

    steps: Int32[Array, ""]
    seconds: Float64[Array, ""]
    sequences: Int32[Array, ""]
    covered: Bool[Array, ""]
    work: Work
    needs: Int32[Array, " S"]
    before: Float64[Array, ""]


def planned_run(
    policy: Policy,
    step_time: AbstractStepTime,
    settings: Settings,
    state: State,
    view: View,
    plan: Plan,
) -> Run:
    """The step as planned and, where it is nothing but decodes, how many of them can be run at once."""
    slots = view.slots
    work = Work(slots.chunk + plan.wants, slots.processed, view.decoding & (plan.wants > 0))
    timing = step_time(work)
    seconds = timing.seconds + copy_time(state.swap, settings.swap_seconds)
    one = Run(jnp.int32(1), seconds, count(work.tokens > 0), timing.covered, work, plan.needs, jnp.float64(0.0))
    if view.pipelined:
        return one
    known = jnp.isfinite(view.coming)
    # Ahead of the device each step is formed when the one before it starts: one more of them before an arrival.
    sooner = state.clock if state.ahead is None else jnp.maximum(state.clock, state.ahead.end)
    until = jnp.where(known, view.coming - sooner, 0.0)
    more = 0.0 if state.ahead is None else 1.0
    before = jnp.clip(ceil_div(until, jnp.maximum(seconds, SHORTEST)) + more, 1.0, MANY).astype(jnp.int32)
    left = jnp.min(jnp.where(view.decoding, slots.total - slots.processed, MANY))
    limits = (timing.alike, left, jnp.where(known, before, MANY), jnp.asarray(plan.longest, jnp.int32))
    steps = functools.reduce(jnp.minimum, limits)
    only_decodes = ~view.formed & ~jnp.any(view.partial) & ~view.evicted & ~view.joined
    if state.ahead is not None:
        only_decodes &= ~jnp.any(flying(state))  # their places and blocks are free at the next step
    steps = jnp.where(only_decodes, jnp.maximum(steps, 1), 1)
    if not policy.paged:
        return one._replace(steps=steps)
    steps, needs = _paged(policy, settings, view, plan, steps)
    return one._replace(steps=steps, needs=needs, before=jnp.where(steps > 1, _before(settings, view, needs), 0.0))


def _paged(
    policy: Policy, settings: Settings, view: View, plan: Plan, steps: Int32[Array, ""]
) -> tuple[Int32[Array, ""], Int32[Array, " S"]]:
    """No more steps than there are blocks for, and the blocks they take.

    n decodes never take more than n blocks in as many steps as a block has tokens.
    """
    blocks = jnp.maximum(view.free - policy.spare, 0).astype(jnp.float64)
    rounds = floor_div(blocks, jnp.maximum(view.decodes, 1).astype(jnp.float64))
    certain = jnp.minimum(rounds * settings.block_size.astype(jnp.float64), MANY).astype(jnp.int32)
    grown = _growth(settings, view, steps)
    few = jnp.where(add(grown) <= view.free - policy.spare, steps, jnp.maximum(jnp.minimum(steps, certain), 1))
    grown = jnp.where(few == steps, grown, _growth(settings, view, few))
    return few, jnp.where(few > 1, grown, plan.needs)


def _growth(settings: Settings, view: View, steps: Int32[Array, ""]) -> Int32[Array, " S"]:
    """Blocks that each decode adds in `steps` steps: the last of them needs room for steps - 1 more tokens."""
    last = jnp.where(view.decoding, view.slots.processed + steps - 1, 0)
    return jnp.maximum(blocks_of(last, settings.block_size) - jnp.where(view.decoding, view.slots.blocks, 0), 0)


def _before(settings: Settings, view: View, needs: Int32[Array, " S"]) -> Float64[Array, ""]:
    """Steps of decodes alone before each of the n blocks that a slot adds, over all of them.

    Step j stores token p + j, p of them being processed; so with b blocks of B tokens the g-th is taken in step
    (b + g - 1) B + 1 - p, and over g the sum is n (b B + 1 - p) + B n (n - 1) / 2.
    """
    size, added = settings.block_size.astype(jnp.float64), needs.astype(jnp.float64)
    first = view.slots.blocks.astype(jnp.float64) * size + 1.0 - view.slots.processed.astype(jnp.float64)
    return jnp.sum(added * (first + size * (added - 1.0) / 2.0))
