"""The steps of an engine and what requests meet in them, each of which makes the other: an open loop's fixed point.

The equations are those at the head of `open_loop`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.arrivals import cluster
from jaxperf.serving.queueing.decoding import after_first, clump, decode_time, mates, row_left, rows_of, step_and_slope
from jaxperf.serving.queueing.engine import FULL, SHORTEST, Discipline, Engine, Load, Prefill, decode_step, mean_over
from jaxperf.serving.queueing.in_flight import overlap_at
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.line import Company, nobody
from jaxperf.serving.queueing.slots import Slots, slots_at, within
from jaxperf.serving.queueing.waiting import Growing, Wait, waiting

NEWTONS = 4  # the fourth is within 1e-5 of the tenth at 99 % of points
LEAST_SLOPE, LEAST_DAMPING = 0.25, 0.05  # of the equation near saturation: no step and no variance beyond bounds


class Steps(NamedTuple):
    """The steps of an engine with a mean `batch` in decode and its variance `spread` [1]: `step` without prompts and
    its `slope` in the batch [s], and what `prefill` does to them."""

    batch: Scalar
    spread: Scalar
    step: Scalar
    slope: Scalar
    prefill: Prefill


class Found(NamedTuple):
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


def fixed_point(discipline: Discipline, law: StepLaw, load: Load, engine: Engine, packed: Scalar) -> Steps:
    """Mean and variance of the sequences in decode: N = lambda (e2e - ttft) by Newton's steps from an empty engine.

    The steps that come of them are carried from one of Newton's to the next: XLA computes what a loop carries once, and
    would compute it again for each of the sums over classes that look at it. `packed`: as of `saturated`.
    """
    after = jnp.maximum(load.output.mean - 1.0, 0.0)
    steps_at = functools.partial(_steps_at, discipline, law, load, engine)

    def newton(_: int, at: Steps) -> Steps:
        found = found_in(at, load, engine, packed)
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
) -> Steps:
    """The steps with a mean and a variance of the sequences in decode; arrivals see their burst beside, and the others
    of their row, their `company` [1]; few slots leave them the share `beside` of all that decode [1]; `prompts`: those
    whose are computed with their own."""
    seen = (batch + mates(load, batch)) * beside + company
    step, slope = step_and_slope(functools.partial(decode_step, law, load, engine), seen, spread, engine.slots)
    return Steps(
        batch, spread, step, slope, discipline(law, load, engine, beside * batch / engine.ways, step, prompts, None)
    )


def found_in(at: Steps, load: Load, engine: Engine, packed: Scalar) -> Found:
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
    return Found(wait, ttft, jnp.sum(shared * each), tpot, slow, behind, left, present, slots)
