"""Slots of an engine: how long a request waits for one, and how much of the others' company few of them leave it.

With C the probability that all of c slots are taken (Erlang's formula of M/M/c) and a the mean number of requests that
would hold one, B of them,

    E B (B - 1) / E B = a - C,     E (B; B < c) = a - c C

so that a request in a slot has 1 - C / a of the company that Poisson's arrivals give one another (none where there is
one slot), and one that finds a slot has as much less work before it. It waits for one as in M/G/c (Allen and Cunneen;
with one slot Pollaczek and Khinchine's formula).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.serving.queueing.engine import FULL, SHORTEST, Engine, Load, Prefill, mean_over
from jaxperf.serving.queueing.gamma import gamma_tail
from jaxperf.serving.queueing.waiting import Wait

FARTHEST = 8.0  # standard deviations: beyond them slots are never taken


class Slots(NamedTuple):
    """`taken`: probability that all are [1]; of the company that any number of slots would give a request, what is
    `beside` it in its slot, and of the work before an arrival what is `before` it, the slot it waits for aside [1]."""

    taken: Scalar
    beside: Scalar
    before: Scalar


def slots_at(prefill: Prefill, load: Load, engine: Engine, batch: Scalar, spread: Scalar) -> Slots:
    """Slots with a mean `batch` in decode and its variance `spread` [1], and those whose prompts are computed.

    A number that varies z times as much as Poisson's finds c / z slots taken as Poisson's of a / z would (Hayward).
    """
    prompts = load.rate * mean_over(load.prompt, prefill.own)
    held = jnp.maximum(batch + prompts, SHORTEST)
    slots = jnp.maximum(engine.slots, 1.0)
    peaked = jnp.clip((spread + prompts) / held, SHORTEST, slots)
    taken = all_taken(slots / peaked, held / peaked)
    beside = jnp.clip(1.0 - taken / held, 0.0, 1.0)
    before = jnp.clip(1.0 - slots * taken / held, 0.0, 1.0) + taken * (1.0 - 1.0 / slots)
    return Slots(taken, beside, jnp.minimum(before, 1.0))


def all_taken(slots: Scalar, load: Scalar) -> Scalar:
    """Erlang's C of any real number of slots from one on and a `load` of so many slots [1].

    Halfway between the bounds of Janssen, van Leeuwaarden and Zwart (Operations Research 59, 2011), which close in on
    Halfin and Whitt's limit: within 2 % where a slot is busy for a tenth of the time or more, 4 % below.
    """
    busy = jnp.clip(load / slots, SHORTEST, FULL)
    slack = jnp.minimum(safe_sqrt(-2.0 * slots * (1.0 - busy + jnp.log(busy))), FARTHEST)
    density = jnp.exp(-0.5 * slack**2) / (2.0 * jnp.pi) ** 0.5
    ratio = jax.scipy.stats.norm.cdf(slack) / density + 2.0 / (3.0 * safe_sqrt(slots)) + 1.0 / (24.0 * slots * density)
    return 1.0 / (busy + (1.0 - busy) * safe_sqrt(slots) * ratio)


def held(slots: Scalar, offered: Scalar, spread: Scalar) -> Scalar:
    """E min(N, c) / E N of a gamma distributed number N and c `slots` for it [1].

    **Arguments:** `offered`: E N, `spread`: its variance [1].
    """
    slots, offered = jnp.maximum(slots, SHORTEST), jnp.maximum(offered, SHORTEST)
    over = spread / offered
    beyond = gamma_tail(slots, offered, spread)
    below = 1.0 - gamma_tail(slots, offered + over, spread + over**2)
    return jnp.minimum(below + slots / offered * beyond, 1.0)


def within(wait: Wait, slots: Slots) -> Wait:
    """What an arrival finds where slots are few: less work before it, fewer others beside it."""
    return wait._replace(
        unfinished=wait.unfinished * slots.before,
        queued=wait.queued * slots.before,
        square=wait.square * slots.before,
        beside=wait.beside * slots.beside,
        ending=wait.ending * slots.beside,
        later=wait.later * slots.beside,
        often=wait.often * slots.beside,
    )


def slot_wait(prefill: Prefill, load: Load, decode: Scalar, cost: Scalar, utilization: Scalar) -> tuple[Scalar, Scalar]:
    """How long a request waits that finds all slots taken [s], and its variance over the square of that [1].

    **Arguments:** `decode`: the time after the first token [s]; `cost`: of the engine for a request with all slots
    taken [s]. The variance is that of M/D/1 for equal requests, of M/M/1 for exponential ones.
    """
    own, after = mean_over(load.prompt, prefill.own), jnp.maximum(load.output.mean - 1.0, SHORTEST)
    outputs = jnp.maximum(load.output.square - load.output.mean**2, 0.0) * (decode / after) ** 2
    prompts = jnp.maximum(mean_over(load.prompt, prefill.own**2) - own**2, 0.0)
    service = (outputs + prompts) / jnp.maximum(own + decode, SHORTEST) ** 2
    idle = 1.0 - jnp.minimum(utilization, FULL)
    return 0.5 * (load.unevenness + service) * cost / idle, 1.0 - jnp.maximum(1.0 - service, 0.0) * idle / 1.5
