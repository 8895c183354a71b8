"""What a block of attention over many queries does beside its products, on a GPU.

Between its two products stand the exponentials of the softmax, on the special-function units; and where matrix
instructions take operands from registers, the warps load each tile of keys and values from shared memory. Both are the
block's own, so that they add to its products (FlashAttention-3, arXiv:2407.08608, section 3.2, overlaps a part of
them). Where products leave their results in a memory of their own, a block has two tiles, and the exponentials of one
are computed while the other is multiplied (as in CUTLASS's example 77 for Blackwell; recalled).

Some kernels turn 8-bit keys and values into 16 bits on the way, add their products up a second time, or merge what
several blocks left of one query (`calibration.datasets.prefill_kernels` says whose). All functions are of one kernel.
"""

from __future__ import annotations

import jax.numpy as jnp

from calibration.kernels.hardware import Hardware
from calibration.kernels.latent_decoding import SHARED_BYTES_PER_CYCLE
from calibration.kernels.prefill import ITEMSIZE, Prefill
from jaxperf.core.numerics import Scalar

# Queries for which a warp loads a tile once: FlashAttention-2's four warps of 32 rows load each tile four times, of
# which other warps' products hide half. The half is assumed, with the measured tables in sight (docs/kernel-laws.md).
ROWS_PER_LOAD = 64.0
TRANSPOSING = 2.0  # a value of 8 bits is read from shared memory and written there [byte]
# A tile that is asked for once the last one is multiplied: cycles until it arrives, and bytes of it in a cycle. Round
# figures of SGLang's kernel in Triton, the same for heads of 64 and 192 on the L40S and of 512 on the H100.
LATENCY, RATE = 3000.0, 25.0
NUMBERS = 65536.0  # of 32 bits that the registers of a core hold (CUDA C++ programming guide)
# Instructions for each number that is added up a second time, and where both sums exceed the registers, by vLLM's rows
# on Hopper; threads whose instruction a core issues in a cycle.
ADDED, SPILLED, ISSUED = 5.0, 18.0, 128.0


def beside_products_time(prefill: Prefill, hardware: Hardware) -> Scalar:
    """Time of the busiest core for all of this [s]; 0 on other than GPUs."""
    cores = hardware.device.num_cores
    scores = prefill.busiest(cores) * prefill.rows
    loaded = (prefill.key_width + prefill.value_width) * ITEMSIZE / ROWS_PER_LOAD * (1.0 - hardware.reads_shared)
    turned = prefill.transposed * prefill.busiest(cores) * prefill.value_width * TRANSPOSING / SHARED_BYTES_PER_CYCLE
    cycles = scores * (1.0 / hardware.exponentials + loaded / SHARED_BYTES_PER_CYCLE)
    cycles += turned + converting(prefill, cores) + adding(prefill, cores)
    cycles += merging(prefill, cores) + waiting(prefill, cores)
    return cycles / hardware.clock * hardware.many_cores


def converting(prefill: Prefill, cores: Scalar) -> Scalar:
    """Of the busiest core, to turn keys and values of 8 bits into 16 [cycle]; what a small block's first tile takes
    beyond that nothing hides."""
    return (prefill.converting * prefill.busiest(cores) + prefill.first * prefill.first_keys) * prefill.stored


def adding(prefill: Prefill, cores: Scalar) -> Scalar:
    """Of the busiest core, to add its products with values up a second time, tile by tile [cycle]."""
    full = prefill.rows * (2.0 * prefill.value_width + prefill.keys) >= NUMBERS
    each = prefill.rows * prefill.value_width * jnp.where(full, SPILLED, ADDED) / ISSUED
    return prefill.twice * prefill.busiest(cores) / prefill.keys * each


def merging(prefill: Prefill, cores: Scalar) -> Scalar:
    """Of each core, for the kernel that merges what the blocks of one query left [cycle]."""
    found = prefill.batch * prefill.asked * prefill.heads * prefill.group
    return prefill.merging * prefill.merged(cores) * found / cores


def waiting(prefill: Prefill, cores: Scalar) -> Scalar:
    """Waits of the busiest core for its tiles, which blocks on one core hide from each other, and for the masks of
    those that it passes over [cycle]."""
    spilled = prefill.spilled * prefill.too_large
    wait = prefill.serial * (LATENCY + prefill.keys * prefill.stored * prefill.itemsize / RATE)
    waits = jnp.maximum(prefill.shared(cores) * (wait / prefill.resident + spilled), wait * prefill.longest())
    passed = prefill.looked_at * prefill.hidden() * prefill.heads * prefill.batch / cores
    return (waits + passed) / prefill.keys
