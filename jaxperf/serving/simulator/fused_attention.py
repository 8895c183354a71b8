"""Steps of an engine that runs attention of prompts and of decodes as one kernel (`techniques.mixed_attention`)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float64

from jaxperf.core.cost import Cost
from jaxperf.serving.simulator.step_time import AbstractStepTime, ComposedStepTimes, Timing, Work
from jaxperf.serving.techniques.mixed_attention import fused_attention_cost


class FusedAttention(AbstractStepTime):
    """`apart` with what is saved where a step has both: t = linear + fused(prompts, decodes).

    `compute`, `memory`: how long attention keeps the arithmetic units and the device memory busy [s], as tables of the
    same shape whose tokens take nothing.
    """

    apart: ComposedStepTimes
    compute: ComposedStepTimes
    memory: ComposedStepTimes

    def __call__(self, work: Work) -> Timing:
        time, compute, memory = (table.parts(work) for table in (self.apart, self.compute, self.memory))
        prompts = _cost(time.prefill, compute.prefill, memory.prefill)
        decodes = _cost(time.decode, compute.decode, memory.decode)
        return Timing(time.linear + fused_attention_cost(prompts, decodes).time, time.alike, time.covered)


def _cost(time: Float64[Array, ""], compute: Float64[Array, ""], memory: Float64[Array, ""]) -> Cost:
    """Attention as a kernel: what neither resource explains of its time is latency."""
    nothing = 0.0 * time
    latency = time - jnp.maximum(compute, memory)
    return Cost(time, compute, memory, network=nothing, latency=latency, flops=nothing, bytes_moved=nothing)
