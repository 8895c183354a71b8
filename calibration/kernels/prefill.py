"""What attention over many queries asks of a core, where a GPU gives each core blocks of queries (FlashAttention).

A block multiplies a tile of queries by one of keys after the other. Between its two products stand the exponentials of
the softmax, on the special-function units; and where matrix instructions take operands from registers, the warps load
each tile of keys and values from shared memory. Both are the block's own, so that they add to its products
(FlashAttention-3, arXiv:2407.08608, section 3.2, overlaps a part of them). All functions are of one kernel.
"""

from __future__ import annotations

import jax.numpy as jnp

from calibration.kernels.asked import Shape
from calibration.kernels.hardware import Hardware
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.masks import BLOCK, Causal

SHARED_BYTES_PER_CYCLE = 128.0  # a core from shared memory: 32 banks of 4 bytes (CUDA C++ programming guide)
HALF_BLOCK = 64.0  # queries of a block of kernels that have `half_blocks`
# Queries for which a warp loads a tile once: FlashAttention-2's four warps of 32 rows load each tile four times, of
# which other warps' products hide half. The half is assumed, with the measured tables in sight (docs/accuracy.md).
ROWS_PER_LOAD = 64.0
ITEMSIZE = 2.0  # of operands in shared memory; where registers feed the matrix units, 8-bit ones are converted [byte]
# Accumulators of 128 queries and this head size fill the registers of a core; kernels for larger heads take fewer
# queries at a time and read the keys as much more often.
LARGEST_HEAD = 256.0
RESIDENT = 2.0  # blocks that share a core and hide each other's start (FlashAttention-2); one where one fills the core


def waves(x: Shape, hardware: Hardware) -> Scalar:
    """Blocks whose start the busiest core waits for, one after the other [1].

    Kernels whose matrix instructions read shared memory themselves fill it with one block (FlashAttention-3).
    """
    blocks = ceil_div(x["q_len"], as_float(BLOCK)) * x["heads"] * x["batch"]
    residents = jnp.where(hardware.reads_shared > 0.0, 1.0, RESIDENT)
    return ceil_div(blocks, hardware.device.num_cores) / residents


def block_queries(x: Shape) -> Scalar:
    """Queries of a block [1]."""
    return jnp.where(x.get("half_blocks", jnp.zeros_like(x["q_len"])) > 0.0, HALF_BLOCK, BLOCK)


def filled(x: Shape) -> Scalar:
    """Rows of the blocks there are over those of blocks of 128 queries [1]: smaller blocks leave less of the last one
    empty."""
    rows = block_queries(x)
    return ceil_div(x["q_len"], rows) * rows / (ceil_div(x["q_len"], as_float(BLOCK)) * BLOCK)


def products_time(x: Shape, compute: Scalar) -> Scalar:
    """Time of the busiest core's matrix units [s]; `compute`: in blocks of 128 queries of any head size [s]."""
    return compute * filled(x) * jnp.maximum(x["head_dim"] / LARGEST_HEAD, 1.0)


def beside_products_time(x: Shape, hardware: Hardware) -> Scalar:
    """Time that the busiest core's exponentials, and its loads from shared memory, take [s]; 0 on other than GPUs."""
    mask = Causal(x["window"])
    tiles = mask.tiles(x["q_len"], x["prefix"]) * x["batch"] * x["heads"]
    busiest = jnp.maximum(ceil_div(tiles, hardware.device.num_cores), mask.longest(x["q_len"], x["prefix"]))
    loaded = 2.0 * x["head_dim"] * ITEMSIZE / ROWS_PER_LOAD * (1.0 - hardware.reads_shared)
    cycles = 1.0 / hardware.exponentials + loaded / SHARED_BYTES_PER_CYCLE
    return filled(x) * busiest * BLOCK * BLOCK * cycles / hardware.clock * hardware.many_cores
