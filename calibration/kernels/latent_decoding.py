"""How decode kernels of latent attention work through a cache: blocks, tiles and parts of the busiest core.

All heads share the latents, so that a block takes many of them and its operands fill a core. It starts, waits for a
tile of latents where it asks for none ahead, and multiplies it; one block on a core hides nothing of that. What a
kernel does is a `calibration.datasets.caches.LatentReading`; the unit of starts and waits is `Law.block`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from calibration.datasets.caches import FLASH_MLA
from calibration.kernels.asked import Shape, way
from calibration.kernels.hardware import Hardware
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div

LATENT, ROPE = 512.0, 64.0  # elements of a token: the latent, which is its value too, and the rotary key
ROWS, TILE = 64.0, 64.0  # heads that a block takes in place of queries, and latents that it holds at once
ITEMSIZE = 2.0  # of queries and latents in shared memory [byte]
HEADS_APART, TILE_APART = 16.0, 32.0  # the same of a kernel in Triton
# Blocks that share the 64 heads of an undivided sequence, half of the products each (`ctas_per_o_row` of fmha_v2: 256
# of the 512 columns of an output). Times on the A100 are those of two, and of two that share a core.
SHARING = 2.0
MOST_RESIDENT = 2.0  # of those on a core, where their queries leave room in its shared memory
WARP_ROWS = 16.0  # of a warp's matrix instruction (mma.m16n8k16)
SHARED_BYTES_PER_CYCLE = 128.0  # a core from shared memory: 32 banks of 4 bytes (CUDA C++ programming guide)
# FlashMLA counts a sequence as five tiles more than it has (`fixed_overhead_num_blocks`), so that cores with many short
# ones are done as early as those with parts of long ones.
OVERHEAD = 5.0
# FlashMLA's products reach 660 of the H800's 989 TFLOP/s (its README): a softmax stands between them.
BESIDE_SOFTMAX = 989.0 / 660.0
SMALL_KERNEL = 0.45  # time of a small kernel in starts, as in `calibration.kernels.decoding`
COMBINED = 0.35  # start of a block that combines the parts of one head
# Elements that a core writes anew in a cycle, one a thread: what PyTorch's lookups and rotary embeddings take as well
# (2.0-2.8 bytes, docs/kernel-laws.md).
CONVERTED = 1.2


def head_groups(x: Shape) -> Scalar:
    """Groups of heads that take a sequence's latents each [1]."""
    return ceil_div(x["heads"], jnp.where(_does(x, "by_heads"), HEADS_APART, ROWS))


def times_read(x: Shape, cores: Scalar) -> Scalar:
    """How often memory is asked for a sequence: by each group of its heads that does not run beside the first [1].

    A grid has all sequences' first groups before their next, and the cores hold one block each.
    """
    groups = head_groups(x)
    apart = jnp.clip(x["batch"] * groups / cores, 1.0, groups)
    return jnp.where(_does(x, "by_heads"), apart, 1.0)


def resident(x: Shape) -> Scalar:
    """Blocks of an undivided sequence that a core holds at once [1]."""
    held = ROWS * (LATENT + ROPE) * ITEMSIZE
    return jnp.clip(floor_div(_way(x, "shared"), as_float(held)), 1.0, MOST_RESIDENT)


def undivided_blocks(x: Shape, cores: Scalar) -> Scalar:
    """Blocks of undivided sequences that the busiest core works through [1]."""
    return ceil_div(SHARING * x["batch"] * head_groups(x), cores)


def shared_tiles(x: Shape, cores: Scalar) -> Scalar:
    """Tiles that a core takes where all share them evenly, with the overhead of its sequences [1]."""
    tiles = ceil_div(x["kv_len"], as_float(TILE))
    parts = jnp.maximum(floor_div(cores, head_groups(x)), 1.0)
    return ceil_div(x["batch"] * (tiles + OVERHEAD), parts) + OVERHEAD


def parts(x: Shape, cores: Scalar) -> Scalar:
    """Blocks that share the latents of one sequence and group of heads [1]."""
    tiles = ceil_div(x["kv_len"], as_float(TILE))
    evenly = jnp.clip(ceil_div(tiles, shared_tiles(x, cores) - OVERHEAD), 1.0, cores)
    fixed = _way(x, "parts")
    return jnp.where(_does(x, "undivided"), 1.0, jnp.where(fixed > 0.0, fixed, evenly))


def rounds(x: Shape, cores: Scalar) -> Scalar:
    """Blocks that the busiest core starts one after the other, those that it holds at once being one [1]."""
    whole = ceil_div(undivided_blocks(x, cores), resident(x))
    divided = ceil_div(x["batch"] * head_groups(x) * parts(x, cores), cores)
    return jnp.where(_does(x, "undivided"), whole, divided)


def starts(x: Shape, cores: Scalar) -> Scalar:
    """Time for the busiest core to start its blocks, and for small kernels beside them, in starts of a block of
    FlashAttention-2 [1]."""
    shared = parts(x, cores)
    several = jnp.where(shared > 1.0, _way(x, "combining") + _way(x, "serial") * shared, 0.0)
    combined = COMBINED * as_float(_does(x, "by_heads")) * ceil_div(x["batch"] * x["heads"], cores)
    return rounds(x, cores) * _way(x, "start") + SMALL_KERNEL * (several + _way(x, "beside")) + combined


def waiting(x: Shape, hardware: Hardware) -> Scalar:
    """Time that the busiest core's blocks wait for their tiles, those that it holds at once together [s]."""
    cores, tile = hardware.device.num_cores, jnp.where(_does(x, "by_heads"), TILE_APART, TILE)
    tiles = ceil_div(ceil_div(x["kv_len"], parts(x, cores)), tile)
    return rounds(x, cores) * tiles * _way(x, "wait") / hardware.clock


def idle(sequences: Scalar, heads: Scalar, context: Scalar, cores: Scalar) -> Scalar:
    """How much longer all that is read and written takes because tiles leave cores idle; what the law was fitted with,
    whose floor makes up for queries and outputs that a few cores hold [1]."""
    tiles = sequences * ceil_div(heads, as_float(ROWS)) * ceil_div(context, as_float(TILE))
    return ceil_div(tiles, cores) * cores / tiles


def products_share(x: Shape) -> Scalar:
    """Time of the products over that of `mla_decode_cost`, which has fewer rows for few heads and no softmax [1]."""
    rows = jnp.minimum(ceil_div(x["heads"], as_float(HEADS_APART)) * HEADS_APART, ROWS)
    return jnp.where(_does(x, "undivided") | _does(x, "by_heads"), 1.0, ROWS / rows * BESIDE_SOFTMAX)


def undivided_products(x: Shape, cores: Scalar) -> Scalar:
    """Products of undivided sequences on the busiest core [FLOP]."""
    tiles = ceil_div(x["kv_len"], as_float(TILE))
    return undivided_blocks(x, cores) * tiles * ROWS * TILE * 2.0 * (2.0 * LATENT + ROPE) / SHARING


def through_shared_memory(x: Shape, hardware: Hardware) -> Scalar:
    """Time for the busiest core to take undivided sequences from shared memory [s].

    Each warp owns 16 rows of the products and loads the whole latent for the first product and its values for the
    second.
    """
    loaded = ROWS / WARP_ROWS * (2.0 * LATENT + ROPE) * ITEMSIZE / SHARING
    latents = undivided_blocks(x, hardware.device.num_cores) * ceil_div(x["kv_len"], as_float(TILE)) * TILE
    cycles = latents * loaded / SHARED_BYTES_PER_CYCLE
    return jnp.where(_does(x, "undivided"), cycles / hardware.clock, 0.0)


def converting(x: Shape, hardware: Hardware, itemsize: Scalar) -> Scalar:
    """Time for the cores to write a narrow cache anew [s]; `itemsize`: of what is cached [byte]."""
    elements = x["batch"] * x["kv_len"] * (LATENT + ROPE)
    issuing = elements / (CONVERTED * hardware.device.num_cores * hardware.clock)
    return jnp.where(_does(x, "converted") & (itemsize < ITEMSIZE), issuing, 0.0)


def launch_features(x: Shape, cores: Scalar) -> dict[str, Scalar]:
    """What the learned correction sees of how a sequence is divided."""
    return {"rounds": jnp.log2(rounds(x, cores)), "parts": jnp.log2(parts(x, cores))}


def _does(x: Shape, name: str) -> Bool[Array, ""]:
    return _way(x, name) > 0.0


def _way(x: Shape, name: str) -> Scalar:
    return way(x, name, getattr(FLASH_MLA, name))
