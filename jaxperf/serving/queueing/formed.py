"""What scheduling ahead costs: the step that was formed before a request came (vLLM since 0.14, `async_scheduling`).

A step is formed when the one before it starts, so that who comes while step k is computed is in step k + 2 at the
soonest. Who comes meanwhile shares steps as before, and no step is longer for it; the wait is that for step k + 1,
whose prompts came before step k began, so that it is as long as any step (not as those that arrivals meet). Of many
prompts in a step all of it is lost,

    E T = t / (1 - slow)

and where one prompt fills a step, those in it would have been waited for anyhow: a decode step t is. Between, what a
prompt takes of a step is that share of it. Nothing is lost where nothing decodes.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.serving.queueing.engine import Engine, Prefill
from jaxperf.serving.queueing.in_flight import singly


def formed_step(engine: Engine, prefill: Prefill, step: Scalar, slow: Scalar) -> Scalar:
    """What a request waits for the step that was formed before it came, where any decodes [s]; `step` is that of all
    stages, which take batches one after the other."""
    longer = jnp.where(prefill.beside > 0.0, (1.0 - singly(prefill.room)) * slow / (1.0 - slow), 0.0)
    return engine.ahead * step / engine.stages * (1.0 + longer)
