"""How many of the batches that a pipeline, or replicas of an engine's attention, have in flight work on prompts at a
time."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.engine import SHORTEST, Engine, Load, Prefill, mean_over


def overlapping(busy: Scalar, room: Scalar, load: Load, engine: Engine) -> Scalar:
    """Prompts that the batches in flight work on at a time while they work on any, of `busy` that would keep one batch
    each busy [1].

    Batches wait for each other, so one with a prompt lets the others wait unless they have prompts too. Replicas have
    queues of their own; of the batches in a pipeline the first that is formed takes all prompts there is room for.
    Of Poisson's b prompts that find a batch of their own b / (1 - e^-b) are there where any is. Where no request makes
    a second token, no decodes take a batch's place: a pipeline takes prompts that fill a step up as fast as its first
    stage is free (`singly`).
    """
    replicas = 1.0 - 1.0 / engine.replicas
    stages = (1.0 - 1.0 / engine.stages) / engine.replicas / jnp.maximum(room, 1.0)
    beside = jnp.minimum(_together(busy * (replicas + stages)), engine.ways)
    freely = engine.stages * jnp.minimum(_together(busy * replicas / engine.stages), engine.replicas)
    return beside + (1.0 - _decodes(load)) * singly(room) * (freely - beside)


def singly(room: Scalar) -> Scalar:
    """Share of a step that a prompt takes [1]: those that share one gather in the batch that begins first, for which
    the others wait. Between a prompt a step, which is exact, and very many it is on the slow side of the simulator."""
    return 1.0 / jnp.maximum(room, 1.0)


def entering(room: Scalar, load: Load, engine: Engine) -> Scalar:
    """Batches of a pipeline that a queue is dealt to while one goes through [1]: all, but where nothing is beside
    prompts that share a step."""
    return 1.0 + (engine.stages - 1.0) * (1.0 - (1.0 - _decodes(load)) * (1.0 - singly(room)))


def _decodes(load: Load) -> Scalar:
    """0 where no request makes a second token, else 1 [1]."""
    return jnp.clip(load.output.mean - 1.0, 0.0, 1.0)


def _together(apart: Scalar) -> Scalar:
    """Of Poisson's number with the mean `apart`, how many there are where there is any [1]."""
    apart = jnp.maximum(apart, SHORTEST)
    return apart / -jnp.expm1(-apart)


def overlap_at(prefill: Prefill, load: Load, engine: Engine) -> Scalar:
    """`overlapping` at a load [1]."""
    return overlapping(load.rate * mean_over(load.prompt, prefill.own), prefill.room, load, engine)


def served_at(prefill: Prefill, load: Load, engine: Engine) -> Scalar:
    """Prompts of a queue that go on at a time: those that overlap, and of a prompt that fills several steps the next
    one goes to another batch of the pipeline [1]."""
    next_ones = (engine.stages - 1.0) * jnp.maximum(1.0 - prefill.room, 0.0)
    return jnp.minimum(overlap_at(prefill, load, engine) + next_ones, engine.ways)
