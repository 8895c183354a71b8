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
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.arrivals import cluster, meets
from jaxperf.serving.queueing.decoding import after_first, clump, decode_time, mates, row_left, rows_of, step_and_slope
from jaxperf.serving.queueing.engine import (
    FULL,
    SHORTEST,
    Discipline,
    Engine,
    Load,
    Prefill,
    decode_step,
    mean_over,
)
from jaxperf.serving.queueing.formed import formed_step
from jaxperf.serving.queueing.in_flight import overlap_at, overlapping
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.line import Company, nobody
from jaxperf.serving.queueing.slots import Slots, held, slot_wait, slots_at, within
from jaxperf.serving.queueing.waiting import Growing, Wait, waiting

NEWTONS, ROUNDS = 4, 6  # of the fixed point, of the overlap: the fourth is within 1e-5 of the tenth at 99 % of points
LEAST_SLOPE, LEAST_DAMPING = 0.25, 0.05  # of the equation near saturation: no step and no variance beyond bounds


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
    at = _fixed_point(functools.partial(_steps_at, discipline, law, load, engine), law, load, engine, packed)
    found = _found(at, load, engine, packed)
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


def _kept(at: _Steps, found: _Found, load: Load, engine: Engine) -> tuple[Scalar, Scalar]:
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


class _Steps(NamedTuple):
    """The steps of an engine with a mean `batch` in decode and its variance `spread` [1]: `step` without prompts and
    its `slope` in the batch [s], and what `prefill` does to them."""

    batch: Scalar
    spread: Scalar
    step: Scalar
    slope: Scalar
    prefill: Prefill


class _Found(NamedTuple):
    """What requests meet there, as of `SteadyQueue`; `decode`: the time after the first token [s]."""

    wait: Wait
    ttft: Scalar
    decode: Scalar
    tpot: Scalar
    slow: Scalar
    behind: Scalar
    left: Scalar
    present: Scalar
    slots: Slots


def _fixed_point(
    steps_at: Callable[[Scalar, Scalar, Scalar, Scalar, Company], _Steps],
    law: StepLaw,
    load: Load,
    engine: Engine,
    packed: Scalar,
) -> _Steps:
    """Mean and variance of the sequences in decode: N = lambda (e2e - ttft) by Newton's steps from an empty engine.

    The steps that come of them are carried from one of Newton's to the next: XLA computes what a loop carries once, and
    would compute it again for each of the sums over classes that look at it.
    """
    after = jnp.maximum(load.output.mean - 1.0, 0.0)

    def newton(_: int, at: _Steps) -> _Steps:
        found = _found(at, load, engine, packed)
        stiffness = load.rate * after * at.slope / (1.0 - found.slow)
        wanted = jnp.minimum(load.rate * found.decode, engine.slots)
        batch = at.batch + (wanted - at.batch) / jnp.maximum(1.0 - stiffness, LEAST_SLOPE)
        company = clump(load, batch, found.slow)
        varies = batch * (1.0 + mates(load, batch) + company)
        spread = jnp.minimum(varies / jnp.maximum(1.0 - stiffness, LEAST_DAMPING), batch**2 + 1.0)
        return steps_at(jnp.clip(batch, 0.0, engine.slots), spread, company, found.slots.beside, found.wait.company)

    light = load.rate * after * decode_step(law, load, engine, jnp.ones_like(load.rate))
    start = jnp.minimum(light, 0.5 * engine.slots)
    return jax.lax.fori_loop(
        0, NEWTONS, newton, steps_at(start, start, jnp.zeros_like(start), jnp.ones_like(start), nobody(start))
    )


def _steps_at(
    discipline: Discipline,
    law: StepLaw,
    load: Load,
    engine: Engine,
    batch: Scalar,
    spread: Scalar,
    company: Scalar,
    beside: Scalar,
    prompts: Company,
) -> _Steps:
    """The steps with a mean and a variance of the sequences in decode; arrivals see their burst beside, and the others
    of their row, their `company` [1]; few slots leave them the share `beside` of all that decode [1]; `prompts`: those
    whose are computed with their own."""
    seen = (batch + mates(load, batch)) * beside + company
    step, slope = step_and_slope(functools.partial(decode_step, law, load, engine), seen, spread, engine.slots)
    return _Steps(
        batch, spread, step, slope, discipline(law, load, engine, beside * batch / engine.ways, step, prompts, None)
    )


def _found(at: _Steps, load: Load, engine: Engine, packed: Scalar) -> _Found:
    """What requests meet in such steps: the equations at the head of this file. `packed`: as of `saturated`."""
    batch, step, prefill = at.batch, at.step, at.prefill
    present = 1.0 - jnp.exp(-batch)
    slots = slots_at(prefill, load, engine, batch, at.spread)
    longer = jnp.maximum(packed / jnp.maximum(prefill.packed, SHORTEST) - 1.0, 0.0)
    wait = within(waiting(prefill, load, engine, step, present, Growing(longer, batch / load.rate)), slots)
    over = overlap_at(prefill, load, engine)
    ttft = wait.unfinished + mean_over(load.prompt, prefill.own + wait.ending)
    delay = (mean_over(load.prompt, prefill.delay) + prefill.stall / wait.prompts) / over
    slow = jnp.minimum(load.rate * delay * slots.beside, FULL)
    come = load.rate * ttft  # before the first token; the rest of the burst while it decodes
    come = (come + cluster(come + batch, load.variation)) * slots.beside
    left = jnp.maximum(come - wait.beside, 0.0)
    each = mean_over(load.prompt, prefill.delay) / over
    row = rows_of(load.rate, step, slow, each, delay - each)
    behind = jnp.where(prefill.beside > 0.0, left * delay, (1.0 - slow) * row_left(row, each, left))
    tokens, several = after_first(load)
    shared = load.output.share * several
    each = decode_time(prefill, load, step, slow, behind, tokens)
    several = jnp.sum(shared)
    tpot = jnp.where(several > 0.0, jnp.sum(shared * each / tokens) / jnp.maximum(several, SHORTEST), jnp.nan)
    return _Found(wait, ttft, jnp.sum(shared * each), tpot, slow, behind, left, present, slots)


def request_cost(discipline: Discipline, law: StepLaw, load: Load, engine: Engine) -> Scalar:
    """Time of the engine per request with all slots taken: 1 / the rate that it can serve [s]."""
    return saturated(discipline, law, load, engine)[0]


def saturated(discipline: Discipline, law: StepLaw, load: Load, engine: Engine) -> tuple[Scalar, Scalar]:
    """(`request_cost`, what of it the steps with prompts take before any overlap) [s].

    Where prompts share steps with decodes, no more sequences are in decode than make their tokens in those steps, and a
    slot is held for the steps of a prompt as well, and for the step that was formed before it fell free. A prompt joins
    where a sequence has ended: Poisson's of so many `ended` a step, and a step has no more prompts than that, however
    many wait.
    """
    after = jnp.maximum(load.output.mean - 1.0, 0.0)
    one = jnp.ones_like(load.rate)
    alone = discipline(law, load, engine, 0.0 * one, decode_step(law, load, engine, one), nobody(one), None)
    fed = engine.ways / jnp.maximum(alone.beside * (1.0 + after * alone.room / engine.budget), SHORTEST)
    held = jnp.where(alone.beside > 0.0, jnp.maximum(alone.beside, 1.0), 0.0)
    ended = jnp.minimum(fed, engine.slots / jnp.maximum(after + held + engine.ahead, SHORTEST))
    batch = ended * after
    step = decode_step(law, load, engine, batch)
    others = batch * (1.0 - 1.0 / jnp.maximum(engine.slots, 1.0)) / engine.ways
    joining = ended / engine.ways
    prefill = discipline(law, load, engine, others, step, nobody(one), joining / -jnp.expm1(-joining))

    def cost(overlap: Scalar) -> Scalar:
        steps = jnp.maximum(1.0 / ended - prefill.beside / overlap, 0.0)
        return prefill.packed / overlap + steps * step

    overlap = engine.ways
    for _ in range(ROUNDS):
        overlap = overlapping(prefill.packed / cost(overlap), prefill.room, load, engine)
    return cost(overlap), prefill.packed
