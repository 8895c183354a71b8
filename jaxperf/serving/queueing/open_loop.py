"""Steady state of one engine in an open loop: requests arrive at a rate, whether or not the engine keeps up.

Two queues in one server. **Decode** is processor sharing whose speed depends on how many share: with n sequences each
gets a token per step t(n). Arrivals that find N others meet t(N + 1) (arrival theorem; Cohen 1979, Acta Informatica 12:
the mean is insensitive to the lengths of outputs), while prompts delay the steps by lambda d a second:

    e2e - ttft = ((output - 1) E t(N + 1) + U_behind) / (1 - lambda d),     N = lambda (e2e - ttft)

U_behind is the delay of the prompts that a request leaves behind at its first token. That is the limit of long
outputs; `decoding` has the sum over the steps of any. **Prefill** is a queue with gated vacations (`waiting`): a
request waits for the work U before its own step, which others share,

    ttft = U + own steps + what others add to the last of them

A request that finds all slots taken waits for one, and few slots leave it less company (`slots`). Fluctuations of N:
product form of affine t, Var N = N / (1 - lambda (output - 1) t' / (1 - lambda d)). That is of requests that begin to
decode one by one; of those whose prompts were computed in a row see `decoding.clump`, and what a burst's find of each
other is in `arrivals`. All is of one point and differentiable; the fixed point takes Newton's steps.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.arrivals import cluster, meets
from jaxperf.serving.queueing.engine import FULL, SHORTEST, Discipline, Engine, Load, Prefill, mean_over
from jaxperf.serving.queueing.fixed_point import Found, Steps, fixed_point, found_in
from jaxperf.serving.queueing.formed import formed_step
from jaxperf.serving.queueing.in_flight import overlap_at
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.saturated import saturated
from jaxperf.serving.queueing.slots import held, slot_wait
from jaxperf.serving.queueing.waiting import Wait


class SteadyQueue(eqx.Module):
    """Means of requests: `ttft`, `tpot` (after the first token; NaN where none makes a second), `e2e` [s], NaN where
    not `stable`; `batch`: mean sequences in decode, `spread`: its variance [1]; `prefill_share` of the time in steps
    with prompts, and `meets`: of arrivals that find such a step and a slot [1]; `utilization`: rate over what the
    engine can serve [1].

    Then what percentiles are made of: `step` of a decode [s], its `slope` in the batch [s], `slow`: share of the time
    that prompts take from decodes [1], `behind`: delay by prompts left behind [s], `left`: how many those are [1],
    `kept`: what slots leave of the time that decodes wait for prompts [1], `squares`: of delays, a second [s], `waits`:
    probability of no free slot [1], `slot`: how long such a request waits [s], and `erratic`: the variance of that over
    its square [1], `present`: probability that an arrival finds decodes and a slot [1], and `formed`: how long one
    that does waits for a step formed before it came [s]; `ways` of the engine and how many prompts `overlap` there [1].
    """

    ttft: Float[Array, "*batch"]
    tpot: Float[Array, "*batch"]
    e2e: Float[Array, "*batch"]
    batch: Float[Array, "*batch"]
    spread: Float[Array, "*batch"]
    prefill_share: Float[Array, "*batch"]
    meets: Float[Array, "*batch"]
    utilization: Float[Array, "*batch"]
    stable: Bool[Array, "*batch"]
    step: Float[Array, "*batch"]
    slope: Float[Array, "*batch"]
    slow: Float[Array, "*batch"]
    behind: Float[Array, "*batch"]
    left: Float[Array, "*batch"]
    kept: Float[Array, "*batch"]
    squares: Float[Array, "*batch"]
    waits: Float[Array, "*batch"]
    slot: Float[Array, "*batch"]
    erratic: Float[Array, "*batch"]
    present: Float[Array, "*batch"]
    formed: Float[Array, "*batch"]
    ways: Float[Array, "*batch"]
    overlap: Float[Array, "*batch"]
    wait: Wait
    prefill: Prefill


def steady_state(discipline: Discipline, law: StepLaw, load: Load, engine: Engine) -> SteadyQueue:
    """The steady state of one engine; `discipline`: `prefill_first` or `chunked`.

    **Returns:** `SteadyQueue` of scalars; latencies are NaN where the engine cannot serve the rate.
    """
    cost, packed = saturated(discipline, law, load, engine)
    at = fixed_point(discipline, law, load, engine, packed)
    found = found_in(at, load, engine, packed)
    batch, spread = at.batch, at.spread
    kept, decode = _kept(at, found, load, engine)
    shorter = decode / jnp.maximum(found.decode, SHORTEST)
    utilization, slots = load.rate * cost, found.slots
    slot, erratic = slot_wait(at.prefill, load, found.decode, cost, utilization)
    formed = formed_step(engine, at.prefill, at.step, found.slow)
    ttft = found.ttft + slots.taken * slot + found.present * formed
    prompts = found.wait.prompts
    over = overlap_at(at.prefill, load, engine)
    steps = mean_over(load.prompt, at.prefill.share) + at.prefill.floor / prompts
    delays = (at.prefill.delay + at.prefill.stall / prompts) / over
    bursts = 2.0 * cluster(0.5 * batch, load.variation)  # of the variance of a number of arrivals, beyond Poisson's
    squares = mean_over(load.prompt, delays**2) + bursts * mean_over(load.prompt, delays) ** 2
    prefill_share = jnp.minimum(load.rate * steps / over, 1.0)
    chance = meets(jnp.minimum(prefill_share, FULL), load.variation, found.wait.uneven)
    stable = utilization < 1.0
    known = functools.partial(jnp.where, stable)
    return SteadyQueue(
        ttft=known(ttft, jnp.nan),
        tpot=known(shorter * found.tpot, jnp.nan),
        e2e=known(ttft + decode, jnp.nan),
        batch=known(batch, jnp.nan),
        spread=spread,
        prefill_share=prefill_share,
        meets=chance * slots.before,
        utilization=utilization,
        stable=stable,
        step=at.step,
        slope=at.slope,
        slow=found.slow,
        behind=found.behind,
        left=found.left,
        kept=kept,
        squares=load.rate * squares * slots.beside,
        waits=slots.taken,
        slot=slot,
        erratic=erratic,
        present=found.present * slots.before,
        formed=formed,
        ways=engine.ways,
        overlap=over,
        wait=found.wait,
        prefill=at.prefill,
    )


def _kept(at: Steps, found: Found, load: Load, engine: Engine) -> tuple[Scalar, Scalar]:
    """What slots leave of the time that decodes wait for prompts [1], and the time after the first token with it [s].

    Decodes that wait are as many as wait, X = lambda wait of them, and while all slots are taken no prompt starts: they
    are E min(X, c - those in their steps), X varying as its share of all that decode does.
    """
    steps = jnp.maximum(load.output.mean - 1.0, 0.0) * at.step
    waits = jnp.maximum(found.decode - steps, 0.0)
    share = waits / jnp.maximum(found.decode, SHORTEST)
    spread = load.rate * waits + share**2 * jnp.maximum(at.spread - at.batch, 0.0)
    kept = held(engine.slots - load.rate * steps, load.rate * waits, spread)
    return kept, found.decode - (1.0 - kept) * waits
