"""What an arrival waits for before its own step: a queue of prompts with gated vacations.

Arrivals wait until the step in progress ends, whatever it does, then all that fit share the next one (Fuhrmann and
Cooper 1985; Takagi, Queueing Analysis 1, 1991). With s the time a prompt adds to a step, rho = lambda s, f the rest of
a step with p prompts, v a step of decodes alone and q = lambda f / (p (1 - rho)), the share of f in the time that no
prompt accounts for,

    U      = lambda E s^2 / (2 (1 - rho)) + q f / 2 + (1 - q) v / 2 + f rho / (1 - rho)
    beside = min(lambda U / (1 + rho), half the room for others)

for Poisson arrivals; `arrivals` has what bursts add to each term.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.arrivals import after_arrival, queue_found, work_found
from jaxperf.serving.queueing.engine import FULL, SHORTEST, Engine, Load, Prefill, mean_over, served_at

LEAST_REST = 0.25  # of the unfinished work is the step in progress: a bound that keeps the rest positive, not fitted


class Wait(NamedTuple):
    """What an arrival finds: work `unfinished` before its own step [s], of which `queued` are prompts with a mean
    square of `square` [s^2] and `idle` the rest of a step [s]; `prompts` of a step that has any [1]; others `beside` it
    in its own step [1]."""

    unfinished: Scalar
    queued: Scalar
    square: Scalar
    idle: Scalar
    prompts: Scalar
    beside: Scalar


def waiting(prefill: Prefill, load: Load, engine: Engine, step: Scalar, present: Scalar) -> Wait:
    """What an arrival finds; the mean square of the queue by Takacs's formula.

    Bursts make the queue as much longer as `arrivals.work_found` says, and others come until the own step begins: while
    the step in progress goes on, which of the unfinished work is what those before in that step do not add, as many as
    come after. Two terms are heuristics, chosen by the errors in docs/steady.md: what a burst adds to `idle` (half of
    those that come in a step's rest came as Poisson's do, half as the queue did) and the `wait` that shares `others`.
    """
    ways, over, added = engine.ways, served_at(prefill, load, engine), mean_over(load.prompt, prefill.share)
    room = jnp.maximum(prefill.room, 1.0)
    floor, found = step, jnp.minimum(load.rate * added / over, FULL)
    for _ in range(2):  # a step without prompts takes `step`, one with prompts `floor`: how often each is
        some = 1.0 - jnp.exp(-load.rate * floor / ways / (1.0 - found))
        floor = some * prefill.floor + (1.0 - some) * present * step
    come = after_arrival(load.rate * floor / ways / (1.0 - found), load.variation)
    prompts = jnp.clip(come / -jnp.expm1(-come), 1.0, room)
    # Where prompts fill their steps, their share of a full step is what they take.
    filled = 1.0 + jnp.minimum(prompts / room, 1.0) * jnp.maximum(
        prefill.packed / jnp.maximum(added, SHORTEST) - 1.0, 0.0
    )
    share = prefill.share * filled / over
    mean, square, cube = (mean_over(load.prompt, share**power) for power in (1, 2, 3))
    found = jnp.minimum(load.rate * mean, FULL)
    part = prefill.floor / ways / prompts  # of what a step takes without prompts, to each of them
    spread = (square - mean**2) / jnp.maximum((mean + part) ** 2, SHORTEST**2)
    busy = jnp.clip(load.rate * (mean + part), SHORTEST, FULL)
    queue = queue_found(busy, load.variation)
    more = work_found(queue, busy, load.variation, spread)
    meets = jnp.maximum(queue / (1.0 + queue), SHORTEST)
    poisson = 0.5 * load.rate * square / (1.0 - found)
    queued = poisson * more
    squared = (2.0 * poisson**2 + load.rate * cube / (3.0 * (1.0 - found))) * more**2 * busy / meets
    often = jnp.minimum(load.rate * part / (1.0 - found) * meets / busy, 1.0)
    met = often * prefill.floor + (1.0 - often) * present * step
    come = load.rate * prefill.floor / ways / (1.0 - found)
    idle = 0.5 * met / ways + 0.5 * mean * come * (jnp.minimum(more, 1.0) + more)
    unfinished = idle + queued
    wait = jnp.where(load.variation > 1.0, meets, 1.0)  # those of a burst that wait for prompts: all the work is theirs
    others = wait * after_arrival(load.rate * unfinished / (1.0 + found) / wait, load.variation)
    rest = jnp.maximum(unfinished - others * mean, LEAST_REST * unfinished)
    beside = jnp.minimum(wait * after_arrival(load.rate * rest / wait, load.variation), 0.5 * (room - 1.0))
    return Wait(unfinished, queued, squared, idle, prompts, beside)
