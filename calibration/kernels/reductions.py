"""Kernels that take sums over rows: how often they read a row, and how much of that comes from device memory.

A warp keeps a short row in registers. Blocks read a longer one again for every step that needs the sums of the last,
and find it in L2 as long as all that the cores work on at a time fits there: of large rows, or with a small L2, a
second read is from device memory like the first. All functions are of one kernel: scalars in, scalars out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from calibration.kernels.asked import Shape, does
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, next_power_of_two

# PyTorch's softmax keeps rows of at most so many elements in the registers of a warp (softmax_warp_forward); longer
# ones have a block, which reads them for the maximum, for the sum of exponentials and for the result
# (cunn_SoftMaxForward): a power of two of threads that is at least half of the row's vectors, and at most 512
# (SoftMax_getBlockSize; aten/src/ATen/native/cuda/SoftMax.cu and PersistentSoftmax.cuh, v2.1).
KEPT_COLUMNS = 1024.0
VECTOR = 16.0  # [byte]
# What a core's time in softmax goes by. Warps load single elements, but of fp16 no kernel of one is measured; blocks
# load vectors, and were worse predicted on devices left out by these than by words (16 and 17 % against 15 %).
WORD = 4.0  # [byte]
LEAST_VECTORS, MOST_VECTORS = 64.0, 1024.0
# A row is found again in L2 where what all blocks bring there until its next use, a pass over a row later, fills less
# than this share of it, and less sharply than all or nothing: on nine devices of NeuSight's a large LayerNorm moves an
# element twice below two thirds of that and three times above three halves, in an L2 of 2 MiB (P4) as of 48 MiB (L4).
FITS, SHARPNESS = 0.45, 6.0


def again(family: str, x: Shape) -> Scalar:
    """How often a row is read beyond the first time [1]; what is composed of elementary operations reads none again."""
    columns = x["columns"]
    if family == "softmax":
        return 2.0 * as_float(columns > KEPT_COLUMNS)
    return 1.0 - as_float(does(x, "composed"))


def vector(family: str, x: Shape, size: Scalar) -> Scalar:
    """Elements that a thread loads at a time [1]; `size`: of an element [byte]."""
    return WORD / size if family == "softmax" else x["vector"]


def bytes_again(family: str, x: Shape, size: Scalar, device: Device) -> Scalar:
    """What is read from device memory beyond the first time [byte].

    **Arguments:** `x`: the shape, and `resident`: threads that a core holds; of a norm, `row_threads`: those that share
    a row; `size`: of an element [byte].
    """
    columns, more = x["columns"], again(family, x)
    vectors = jnp.clip(columns * size / VECTOR, LEAST_VECTORS, MOST_VECTORS)
    threads = next_power_of_two(0.5 * vectors) if family == "softmax" else x["row_threads"]
    rows = jnp.minimum(x["rows"], device.num_cores * x["resident_threads"] / threads)
    brought = rows * columns * size * 2.0 / (1.0 + more)  # each row is read and written once in all its passes
    missed = jax.nn.sigmoid(SHARPNESS * jnp.log(brought / (FITS * device.l2_capacity)))
    return x["rows"] * columns * size * more * missed


def bytes_found(family: str, x: Shape, size: Scalar, device: Device) -> Scalar:
    """What is read again, and found in L2 [byte]."""
    return x["rows"] * x["columns"] * size * again(family, x) - bytes_again(family, x, size, device)
