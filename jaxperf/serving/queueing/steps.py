"""The closed form of a step as the simulator's step time: the same engine request by request."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import ceil_div, floor_div
from jaxperf.serving.queueing.law import StepLaw, decode_attention, linear_time
from jaxperf.serving.simulator.step_time import AbstractStepTime, Timing, Work

# Tokens of mean context that take the same time, that of their middle, so that several steps can be run at once.
BUCKET = 64.0


class LawStepTime(AbstractStepTime):
    """t = linear(T) + the attention of the decodes at their mean context + that of the prompts (see `law`)."""

    law: StepLaw

    def __call__(self, work: Work) -> Timing:
        tokens, context = work.tokens.astype(jnp.float64), work.context.astype(jnp.float64)
        prompt = (work.tokens > 0) & ~work.decoding
        decodes = jnp.sum(work.decoding, dtype=jnp.int32).astype(jnp.float64)
        mean = floor_div(jnp.sum(jnp.where(work.decoding, context, 0.0)), jnp.maximum(decodes, 1.0))
        bucket = ceil_div(mean, jnp.float64(BUCKET)) * BUCKET
        start, each, pair, prefix, pairs = self.law.prefill
        chunks = tokens * (each + pair * tokens) + context * (prefix + pairs * tokens)
        prompts = jnp.where(jnp.any(prompt), start + jnp.sum(jnp.where(prompt, chunks, 0.0)), 0.0)
        middle = bucket - 0.5 * (BUCKET - 1.0)
        decode = jnp.where(decodes > 0.0, decode_attention(self.law, decodes, middle), 0.0)
        return Timing(
            seconds=linear_time(self.law, jnp.sum(tokens)) + decode + prompts,
            alike=(bucket - mean + 1.0).astype(jnp.int32),
            covered=jnp.bool_(True),
        )
