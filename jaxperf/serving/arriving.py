"""Steady state of one serving engine in an open loop: requests that come at a rate, whether or not it keeps up.

The queueing model of `jaxperf.serving.queueing` with the step times of `jaxperf.serving.steady`: what waits is what
comes, so the closed loop that serves as many says little of it (its customers wait for their own kind, never for none).
The step law of n decodes and k prompts is taken from three functions of counts,

    t = linear(n + k q) + e n,     linear(n) = decode(n) - e n,     linear(k q) = prefill(k)

in which e is what reading a sequence's cache adds to a step, and a prompt counts as q tokens: its own, or more than
there are slots where they are fewer, so that a number of tokens is one of decodes alone or has a prompt in it.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div
from jaxperf.serving.queueing.engine import FULL, Discipline, Engine, chunked
from jaxperf.serving.queueing.engine import Load as Arrivals
from jaxperf.serving.queueing.law import GRAIN, StepLaw
from jaxperf.serving.queueing.lengths import Lengths
from jaxperf.serving.queueing.open_loop import steady_state
from jaxperf.serving.queueing.pools import Pools, Sending, no_prompts, steady_pools
from jaxperf.serving.queueing.saturated import request_cost
from jaxperf.serving.steady import Load, Schedule, Steady, Steps, aggregated

CELLS = 1024  # of the law: as many as there are prompts in a step would be too few to tell decodes apart
MOST = 256.0  # prompts in a step: no more come while one runs


class Arriving(eqx.Module):
    """Requests at a `rate` [1/s], each with so many tokens of `prompt` [1]; a request in flight adds `each` to what no
    step explains of every TTFT [s]."""

    rate: Scalar = eqx.field(converter=as_float)
    prompt: Scalar = eqx.field(converter=as_float)
    each: Scalar = eqx.field(converter=as_float, default=0.0)


def open_loop(
    discipline: Discipline, steps: Steps, load: Load, schedule: Schedule, arriving: Arriving
) -> tuple[Steady, Scalar]:
    """Prefill and decode on the same devices, Poisson arrivals.

    **Arguments:** `discipline`: `prefill_first`, or `chunked` for prompts beside decodes; `load`: its `concurrency` and
    `held` are not looked at; of `schedule` only `first` is, and the rest where the queue grows.
    **Returns:** the steady state, and the utilization: rate over what the engine serves [1]. Above 1 the queue grows
    without end, and the latencies are those of the full engine.
    """
    slots = jnp.maximum(load.slots, 1.0)
    together = jnp.minimum(load.together, jnp.minimum(slots, MOST))
    law, tokens = step_law(steps, slots, arriving.prompt, together)
    room = together * tokens + (slots if discipline is chunked else 0.0)
    asked = Arrivals(arriving.rate, _alike(tokens), _alike(load.output))
    found, utilization = _served(discipline, law, asked, Engine(slots, room))
    in_flight = found.throughput / load.output * (found.e2e + schedule.first)  # Little's law
    first = schedule.first + arriving.each * in_flight
    found = eqx.tree_at(lambda s: (s.ttft, s.e2e), found, (found.ttft + first, found.e2e + first))
    most = eqx.tree_at(lambda of: of.concurrency, load, slots)
    full = aggregated(steps, most, eqx.tree_at(lambda s: s.first, schedule, first))
    longer = jax.tree.map(lambda own, other: jnp.where(utilization <= 1.0, own, jnp.maximum(own, other)), found, full)
    decode = jnp.where(load.output > 1.0, (load.output - 1.0) * longer.tpot, 0.0)
    whole = jnp.where(utilization <= 1.0, found.e2e, longer.ttft + decode)
    return eqx.tree_at(lambda s: (s.throughput, s.e2e), longer, (found.throughput, whole)), utilization


def open_pools(
    steps: Steps, load: Load, schedule: Schedule, arriving: Arriving, prefillers: Scalar, workers: Scalar, wire: Scalar
) -> tuple[Steady, Scalar]:
    """Prefill on some of `workers` devices, decode on the others, Poisson arrivals; prompts share steps of prefill as
    far as these have room.

    **Arguments:** as of `open_loop`; `prefillers` [K]: the numbers to choose from, the one that serves most is taken
    [1]; `wire`: sending the cache of a prompt, one after another from each worker [s].
    **Returns:** as `open_loop`; above 1 the latencies are those of a load near it.
    """
    slots, one = jnp.maximum(load.slots, 1.0), jnp.ones_like(load.output)
    together = jnp.minimum(load.together, MOST)
    law, tokens = step_law(steps, slots, arriving.prompt, together)
    engines = (Engine(jnp.maximum(slots, together), together * tokens), Engine(slots, slots))
    asked = Arrivals(arriving.rate, _alike(tokens), _alike(load.output))
    alone = eqx.tree_at(lambda of: of.output, asked, _alike(one))
    prompts = jnp.maximum(request_cost(chunked, law, alone, engines[0]), wire)
    outputs = request_cost(no_prompts, law, asked, engines[1])
    each = jnp.where(prefillers < workers, jnp.minimum(prefillers / prompts, (workers - prefillers) / outputs), 0.0)
    most, chosen = jnp.max(each), prefillers[jnp.argmax(each)]
    stable = eqx.tree_at(lambda of: of.rate, asked, jnp.minimum(arriving.rate, FULL * most))
    pools = Pools(chosen, jnp.maximum(workers - chosen, 1.0), Sending(wire, jnp.zeros_like(wire)))
    state = steady_pools(chunked, (law, law), stable, engines, pools)
    after = jnp.maximum(load.output - 1.0, 0.0)
    decode = jnp.where(after > 0.0, state.decode.e2e, 0.0)
    served = jnp.minimum(arriving.rate, most)
    first = schedule.first + arriving.each * served * (state.ttft + decode + schedule.first)  # Little's law
    ttft = first + state.ttft
    tpot = jnp.where(after > 0.0, decode / jnp.maximum(after, 1.0), jnp.nan)
    found = Steady(ttft, tpot, ttft + decode, served * load.output, state.decode.batch, state.prefill.prefill_share)
    return found, arriving.rate / most


def step_law(steps: Steps, slots: Scalar, prompt: Scalar, together: Scalar) -> tuple[StepLaw, Scalar]:
    """The law of steps of up to `slots` decodes and `together` prompts of `prompt` tokens each [1], and the tokens that
    it counts for a prompt: q."""
    least = GRAIN * jnp.ones_like(slots)
    grain = jnp.maximum(ceil_div(together * jnp.maximum(prompt, slots) + slots, CELLS - 2.0 * together), least)
    tokens = floor_div(jnp.maximum(prompt, slots + 2.0 * grain) - 1.0, grain) * grain + 1.0  # where a cell begins
    each = (steps.attention(slots) - steps.attention(as_float(1.0))) / jnp.maximum(slots - 1.0, 1.0)

    def linear(count: Scalar) -> Scalar:
        decodes = jnp.clip(count, 1.0, slots)
        prefill = steps.prefill(jnp.maximum(count / tokens, 1.0))
        return jnp.where(count < slots + grain, steps.decode(decodes) - each * decodes, prefill)

    starts, zero = jnp.arange(CELLS, dtype=grain.dtype) * grain, jnp.zeros_like(each)
    ends = jax.vmap(linear)(starts + 1.0), jax.vmap(linear)(starts + grain)
    return StepLaw(*ends, grain, jnp.array([zero, each, zero]), jnp.zeros(5, each.dtype)), tokens


def _served(discipline: Discipline, law: StepLaw, asked: Arrivals, engine: Engine) -> tuple[Steady, Scalar]:
    """The engine under one discipline, at no more than it serves, and its utilization."""
    most = 1.0 / request_cost(discipline, law, asked, engine)
    stable = eqx.tree_at(lambda load: load.rate, asked, jnp.minimum(asked.rate, FULL * most))
    state = steady_state(discipline, law, stable, engine)
    served = jnp.minimum(asked.rate, most) * asked.output.mean
    found = Steady(state.ttft, state.tpot, state.e2e, served, state.batch, state.prefill_share)
    return found, asked.rate / most


def _alike(tokens: Scalar) -> Lengths:
    """Requests of one length; in two classes, as what lengths vary inside one is told from the next."""
    return Lengths(jnp.full(2, tokens), jnp.full(2, 0.5), jnp.zeros(2))
