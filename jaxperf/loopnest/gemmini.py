"""Cycles of a layer on Gemmini as its RTL takes them, from the tiles that a mapping cuts for the scratchpad.

Genc et al., "Gemmini", DAC 2021, weight stationary: an instruction holds D x D weights and streams one pixel a cycle;
the loop unroller works through one tile at a time and fetches the next meanwhile; each request of the DMA moves at most
one cache line. The order of loops inside a tile is the hardware's own, so that only the sizes of tiles matter.

    work = rows of the array + for every rest of less than D rows no less than `rows`
    move = requests x (request + stride x min(1, distance of neighbours / PAGE)) + stores x store
    cycles = (work^p + move^p)^(1/p) + exposed x move of one tile
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, ceil_div, floor_div, overlap

LINE = 64.0  # bytes of a request, one a word
PAGE = 1024.0  # bytes: rows of a matrix this far apart lie in different pages of the DRAM (assumed, not fitted)
CORNER = 4.0  # sharpness of the corner where short instructions begin to wait


class Tiling(NamedTuple):
    """A layer cut into tiles. `tile` [7]: bounds of R, S, P, Q, C, K, N within a tile; `tiles` [7]: tiles along each;
    `strides` [2]: of the window along P and along Q; `mesh`: rows and columns of the array."""

    tile: Float[Array, " 7"]
    tiles: Float[Array, " 7"]
    strides: Float[Array, " 2"]
    mesh: Scalar


class GemminiPace(NamedTuple):
    """What is fitted. `rows`: of the shortest instruction [cycle]; `request`: of a load, `stride`: more where
    neighbours are far apart, `store`: of a row of results [cycle]; `exposed`: share of a tile's moves that is not
    hidden [1]; `sharpness` p of the overlap [1]."""

    rows: Scalar
    request: Scalar
    stride: Scalar
    store: Scalar
    exposed: Scalar
    sharpness: Scalar


def gemmini_cycles(tiling: Tiling, pace: GemminiPace) -> Scalar:
    """Cycles of the whole layer; scalar leaves of one point, any positive integers as bounds."""
    loads, stores = _moves(tiling, pace)
    move = loads + stores * pace.store
    tiles = jnp.prod(tiling.tiles)
    return overlap(_work(tiling, pace), move, sharpness=pace.sharpness) + pace.exposed * move / tiles


def _work(tiling: Tiling, pace: GemminiPace) -> Scalar:
    """Cycles of the array: instructions times the rows that each streams."""
    r, s, p, q, c, k, n = tiling.tile
    weights = r * s * ceil_div(c, tiling.mesh) * ceil_div(k, tiling.mesh)
    blocks = floor_div(p, tiling.mesh)
    rest = p - blocks * tiling.mesh
    short = jnp.where(
        rest > 0.0, overlap(jnp.where(rest > 0.0, rest, 1.0), pace.rows, sharpness=jnp.full_like(rest, CORNER)), 0.0
    )
    return weights * q * n * (blocks * tiling.mesh + short) * jnp.prod(tiling.tiles)


def _moves(tiling: Tiling, pace: GemminiPace) -> tuple[Scalar, Scalar]:
    """Cycles of all loads, and the rows of results that are stored.

    A tile of the input stays for the next group of filters, one of the weights for the next pixels, as long as it holds
    the whole sum: the unroller compares with the last tile only.
    """
    r, s, p, q, c, k, n = tiling.tile
    tiles_r, tiles_s, tiles_p, tiles_q, tiles_c, tiles_k, tiles_n = tiling.tiles
    every, partial_sums = jnp.prod(tiling.tiles), tiles_r * tiles_s * tiles_c
    whole = partial_sums == 1.0
    pixels = ((p - 1.0) * tiling.strides[0] + r) * ((q - 1.0) * tiling.strides[1] + s) * n
    inputs = pixels * ceil_div(c, jnp.full_like(c, LINE)) * jnp.where(whole, every / tiles_k, every)
    repeats = jnp.where(whole & (tiles_k == 1.0), tiles_p * tiles_q * tiles_n, 1.0)
    weights = r * s * c * ceil_div(k, jnp.full_like(k, LINE)) * every / repeats
    stores = p * q * n * ceil_div(k, tiling.mesh) * every / partial_sums
    loads = inputs * _request(c * tiles_c, pace) + weights * _request(k * tiles_k, pace)
    return loads, stores


def _request(distance: Scalar, pace: GemminiPace) -> Scalar:
    """Cycles of a load whose neighbours lie so many bytes apart."""
    return pace.request + pace.stride * jnp.minimum(1.0, distance / PAGE)
