"""Pipeline parallelism in one replica: as many batches in flight as there are stages.

A batch is formed as soon as fewer are in flight than there are stages, and waits for the first stage (Vidur's replica
and stage schedulers, Agrawal et al., MLSys 2024; vLLM's queue of batches). It takes the same time t / P in each of the
P stages, which work on one batch at a time: with f_j when stage j is free, it leaves stage s at

    e_s = max(e_{s-1}, f_s) + t / P,    e_0 = now

A request is in one batch at most, as Vidur has it. vLLM's own queue of batches (`Policy.queues`) differs: the next
chunk of a prompt follows the one under way, and only decodes wait for their tokens; who is in a batch may be evicted;
and while a batch is under way and none can be formed, its end is waited for, whatever comes before it.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

NEVER = -1.0  # s: before any clock


class Pipeline(eqx.Module):
    """`free`: when each stage P is [s]; `ends`: when the last batches leave, those in flight among them [s]; `until`:
    when the batch that each slot waits for leaves [s]."""

    free: Float64[Array, "*lanes P"]
    ends: Float64[Array, "*lanes P"]
    until: Float64[Array, "*lanes S"]


class Flight(eqx.Module):
    """A batch on its way: when it enters the first stage and leaves the last [s], and when each stage is free then."""

    start: Float64[Array, ""]
    end: Float64[Array, ""]
    free: Float64[Array, " P"]


def empty_pipeline(stages: int, slots: int) -> Pipeline:
    """No batch in flight; both sizes are structure."""
    return Pipeline(jnp.zeros(stages), jnp.full(stages, NEVER), jnp.full(slots, NEVER))


def flight_of(pipeline: Pipeline, clock: Float64[Array, ""], seconds: Float64[Array, ""]) -> Flight:
    """The way of a batch of `seconds` in all stages together that is formed now."""
    stages = pipeline.free.shape[0]
    share, end, free = seconds / stages, clock, []
    for stage in range(stages):
        end = jnp.maximum(end, pipeline.free[stage]) + share
        free.append(end)
    return Flight(jnp.maximum(clock, pipeline.free[0]), end, jnp.array(free))


def launched(pipeline: Pipeline, flight: Flight, members: Bool[Array, " S"], when: Bool[Array, ""]) -> Pipeline:
    """The pipeline after a batch of these slots was formed; it takes the place of the one that left first."""
    place = jnp.where(when, jnp.argmin(pipeline.ends), pipeline.ends.shape[0])
    return Pipeline(
        free=jnp.where(when, flight.free, pipeline.free),
        ends=pipeline.ends.at[place].set(flight.end, mode="drop"),
        until=jnp.where(when & members, flight.end, pipeline.until),
    )


def left(pipeline: Pipeline, evicted: Bool[Array, " S"]) -> Pipeline:
    """The pipeline after these slots were emptied: who comes next in them waits for no batch."""
    return eqx.tree_at(lambda old: old.until, pipeline, jnp.where(evicted, NEVER, pipeline.until))


def in_flight(pipeline: Pipeline, clock: Float64[Array, ""]) -> Int32[Array, ""]:
    """Batches that have not left yet."""
    return jnp.sum(pipeline.ends > clock, dtype=jnp.int32)


def next_end(pipeline: Pipeline, clock: Float64[Array, ""]) -> Float64[Array, ""]:
    """When the next batch leaves [s]; infinite where none is in flight."""
    return jnp.min(jnp.where(pipeline.ends > clock, pipeline.ends, jnp.inf))
