"""What prefill on the latents themselves asks of a core: absorbed attention, whose heads all read the same keys.

A block takes 64 rows, the heads of one query after those of another, or 32 queries of one head where a kernel takes
each head `apart`; its operands fill a core. All functions are of one kernel.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from calibration.kernels.asked import Shape, does
from calibration.kernels.hardware import Hardware
from calibration.kernels.latent_decoding import (
    ITEMSIZE,
    LATENT,
    ROPE,
    ROWS,
    SHARED_BYTES_PER_CYCLE,
    SMALL_KERNEL,
    TILE,
    TILE_APART,
    WARP_ROWS,
)
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div

WAIT = 5000.0  # of a block in Triton for each of its tiles, as in `calibration.datasets.caches` [cycle]
# A block starts as one of decode does, 5 us at the H100's clock (`priors.LATENT`), where the unit is one of prefill;
# one in Triton in half of that, as the L40S's rows show.
START, START_APART = 3.0, 1.5


def absorbed(x: Shape) -> Bool[Array, ""]:
    return does(x, "absorbed")


def rows(x: Shape) -> Scalar:
    """Rows that a block takes, and keys of a tile [1]."""
    return jnp.where(does(x, "apart"), TILE_APART, ROWS)


def blocks(x: Shape) -> Scalar:
    """Blocks of all sequences [1]."""
    return x["batch"] * _apart(x) * ceil_div(x["q_len"] * x["heads"] / _apart(x), rows(x))


def tiles(x: Shape) -> Scalar:
    """Tiles of keys that all blocks go through [1].

    A tile has as many keys as `side` blocks have queries, so that these see one more of them than the `side` before.
    """
    each = jnp.where(does(x, "apart"), TILE_APART, TILE)
    side = x["heads"] / _apart(x) * each / rows(x)
    own = blocks(x) / (x["batch"] * _apart(x))
    full = floor_div(own, side)
    seen = side * full * (full + 1.0) / 2.0 + (own - side * full) * (full + 1.0)
    before = own * ceil_div(x["kv_len"] - x["q_len"], each)
    return x["batch"] * _apart(x) * (seen + before)


def busiest_tiles(x: Shape, cores: Scalar) -> Scalar:
    """Tiles of the busiest core: its share of all, or those of the last block alone [1]."""
    longest = ceil_div(x["kv_len"], jnp.where(does(x, "apart"), TILE_APART, TILE))
    return jnp.maximum(tiles(x) / cores, longest)


def products(x: Shape, cores: Scalar) -> Scalar:
    """Products of the busiest core [FLOP]."""
    each = jnp.where(does(x, "apart"), TILE_APART, TILE)
    return busiest_tiles(x, cores) * rows(x) * each * 2.0 * (2.0 * LATENT + ROPE)


def starts(x: Shape, cores: Scalar) -> Scalar:
    """Time for the busiest core to start its blocks, in starts of a block of prefill [1]."""
    return jnp.where(does(x, "apart"), START_APART, START) * ceil_div(blocks(x), cores)


def small_kernels(x: Shape) -> Scalar:
    """Time of the kernel that writes a narrow cache anew, or what is multiplied in its format, in the same [1]."""
    return START * SMALL_KERNEL * as_float(does(x, "converted") | does(x, "quantized"))


def waiting(x: Shape, hardware: Hardware) -> Scalar:
    """Time that the busiest core waits for its tiles, where a kernel asks for none ahead [s]."""
    waits = busiest_tiles(x, hardware.device.num_cores) * WAIT / hardware.clock
    return jnp.where(does(x, "apart"), waits, 0.0)


def beside_products_time(x: Shape, hardware: Hardware) -> Scalar:
    """Time of the busiest core's exponentials, and its loads where registers feed the matrix units [s]."""
    each = jnp.where(does(x, "apart"), TILE_APART, TILE)
    loaded = (2.0 * LATENT + ROPE) * ITEMSIZE / WARP_ROWS * (1.0 - hardware.reads_shared)
    cycles = 1.0 / hardware.exponentials + loaded / SHARED_BYTES_PER_CYCLE
    return busiest_tiles(x, hardware.device.num_cores) * rows(x) * each * cycles / hardware.clock


def _apart(x: Shape) -> Scalar:
    """Heads that blocks take by themselves [1]."""
    return jnp.where(does(x, "apart"), x["heads"], jnp.ones_like(x["heads"]))
