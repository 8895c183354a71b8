"""An engine with all slots taken: what a request costs it, so the rate that it can serve."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.engine import SHORTEST, Discipline, Engine, Load, decode_step
from jaxperf.serving.queueing.in_flight import overlapping
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.line import nobody

ROUNDS = 6  # of the overlap


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
