"""How long a matrix product keeps the busiest core's vector units: which output tile a library's kernels take.

A tile of a rows and b columns takes (a + b) / (a b) numbers from shared memory for each multiplication, and pads what
is smaller. A library has a few such kernels, and divides a reduction where tiles are fewer than cores.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div

# Tiles of the fp32 kernels of cuBLAS and cuDNN, after their names; of those of 32 rows or columns they make less use
# than they would gain by them.
TILES = ((128.0, 128.0), (128.0, 64.0), (64.0, 128.0), (64.0, 64.0))
# How much slower a number from shared memory makes a multiplication: large products of A100 and V100 run in tiles of
# 128 x 64 at 0.91 to 0.97, of 64 x 64 at 0.9, and of 128 x 32 at 0.85 of their rate in those of 128 x 128.
LOADING = 8.0


def busiest_flops(device: Device, m: Scalar, n: Scalar, k: Scalar, products: Scalar, parts: Scalar) -> Scalar:
    """FLOP at full rate of the busiest core in so many products of one shape, with the best tile.

    **Arguments:** `m`, `n`, `k`: rows, columns and depth [1]; `parts`: into how many a reduction may be divided [1].
    """
    loads = []
    for high, wide in TILES:
        tiles = ceil_div(m, as_float(high)) * ceil_div(n, as_float(wide)) * products
        split = jnp.clip(floor_div(device.num_cores, tiles), 1.0, parts)
        waves = ceil_div(tiles * split, device.num_cores)
        loads.append(waves * 2.0 * high * wide * ceil_div(k, split) * _slower(high, wide))
    return jnp.min(jnp.stack(loads), axis=0)


def _slower(high: float, wide: float) -> float:
    """Time of a multiplication in a tile over that in the largest [1]."""
    largest = TILES[0]
    return (1.0 + LOADING * (1.0 / high + 1.0 / wide)) / (1.0 + LOADING * (1.0 / largest[0] + 1.0 / largest[1]))
