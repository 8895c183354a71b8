"""How a GEMM is cut into output tiles, and the load of the busiest core that follows from it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div, next_power_of_two

# Output tiles of tuned libraries at full rate; smaller ones starve the matrix unit of operands (CUTLASS profiles).
LARGE_TILES = ((256.0, 128.0), (128.0, 256.0), (128.0, 128.0))
# Of the dozens of tiles that libraries hold, three which come as near to the measured products of a step as any set
# tried: without the low ones, a row above 128 would make a wave of 256 rows that no library multiplies.
STEP_TILES = ((256.0, 128.0), (64.0, 256.0), (64.0, 128.0))
SMALLEST_ROWS = 16.0  # rows of the smallest matrix instruction
MIN_SPLIT_DEPTH = 512.0  # a shorter reduction does not pay for combining the partial sums


class Tile(eqx.Module):
    """One output tile: rows, columns, and into how many parts the reduction is split."""

    m: Float[Array, "*batch"] = eqx.field(converter=as_float)
    n: Float[Array, "*batch"] = eqx.field(converter=as_float)
    split_k: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)


def busiest_core_flops(device: Device, m: Scalar, n: Scalar, k: Scalar, groups: Scalar, tile: Tile) -> Scalar:
    """Issued on the busiest core: waves x the FLOP of one whole tile, padding included [FLOP].

    waves = ceil(tiles / cores): the load of the busiest core. Residency (several tiles per core) hides latency but
    does not add cores, so it does not appear.
    """
    tiles = ceil_div(m, tile.m) * ceil_div(n, tile.n) * tile.split_k * groups
    waves = ceil_div(tiles, device.num_cores)
    return waves * 2.0 * tile.m * tile.n * ceil_div(k, tile.split_k)


def deepest_split(k: Scalar) -> Scalar:
    """Into how many parts a reduction of depth `k` may be split and still pay [1]."""
    return jnp.maximum(floor_div(k, as_float(MIN_SPLIT_DEPTH)), 1.0)


def choose_tile(
    device: Device,
    m: Scalar,
    n: Scalar,
    k: Scalar,
    groups: Scalar,
    max_split: Scalar,
    tiles: Sequence[tuple[float, float]] = LARGE_TILES,
) -> Tile:
    """The tile a library heuristic would take: of `tiles`, the one of the least busy core."""
    return least_loaded(loaded_tiles(device, m, n, k, groups, max_split, tiles))[0]


def loaded_tiles(
    device: Device,
    m: Scalar,
    n: Scalar,
    k: Scalar,
    groups: Scalar,
    max_split: Scalar,
    tiles: Sequence[tuple[float, float]],
) -> list[tuple[Tile, Scalar]]:
    """These `tiles`, cut to the rows there are, each with the load of its busiest core [FLOP].

    The reduction is split, `max_split` times at most, where the output has fewer tiles than the device has cores.
    """
    rows = jnp.maximum(next_power_of_two(m), SMALLEST_ROWS)
    candidates = []
    for tile_m, tile_n in tiles:
        height = jnp.minimum(rows, tile_m)
        blocks = ceil_div(m, height) * ceil_div(n, as_float(tile_n)) * groups
        split = jnp.clip(floor_div(device.num_cores, blocks), 1.0, max_split)
        tile = Tile(height, tile_n, split)
        candidates.append((tile, busiest_core_flops(device, m, n, k, groups, tile)))
    return candidates


def least_loaded(candidates: Sequence[tuple[Tile, Scalar]]) -> tuple[Tile, Scalar]:
    """Of tiles and the loads of their busiest cores, those of the least load, the first of equals."""
    best, least = candidates[0]
    for tile, load in candidates[1:]:
        better = load < least
        best = jax.tree.map(functools.partial(jnp.where, better), tile, best)
        least = jnp.minimum(load, least)
    return best, least
