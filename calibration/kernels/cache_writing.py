"""What runs before attention, and is timed with it: kernels that write new keys and values to the cache, some of them
the queries anew as well (`prefill_kernels` and `decode_kernels` of `calibration.datasets` say whose).

They stream, or issue what addresses take: vLLM's gives every token a block of a thread an element, 512 at most, each of
which divides by the size of a page (`reshape_and_cache_flash`).
"""

from __future__ import annotations

import jax.numpy as jnp

from calibration.kernels.asked import Shape, does, way
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import Hardware
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar

ITEMSIZE = 2.0  # of queries, keys and values before [byte]
# Threads of a block at most, and cycles that a core takes for each: 2.9 and 3.1 on an A100 and an H100, by how vLLM's
# times grow from one key head to four beside SGLang's; to 8 bits told by Hopper alone.
THREADS, CYCLES, NARROW_CYCLES = 512.0, 3.0, 4.3
# Share of L2 that still holds the operands, which are the same each time a kernel is measured, and what a core takes
# from there. Both by held-out generations.
HELD, BYTES_PER_CYCLE = 0.5, 20.0


def writing(x: Shape, hardware: Hardware, formats: Formats, operands: NumberFormat) -> Scalar:
    """Time of those kernels [s]; 0 where there are none. `operands`: what the attention multiplies."""
    tokens, head, cores = x["batch"] * x["q_len"], x["head_dim"], hardware.device.num_cores
    stored = formats.cache.itemsize
    threads = way(x, "by_tokens") * tokens * jnp.minimum(x["kv_heads"] * head, THREADS)
    issued = threads * jnp.where(stored < ITEMSIZE, NARROW_CYCLES, CYCLES)
    queries = way(x, "rewriting") * x["heads"] * (ITEMSIZE + operands.operand_itemsize)
    moved = tokens * head * (2.0 * x["kv_heads"] * (ITEMSIZE + stored) + queries)
    missed = jnp.maximum(moved - HELD * hardware.device.l2_capacity, 0.0) / hardware.device.memory_bandwidth
    cycles = jnp.maximum(issued, moved / BYTES_PER_CYCLE) / cores
    return jnp.where(does(x, "writing"), jnp.maximum(cycles / hardware.clock, missed), 0.0)
