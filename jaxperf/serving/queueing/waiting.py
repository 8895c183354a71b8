"""What an arrival waits for before its own step: a queue of prompts with gated vacations.

Arrivals wait until the step in progress ends, whatever it does, then all that fit share the next one (Fuhrmann and
Cooper 1985; Takagi, Queueing Analysis 1, 1991). With s the time a prompt adds to a step, rho = lambda s, f the rest of
a step with p prompts, v a step of decodes alone and q = lambda f / (p (1 - rho)), the share of f in the time that no
prompt accounts for,

    U      = lambda E s^2 / (2 (1 - rho)) + q f / 2 + (1 - q) v / 2 + f rho / (1 - rho)
    shared = what those add to the last own step that come until it begins, as far as it has room
    further = the step after it, of the p - 1 of p prompts in a step that are behind another where it has room for one

for Poisson arrivals; `arrivals` has what bursts add to each term. s and f are the line through the time of a step where
requests meet it, and of several steps where a queue is longer than a step has room for (`line`).

A pipeline of P stages in which prompts go beside decodes takes a prompt of its queue as soon as the first stage is
free, s / P after the one before, and deals those that come in a step to the batches that begin meanwhile: no queue and
no step grows by more than its first stage is busy, 1 / (1 - rho / P). Where prompts go first, all decodes wait behind
them in one batch, and few begin meanwhile.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.arrivals import after_arrival, cluster, meets, work_found
from jaxperf.serving.queueing.engine import (
    FEWEST,
    FULL,
    SHORTEST,
    Engine,
    Load,
    Prefill,
    mean_over,
)
from jaxperf.serving.queueing.in_flight import entering, overlap_at, served_at
from jaxperf.serving.queueing.line import Company

ITERATIONS = 4
LEAST_REST = 0.25  # of the unfinished work is the step in progress: a bound that keeps the rest positive, not fitted


class Wait(NamedTuple):
    """What an arrival finds: the `company` of its prompt, work `unfinished` before its own step [s], of which
    `queued` are prompts with a mean square of `square` [s^2] and `idle` the rest of a step [s]; the share of the time
    that prompts keep the way into the engine, `entered`, and `prompts` of a step that has any [1]; `uneven`: the
    squared coefficient of variation of what one takes of the steps, and `finds`: the prompts that those find who find
    any, over what they are where arrivals are Poisson's [1]; others `beside` it in its last step [1], and what they add
    to that of each class [K] with the `further` step, `ending`: of it `later` by those that come in its own steps
    before [s], of which there are any so `often` [1], the rest by those that come while it waits."""

    company: Company
    unfinished: Scalar
    queued: Scalar
    square: Scalar
    idle: Scalar
    entered: Scalar
    prompts: Scalar
    uneven: Scalar
    finds: Scalar
    beside: Scalar
    ending: Float[Array, " K"]
    later: Float[Array, " K"]
    often: Float[Array, " K"]

    @property
    def shared(self) -> Float[Array, " K"]:
        """What those add to the last step that come while a request waits [s]."""
        return self.ending - self.later


class Growing(NamedTuple):
    """What a queue does to the steps that it waits for: `by` how much longer a prompt takes where there always is a
    queue, its own decodes beside it [1], and the `life` of a decode, after which they are all there [s]."""

    by: Scalar
    life: Scalar

    def after(self, work: Scalar, found: Scalar) -> Scalar:
        """Time of a prompt over what it takes beside the mean number of decodes, in queues of so much `work` [s] where
        prompts take the share `found` of the time: such a one has lasted an exponential time of work / (1 - found)."""
        lasts = work / (1.0 - found)
        return 1.0 + self.by * lasts / (lasts + self.life)


def waiting(prefill: Prefill, load: Load, engine: Engine, step: Scalar, present: Scalar, growing: Growing) -> Wait:
    """What an arrival finds; the mean square of the queue by Takacs's formula.

    Where a prompt fills a step, a queue lets requests begin to decode as fast as prompts are computed, faster than they
    come: the longer it has lasted, the more decodes are in its steps and the less room is for prompts (`Growing`).

    Bursts make the queue as much longer as `arrivals.work_found` says, even arrivals as much shorter, and others come
    until the own step begins: while the step in progress goes on, which of the unfinished work is what those before in
    that step do not add, as many as come after. Two terms are heuristics, chosen by the errors in docs/steady.md: what
    a burst adds to `idle` (half of those that come in a step's rest came as Poisson's do, half as the queue did) and
    the `wait` that shares `others`.
    """
    ways, over, added = engine.ways, served_at(prefill, load, engine), mean_over(load.prompt, prefill.share)
    dealt = entering(prefill.room, load, engine)
    stages = jnp.where(prefill.beside > 0.0, dealt, 1.0)  # that a queue enters one behind the other
    apart = overlap_at(prefill, load, dataclasses.replace(engine, stages=engine.stages / stages))
    room = jnp.maximum(prefill.room, 1.0)
    share, floor = prefill.share / over, prefill.floor / ways
    least = mean_over(load.prompt, prefill.own) / ways
    others = prompts_together(load.rate, prefill.floor / ways, added / over, present * step / ways, least) - 1.0
    behind = after_arrival(others, load.variation)
    prompts = jnp.clip(1.0 + behind, 1.0, room)
    # Where one prompt fills a step, all steps in a queue are full, and nothing is beside its share of them.
    fills = prefill.room <= 1.0
    share = jnp.where(fills, prefill.filling / over, share)
    floor = jnp.where(fills, 0.0, floor)
    inside = load.prompt.inside(share)
    moments = share, share**2 + inside, share**3 + 3.0 * share * inside
    mean, square, cube = (mean_over(load.prompt, each) for each in moments)
    found = jnp.minimum(load.rate * mean, FULL)
    entered = found * over / jnp.maximum(over, stages)
    part = floor / prompts  # of what a step takes without prompts, to each of them
    spread = (square - mean**2) / jnp.maximum((mean + part) ** 2, SHORTEST**2)
    busy = jnp.clip(load.rate * (mean + part), FEWEST, FULL)
    more = work_found(busy, load.variation, spread)
    chance = jnp.maximum(meets(busy, load.variation, spread), SHORTEST)
    finds = more * busy / chance
    growing = growing._replace(by=jnp.where(fills, growing.by, 0.0))

    def queue_of(longer: Scalar) -> tuple[Scalar, Scalar]:
        """(mean, mean square) of the queue where prompts take so much longer [s, s^2]."""
        kept = 1.0 - jnp.minimum(entered * longer, FULL)
        poisson = 0.5 * load.rate * square * longer**2 / kept
        squared = 2.0 * poisson**2 + load.rate * cube * longer**3 / (3.0 * kept)
        return poisson * more, squared * more * finds

    queued, squared = queue_of(jnp.ones_like(found))
    long = growing.after(squared / jnp.maximum(queued, SHORTEST), entered)
    queued, squared = queue_of(growing.after(queued, entered))[0], queue_of(long)[1]
    often = jnp.minimum(load.rate * part / (1.0 - found) * chance / busy, 1.0)
    met = often * floor + (1.0 - often) * present * step / ways
    come = load.rate * floor / (1.0 - found)
    idle = 0.5 * met + 0.5 * mean * come * (jnp.minimum(more, 1.0) + more)
    unfinished = idle + queued
    # Those of a burst that wait for prompts: all the work is theirs.
    wait = jnp.where(load.unevenness > 1.0, chance, 1.0)
    others = wait * after_arrival(load.rate * unfinished / (1.0 + entered) / wait, load.variation)
    rest = jnp.maximum(unfinished - others * mean * (1.0 - 1.0 / room), LEAST_REST * unfinished)
    last, each = prefill.last, prefill.last.each / apart
    waited = wait * after_arrival(load.rate * rest / wait, load.variation)
    come = load.rate * last.after * clustered(load.rate * mean_over(load.prompt, last.after), load.variation)
    beside = sharing(waited + come, last.left)
    others, later = mean_over(load.prompt, beside), each * sharing(come, last.left)
    ending = each * beside + (1.0 - 1.0 / prompts) * last.further
    bursts = 1.0 + 2.0 * cluster(0.5 * behind, load.variation)
    company = Company(behind, others, bursts / (1.0 - entered**2))
    return Wait(
        company,
        unfinished,
        queued,
        squared,
        idle,
        entered,
        prompts,
        spread,
        finds,
        others,
        ending,
        later,
        -jnp.expm1(-come),
    )


def prompts_together(
    rate: Scalar, floor: Scalar, share: Scalar, vacation: Scalar, least: Scalar | float = 0.0
) -> Scalar:
    """Prompts of a step that has any, if it has room for all that wait [1].

    A step of k takes `floor` + k `share` [s], so that none comes in it with the probability E e^(-rate (f + k s)), of a
    geometric k. Then steps without prompts, of the time `vacation` [s], go on until one comes. As many rows of steps
    with prompts begin as end:

        1 / k = (1 - rho) a / (rate (E e^(-rate (f + k s)) + f a)),     a = (1 - e^(-rate v)) / v,  rho = rate s

    No step takes less than `least` [s], which is above the line at few prompts where these fill no step.
    """
    vacation = jnp.maximum(vacation, SHORTEST)
    begin = -jnp.expm1(-rate * vacation) / vacation
    found = jnp.minimum(rate * share, FULL)
    each = rate / ((1.0 - found) * begin)
    none, number = jnp.exp(-rate * share), jnp.ones_like(rate)
    shortest = jnp.maximum(floor, least)
    flat = (shortest - floor) / jnp.maximum(share, SHORTEST)  # prompts up to which the step is the shortest
    empty = jnp.exp(-rate * shortest)
    for old in (0.0, *(0.5,) * (ITERATIONS - 1)):  # all of the first step, as none and one are far apart
        more = jnp.exp(flat * jnp.log(jnp.maximum(1.0 - 1.0 / number, SHORTEST)))
        ended = empty * (1.0 - more * (1.0 - none / (number - (number - 1.0) * none)))
        wanted = jnp.maximum(each * (ended + floor * begin), 1.0)
        number = old * number + (1.0 - old) * wanted
    return number


def clustered(expected: Scalar, variation: Scalar | None) -> Scalar:
    """`after_arrival` over what comes at random [1]; Poisson's 1. Taken at the mean for all classes."""
    return after_arrival(expected, variation) / jnp.maximum(expected, SHORTEST)


def sharing(come: Array, left: Array) -> Array:
    """Of the prompts that `come` in the mean before a step begins, those that it has room `left` for [1]: left (1 -
    e^(-come / max(left, 1))), which is Poisson's E min(left, N) where less than one fits, and all where many do."""
    return -left * jnp.expm1(-come / jnp.maximum(left, 1.0))
