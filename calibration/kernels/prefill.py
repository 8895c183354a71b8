"""What attention over many queries asks of a core, where a GPU gives each core blocks of queries (FlashAttention).

A block multiplies a tile of queries by one of keys after the other. Between its two products stand the exponentials of
the softmax, on the special-function units; and where matrix instructions take operands from registers, the warps load
each tile of keys and values from shared memory. Both are the block's own, so that they add to its products
(FlashAttention-3, arXiv:2407.08608, section 3.2, overlaps a part of them). Where products leave their results in a
memory of their own, a block has two tiles, and the exponentials of one are computed while the other is multiplied (as
in CUTLASS's example 77 for Blackwell; recalled). All functions are of one kernel.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from calibration.kernels.asked import Shape
from calibration.kernels.hardware import Hardware
from calibration.kernels.latent_decoding import ROPE, SHARED_BYTES_PER_CYCLE
from calibration.kernels.latents import NOPE, VALUE
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.masks import BLOCK, Causal

HALF_BLOCK = 64.0  # queries of a block of kernels that have `half_blocks`
# Queries for which a warp loads a tile once: FlashAttention-2's four warps of 32 rows load each tile four times, of
# which other warps' products hide half. The half is assumed, with the measured tables in sight (docs/accuracy.md).
ROWS_PER_LOAD = 64.0
ITEMSIZE = 2.0  # of operands in shared memory; where registers feed the matrix units, 8-bit ones are converted [byte]
# Accumulators of 128 queries and this head size fill the registers of a core; kernels for larger heads take fewer
# queries at a time and read the keys as much more often.
LARGEST_HEAD = 256.0
RESIDENT = 2.0  # blocks that share a core and hide each other's start (FlashAttention-2); one where one fills the core


class Prefill(eqx.Module):
    """Sequences, heads and new tokens of a kernel; widths of a query or key and of a value [elements]; `half_blocks`: 1
    where it takes 64 queries a block, else 0."""

    batch: Scalar
    heads: Scalar
    queries: Scalar
    prefix: Scalar
    window: Scalar
    key_width: Scalar
    value_width: Scalar
    half_blocks: Scalar


def prefill_of(family: str, x: Shape) -> Prefill:
    """What the columns of a family's tables say of it."""
    none = jnp.zeros_like(x["q_len"])
    if family == "mla_prefill":
        prefix, window = x["kv_len"] - x["q_len"], none
        widths = as_float(NOPE + ROPE), as_float(VALUE)
    else:
        prefix, window = x["prefix"], x["window"]
        widths = x["head_dim"], x["head_dim"]
    return Prefill(x["batch"], x["heads"], x["q_len"], prefix, window, *widths, x.get("half_blocks", none))


def waves(prefill: Prefill, hardware: Hardware) -> Scalar:
    """Blocks whose start the busiest core waits for, one after the other [1].

    Kernels whose matrix instructions read shared memory themselves fill it with one block (FlashAttention-3).
    """
    blocks = ceil_div(prefill.queries, as_float(BLOCK)) * prefill.heads * prefill.batch
    residents = jnp.where(hardware.reads_shared > 0.0, 1.0, RESIDENT)
    return ceil_div(blocks, hardware.device.num_cores) / residents


def products_time(prefill: Prefill, compute: Scalar) -> Scalar:
    """Time of the busiest core's matrix units [s]; `compute`: in blocks of 128 queries of any head size [s]."""
    return compute * _filled(prefill) * jnp.maximum(prefill.value_width / LARGEST_HEAD, 1.0)


def beside_products_time(prefill: Prefill, hardware: Hardware) -> Scalar:
    """Time that the busiest core's exponentials, and its loads from shared memory, take [s]; 0 on other than GPUs."""
    mask = Causal(prefill.window)
    tiles = mask.tiles(prefill.queries, prefill.prefix) * prefill.batch * prefill.heads
    longest = mask.longest(prefill.queries, prefill.prefix)
    scores = jnp.maximum(ceil_div(tiles, hardware.device.num_cores), longest) * BLOCK * BLOCK * _filled(prefill)
    loaded = (prefill.key_width + prefill.value_width) * ITEMSIZE / ROWS_PER_LOAD * (1.0 - hardware.reads_shared)
    cycles = 1.0 / hardware.exponentials + loaded / SHARED_BYTES_PER_CYCLE
    return scores * cycles / hardware.clock * hardware.many_cores


def block_queries(half_blocks: Scalar) -> Scalar:
    """Queries of a block [1]."""
    return jnp.where(half_blocks > 0.0, HALF_BLOCK, BLOCK)


def _filled(prefill: Prefill) -> Scalar:
    """Rows of the blocks there are over those of blocks of 128 queries [1]: smaller blocks leave less of the last one
    empty."""
    rows = block_queries(prefill.half_blocks)
    return ceil_div(prefill.queries, rows) * rows / (ceil_div(prefill.queries, as_float(BLOCK)) * BLOCK)
