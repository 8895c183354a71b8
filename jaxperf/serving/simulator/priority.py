"""Priorities, as vLLM v1 has them (`scheduling_policy: priority`, `v1/core/sched/scheduler.py`): of the requests that
wait the one with the lowest number is next, of those that run the one with the highest is evicted; ties by arrival.

Running requests take blocks in the order in which they were admitted. An evicted one may stand anywhere in it. Where it
is itself the one that finds no block, those behind it go on (before vLLM 0.33 they missed the step); where it has a
token of the step already, a prompt that was begun has counted its own tokens without that one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.simulator.state import EMPTY, Order, Slots, State, Status
from jaxperf.serving.simulator.trace import Trace

LAST = jnp.iinfo(jnp.int32).max


class Front(NamedTuple):
    """The front of the queue: the `request` there; whether it has `arrived` and waits; when the next one does that has
    not [s], infinite where none is known; whether the queue has `passed` it, so that the next one is at the front."""

    request: Int32[Array, ""]
    arrived: Bool[Array, ""]
    coming: Float64[Array, ""]
    passed: Bool[Array, ""]


def first_of_all(trace: Trace, state: State, priority: Int32[Array, " R"]) -> Front:
    """The request with the lowest priority number among those that wait, the earliest of several."""
    numbers = jnp.arange(priority.shape[0], dtype=jnp.int32)
    sent = (numbers < trace.count) & (numbers < trace.concurrency + state.ended)
    waits = sent & (state.requests.status == jnp.int32(Status.WAITING))
    here = waits & (trace.arrived <= state.clock)
    lowest = jnp.min(jnp.where(here, priority, LAST))
    first = jnp.min(jnp.where(here & (priority == lowest), numbers, LAST))
    return Front(
        request=jnp.minimum(first, priority.shape[0] - 1),
        arrived=jnp.any(here),
        coming=jnp.min(jnp.where(waits & ~here, trace.arrived, jnp.inf)),
        passed=jnp.bool_(False),
    )


def last_of_all(slots: Slots, victims: Bool[Array, " S"], priority: Int32[Array, " R"] | None) -> Int32[Array, ""]:
    """The latest request among the victims, of those with the highest priority number where there are priorities."""
    if priority is not None:
        own = priority[slots.request]
        victims &= own == jnp.max(jnp.where(victims, own, -LAST))
    return jnp.max(jnp.where(victims, slots.request, EMPTY))


def order_after(
    order: Order,
    admitted: Bool[Array, " S"],
    number: Int32[Array, ""],
    evicted: Bool[Array, " S"],
    needs: Int32[Array, " S"],
    free: Int32[Array, ""],
    partial: Bool[Array, " S"],
    formed: Bool[Array, ""],
) -> Order:
    """The order after one request was `admitted` as the `number`-th or `evicted`, masks of at most one slot, or after
    a step was `formed`.

    **Arguments:** `needs`: blocks that each slot takes, of `free` ones; `partial`: the prompt that was begun.
    """
    begun = jnp.any(evicted & ~partial) & _fails_first(order, needs, free, partial)
    return Order(
        admitted=jnp.where(admitted, number, order.admitted),
        spent=jnp.where(formed, 0, order.spent + begun.astype(jnp.int32)),
    )


def _fails_first(
    order: Order, needs: Int32[Array, " S"], free: Int32[Array, ""], one: Bool[Array, " S"]
) -> Bool[Array, ""]:
    """Whether the slot of a mask of at most one is the first, in order of admission, that finds too few blocks: what it
    takes with those before it is more than there is, and what those before it take is not."""
    admitted = jnp.max(jnp.where(one, order.admitted, 0))
    before = jnp.sum(jnp.where(order.admitted < admitted, needs, 0), dtype=jnp.int32)
    own = jnp.sum(jnp.where(order.admitted == admitted, needs, 0), dtype=jnp.int32)
    return jnp.any(one) & (before <= free) & (before + own > free)
