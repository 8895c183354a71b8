"""Attention of prefills and of decodes at once: one keeps the arithmetic units busy, the other the memory.

POD-Attention (ASPLOS 2025, arXiv 2410.18038) runs both on the same cores, so that each resource works for the sum and
the kernel takes the longest of them, instead of one kernel after the other.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import overlap


def fused_attention_cost(prefill: Cost, decode: Cost) -> Cost:
    """Both kernels as one: t = overlap(compute_p + compute_d, memory_p + memory_d) + the longer latency.

    Never faster than either alone, never slower than one after the other.

    **Returns:** `Cost` of scalars, launched once.
    """
    compute, memory = prefill.compute + decode.compute, prefill.memory + decode.memory
    latency = jnp.maximum(prefill.latency, decode.latency)
    together = overlap(compute, memory) + latency
    return Cost(
        time=jnp.clip(together, jnp.maximum(prefill.time, decode.time), prefill.time + decode.time),
        compute=compute,
        memory=memory,
        network=prefill.network + decode.network,
        latency=latency,
        flops=prefill.flops + decode.flops,
        bytes_moved=prefill.bytes_moved + decode.bytes_moved,
        launches=jnp.maximum(prefill.launches, decode.launches),
    )
