"""How the tiles of a matrix product are handed to the cores: whole, with a split reduction, or as even streams.

**data-parallel**: a core works on whole tiles. A persistent kernel, which starts one block per core and loops over
tiles, has the same busiest core: it hides prologues, not whole tiles. **split-k**: every reduction is cut into the
same number of parts where tiles are fewer than cores. **stream-k** (Osama et al. 2023, arXiv 2301.03598): the inner
iterations of all tiles are one stream cut into even shares, so no wave is left part-filled; a tile that is shared
costs a fix-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax.numpy as jnp

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, next_power_of_two
from jaxperf.kernels.tiling import (
    LARGE_TILES,
    SMALLEST_ROWS,
    Tile,
    busiest_core_flops,
    choose_tile,
    deepest_split,
    least_loaded,
)

Schedule = Literal["data-parallel", "split-k", "stream-k"]
SCHEDULES: tuple[Schedule, ...] = ("data-parallel", "split-k", "stream-k")
TILE_K = 32.0  # reduction depth of one inner iteration (the fp16 tile of the paper: 128 x 128 x 32)
PARTIAL_ITEMSIZE = 4.0  # partial sums are fp32 [byte]


class Work(NamedTuple):
    """What a schedule asks of the device: FLOP issued on the busiest core, partial sums to combine [byte], and
    additions of partial sums on the busiest core [FLOP]."""

    busiest: Scalar
    partial_sums: Scalar
    additions: Scalar


def scheduled_work(
    schedule: Schedule,
    device: Device,
    m: Scalar,
    n: Scalar,
    k: Scalar,
    groups: Scalar,
    tiles: Sequence[tuple[float, float]] = LARGE_TILES,
) -> Work:
    """The work of `groups` products [m, k] x [k, n] in one launch, with the tile a library would choose; of `tiles`
    where whole tiles are handed out.

    **Raises:** `InputError` for an unknown `schedule` (structure: decided at trace time).
    """
    if schedule not in SCHEDULES:
        hint = did_you_mean(schedule, SCHEDULES)
        raise InputError(f"Unknown schedule {schedule!r}; allowed: {', '.join(SCHEDULES)}.{hint}")
    if schedule == "stream-k":
        return stream_k_work(device, m, n, k, groups, stream_k_tile(device, m, n, k, groups))
    most = deepest_split(k) if schedule == "split-k" else as_float(1.0)
    tile = choose_tile(device, m, n, k, groups, most, tiles)
    partial_sums = jnp.where(tile.split_k > 1.0, tile.split_k * groups * m * n * PARTIAL_ITEMSIZE, 0.0)
    return Work(busiest_core_flops(device, m, n, k, groups, tile), partial_sums, as_float(0.0))


def stream_k_share(device: Device, m: Scalar, n: Scalar, k: Scalar, groups: Scalar, tile: Tile) -> Scalar:
    """Inner iterations of one core: ceil(tiles x ceil(k / TILE_K) / cores) [1]."""
    tiles = ceil_div(m, tile.m) * ceil_div(n, tile.n) * groups
    return ceil_div(tiles * ceil_div(k, as_float(TILE_K)), device.num_cores)


def stream_k_tile(device: Device, m: Scalar, n: Scalar, k: Scalar, groups: Scalar) -> Tile:
    """Of the large tiles, cut to the rows there are, the one with the least work per core."""
    rows = jnp.maximum(next_power_of_two(m), SMALLEST_ROWS)
    tiles = [Tile(jnp.minimum(rows, tile_m), tile_n) for tile_m, tile_n in LARGE_TILES]
    return least_loaded([(tile, stream_k_share(device, m, n, k, groups, tile) * tile.m * tile.n) for tile in tiles])[0]


def stream_k_work(device: Device, m: Scalar, n: Scalar, k: Scalar, groups: Scalar, tile: Tile) -> Work:
    """Even shares of the stream and their fix-up.

    With s iterations a core and d a tile, a tile is shared by at most ceil(d / s) + 1 cores where s is no multiple
    of d: its owner adds the partial tiles of the others. Partial tiles are one per border between two cores, an upper
    bound: borders that fall between two tiles need none, and where s is a multiple of d all of them do.
    """
    depth = ceil_div(k, as_float(TILE_K))
    share = stream_k_share(device, m, n, k, groups, tile)
    streams = ceil_div(ceil_div(m, tile.m) * ceil_div(n, tile.n) * groups * depth, share)
    aligned = ceil_div(share, depth) * depth == share
    borders = jnp.where(aligned, 0.0, streams - 1.0)
    peers = jnp.minimum(jnp.where(aligned, 0.0, ceil_div(depth, share)), borders)
    elements = tile.m * tile.n
    return Work(
        busiest=share * (2.0 * TILE_K) * elements,
        partial_sums=borders * elements * PARTIAL_ITEMSIZE,
        additions=peers * elements,
    )
