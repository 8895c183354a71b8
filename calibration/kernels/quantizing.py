"""Kernels that write a matrix [m, k] in fewer bits: what they move, and what the busiest core waits for.

A block takes its elements step by step, and the next step's loads wait for the last; blocks that fit a core at a time
wait together:

    t = ceil(blocks / (cores resident / threads)) (1 + steps) wait

All functions are of one kernel: scalars in, scalars out. `calibration.datasets.quantizers` says whose kernels do what.
"""

from __future__ import annotations

import jax.numpy as jnp

from calibration.kernels import products
from calibration.kernels.asked import Shape, does, way
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import Hardware
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div

# Bytes an element reads and writes beyond its own where PyTorch quantizes by elementary operations, with fp32 between
# them: its quotient written (4), that bounded (4, 4), narrowed (4, 1), and the narrow copied (1, 1).
READ_APART, WRITTEN_APART = 9.0, 9.0
# Of those, what lies between writing and reading an element again, so that L2 has to hold it: two matrices of fp32.
HELD_APART = 8.0
OPERATIONS = 3.0  # of an element
# Threads of a block and the elements that each loads at a time: of vLLM's, of TensorRT-LLM's, and of its search for a
# scale, which has a set number of blocks.
ROW_THREADS, ROW_VECTOR = 256.0, 16.0
THREADS, VECTOR = 256.0, 8.0
SCALE_THREADS, SCALE_BLOCKS = 1024.0, 1024.0
# Cycles of a step, the start of a block another: 550 and 710 are the slopes along k of one row on an H100 and an L40S,
# 1,160 and 1,280 what a block of a short row takes. It is what a product waits for that copies by its threads.
WAIT = products.WAIT
# Of the search, which loads one number at a time: the latency of memory (700 on Hopper), and of L2 where the matrix
# fits there (325 on Hopper, 500 on the L40S).
FROM_MEMORY, FROM_L2 = 700.0, 400.0
# Elements that a block of PyTorch's compiler goes through at a time where it reduces rows (MAX_R0_BLOCK in Inductor's
# triton_heuristics.py; half of it on Blackwell in a later one). No source says that rows are reduced here, in two
# passes and with a core for each block: the scale is given, and a pass over elements would do. It is read off vLLM
# 0.24's 8-bit layers on H100, H200 and L40S alike, where a row more takes 1,800 cycles, those of one block alone.
COMPILED_STEP = 2048.0
# What a core moves in a cycle before a product where L2 holds it: 12.9 bytes on an H100, 10.6 on an L40S, by PyTorch's
# elementary operations.
BYTES_PER_CYCLE = 12.0
FALL = 4.0  # how steeply operands fall out of L2: the power of L2 over them
WARP, WARPS_FROM = 32.0, 16.0  # rows for each core from which SGLang's kernel gives a row a warp, not a block


def passed(x: Shape, wide: Scalar, narrow: Scalar) -> tuple[Scalar, Scalar]:
    """Bytes read and written an element; `wide`, `narrow`: of one before and after [byte]."""
    apart, alone = way(x, "composed"), way(x, "scale_alone")
    return wide + apart * READ_APART, (narrow + apart * WRITTEN_APART) * (1.0 - alone)


def held(x: Shape, moved: Scalar) -> Scalar:
    """What L2 has to hold for an element to be found there again [byte], of the bytes that are moved."""
    return jnp.where(does(x, "composed"), HELD_APART * x["m"] * x["k"], moved)


def waiting(x: Shape, hardware: Hardware, wide: Scalar) -> Scalar:
    """Time for the busiest core to go through the steps of its blocks [s]; 0 where elementary operations quantize.

    **Arguments:** `x`: the shape, its ways, and `resident`: threads that a core holds; `wide`: of an element [byte].
    """
    elements = x["m"] * x["k"]
    rows, alone = does(x, "by_rows"), does(x, "scale_alone")
    threads = jnp.where(alone, SCALE_THREADS, jnp.where(rows, ROW_THREADS, THREADS))
    at_once = threads * jnp.where(alone, 1.0, jnp.where(rows, ROW_VECTOR, VECTOR))
    blocks = jnp.where(rows, x["m"], ceil_div(elements, at_once))
    blocks = jnp.where(alone, jnp.minimum(blocks, SCALE_BLOCKS), blocks)
    steps = ceil_div(elements / blocks, at_once)
    latency = jnp.where(elements * wide > hardware.device.l2_capacity, FROM_MEMORY, FROM_L2)
    wait = jnp.where(alone, latency, WAIT)
    together = hardware.device.num_cores * jnp.maximum(floor_div(x["resident_threads"], threads), 1.0)
    return (1.0 - way(x, "composed")) * ceil_div(blocks, together) * (1.0 + steps) * wait / hardware.clock


def before(x: Shape, hardware: Hardware, f: Formats) -> Scalar:
    """Time of the kernels that write a product's left-hand side in the weights' format before it [s]; 0 where none do.

    They move `x["quantizing"]` bytes an element, as fast as cores take them from L2, or as memory gives what L2 does
    not hold: what elementary operations leave each other, else what lies between two uses of the same operands, of
    which a collector has `x["inputs"]`. A row of a warp (`x["row_a_warp"]`: 1) is read a second time, from memory
    where the rows in flight exceed L2.
    """
    device, many, rows = hardware.device, as_float(hardware.many_cores), products.rows(x)
    elements, wide, narrow = rows * x["k"], f.activations.itemsize, f.weights.itemsize
    product = x["n"] * x["k"] * narrow + rows * x["n"] * wide
    cycle = way(x, "inputs", 1.0) * (elements * (wide + narrow) + product)
    moved = elements * way(x, "quantizing")
    missed = moved * _fallen(device, jnp.where(does(x, "composed"), HELD_APART * elements, cycle), many)
    flying = device.num_cores * floor_div(x["resident_threads"], as_float(WARP))
    again = as_float(does(x, "row_a_warp") & (rows >= WARPS_FROM * device.num_cores))
    missed += again * elements * wide * _fallen(device, jnp.minimum(rows, flying) * x["k"] * wide, many)
    cores = many * moved / (BYTES_PER_CYCLE * device.num_cores * hardware.clock)
    return jnp.maximum(jnp.maximum(cores, missed / device.memory_bandwidth), many * _compiled(x, hardware))


def _fallen(device: Device, size: Scalar, many_cores: Scalar) -> Scalar:
    """Share of bytes that come from memory again where so many have to stay in L2 [1]."""
    return 1.0 / (1.0 + jnp.where(many_cores > 0.0, (device.l2_capacity / size) ** FALL, 0.0))


def _compiled(x: Shape, hardware: Hardware) -> Scalar:
    """For the busiest core to quantize rows [s], where PyTorch's compiler made one kernel of the elementary operations
    (`x["compiled"]`: 1), else 0: a row a block, once for its maximum and once to be written."""
    rounds = ceil_div(products.rows(x), hardware.device.num_cores)
    steps = 2.0 * ceil_div(x["k"], as_float(COMPILED_STEP))
    return way(x, "compiled") * rounds * (1.0 + steps) * WAIT / hardware.clock
