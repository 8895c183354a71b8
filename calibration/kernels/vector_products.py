"""How long a matrix product keeps the busiest core's vector units: which output tile a library's kernels take.

A tile of a rows and b columns takes (a + b) / (a b) numbers from shared memory for each multiplication, and pads what
is smaller. A library has a few such kernels, and divides a reduction where tiles are fewer than cores. Products in a
batch have fewer kernels than single ones: on some architectures one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import jax.numpy as jnp
import numpy as np

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div

Tile = tuple[float, float]  # rows and columns
# Tiles of the fp32 kernels of cuBLAS and cuDNN, after their names; of those of 32 rows or columns they make less use
# than they would gain by them.
USUAL: tuple[Tile, ...] = ((128.0, 128.0), (128.0, 64.0), (64.0, 128.0), (64.0, 64.0))
# Tiles of cuBLAS's kernels for batches in fp32, by the start of the architecture's name: those that NeuSight's profiles
# of batched products name in more than one row of a hundred. A name has the columns of a row-major product first
# ("sgemm_128x64_nn"), as the profiled grids confirm. Other architectures and libraries take the usual ones.
OF_BATCHES: Mapping[str, tuple[Tile, ...]] = MappingProxyType(
    {
        "pascal": ((64.0, 128.0),),
        "volta": ((64.0, 64.0), (128.0, 32.0), (32.0, 128.0)),
        "turing": ((64.0, 128.0), (64.0, 64.0), (32.0, 128.0)),
        "ampere": ((128.0, 128.0),),
        "ada": ((128.0, 128.0),),
    }
)
SETS = (USUAL, *OF_BATCHES.values())
IN_BATCHES = tuple(dict.fromkeys(tile for tiles in SETS for tile in tiles))
HAS = np.array([[tile in tiles for tile in IN_BATCHES] for tiles in SETS])  # [sets, tiles]
# How much slower a number from shared memory makes a multiplication: large products of A100 and V100 run in tiles of
# 128 x 64 at 0.91 to 0.97, of 64 x 64 at 0.9, and of 128 x 32 at 0.85 of their rate in those of 128 x 128.
LOADING = 8.0


def busiest_flops(device: Device, m: Scalar, n: Scalar, k: Scalar, parts: Scalar) -> Scalar:
    """FLOP at full rate of the busiest core in one product, with the best tile.

    **Arguments:** `m`, `n`, `k`: rows, columns and depth [1]; `parts`: into how many a reduction may be divided [1].
    """
    loads = [_load(device, tile, m, n, k, as_float(1.0), parts) for tile in USUAL]
    return jnp.min(jnp.stack(loads), axis=0)


def busiest_batch_flops(device: Device, m: Scalar, n: Scalar, k: Scalar, products: Scalar, tiles: Scalar) -> Scalar:
    """The same in so many products of one shape, with the best tile of a library's.

    **Arguments:** `tiles`: which of `SETS` the library has (`set_of`) [1].
    """
    has = jnp.asarray(HAS)[tiles.astype(int)]
    loads = jnp.stack([_load(device, tile, m, n, k, products, as_float(1.0)) for tile in IN_BATCHES])
    return jnp.min(jnp.where(has, loads, jnp.inf), axis=0)


def set_of(architecture: str) -> float:
    """Which of `SETS` an architecture's library has for batches [1]."""
    return next((1.0 + at for at, start in enumerate(OF_BATCHES) if architecture.startswith(start)), 0.0)


def _load(device: Device, tile: Tile, m: Scalar, n: Scalar, k: Scalar, products: Scalar, parts: Scalar) -> Scalar:
    high, wide = tile
    tiles = ceil_div(m, as_float(high)) * ceil_div(n, as_float(wide)) * products
    split = jnp.clip(floor_div(device.num_cores, tiles), 1.0, parts)
    waves = ceil_div(tiles * split, device.num_cores)
    return waves * 2.0 * high * wide * ceil_div(k, split) * _slower(tile)


def _slower(tile: Tile) -> float:
    """Time of a multiplication in a tile over that in the largest [1]."""
    loads = [1.0 + LOADING * (1.0 / high + 1.0 / wide) for high, wide in (tile, USUAL[0])]
    return loads[0] / loads[1]
