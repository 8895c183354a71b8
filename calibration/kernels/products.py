"""How a matrix product works through its tiles: which tile, in how many parts, and what the busiest core waits for.

A block loads its rows and columns step by step along the reduction. However little it multiplies in a step, the next
one's operands have to arrive: a few steps are in flight at once, and the busiest core takes

    t = min(steps wait, steps of a part wait + adding)

whether a reduction is divided being what the library finds faster (split-K: CUTLASS documentation, "Efficient GEMM in
CUDA"). Which libraries do not divide at all is in `calibration.datasets.engine_products`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from calibration.datasets.library_tiles import TABLES
from calibration.kernels.asked import Shape, does, way
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import Hardware
from jaxperf.core.device import Device
from jaxperf.core.formats import COMPUTE_FORMATS
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div, next_power_of_two
from jaxperf.kernels.roofline import operand_itemsize
from jaxperf.kernels.tiling import (
    LARGE_TILES,
    SMALLEST_ROWS,
    Tile,
    busiest_core_flops,
    choose_tile,
    deepest_split,
    least_loaded,
    loaded_tiles,
)

# Tiles that a library takes beside the large ones. One that divides no reduction: not where the matrix instruction is
# of four warps, whose tiles have `GROUP_ROWS` rows and more. One that divides them (cuBLAS names its kernels after
# them): where large tiles leave cores idle and a small one leaves the busiest core at most `LIGHTER` of their load,
# since it fetches more for what it multiplies. Set with the measured tables in sight.
SMALL_TILES = ((128.0, 64.0), (64.0, 128.0), (64.0, 64.0))
LIGHTER = 0.8
# Rows and columns of a tile whose operands fill a core's shared memory. Blocks of fewer run beside each other and wait
# at the same time, four at most; not where a library keeps more steps in flight instead.
FILLING, MOST_AT_ONCE = 256.0, 4.0
GROUP_ROWS = 64.0  # of a wgmma instruction (PTX: m64nNk16)
TALL_ROWS = 128.0  # of a library that has tiles for many rows alone
STEP = 128.0  # bytes of each row and column that a block loads at once
# Of kernels that exchange the operands, up to so many rows.
STEP_EXCHANGED, MOST_EXCHANGED = 256.0, 64.0
# Cycles between two steps that hardly multiply. Copies by the tensor memory accelerator, which need no registers, keep
# more in flight: 165 is the slope of an H100's small products along k; that of A100 and L40S is 490 and 700.
WAIT_BY_COPIES, WAIT = 165.0, 600.0
# Of CUTLASS's kernels whose tiles leave room for more steps in flight: A100 385 (int8), L40S 358 (int8), 340 (fp8).
WAIT_DEEP = 360.0
ADDING = 1.5e-6  # for a second kernel to add the parts of a reduction [s]; of the same tables
# Of the energy of a FLOP with 16-bit operands, what does not grow with these: sums are in fp32 whatever is multiplied
# (Horowitz 2014: an fp32 sum takes 0.9 pJ, an fp16 product 1.1 pJ, and units that share their accumulation less). Set
# with the measured tables in sight, as is what products of integers, which align no exponents, take over those of
# floats of as many bits.
ACCUMULATING, MULTIPLYING_INTEGERS = 0.2, 0.75
# Sums of integers, and of 4-bit floats, whose products are small multiples of a quarter under one scale a block: over
# sums in fp32 (Horowitz 2014: an int32 sum takes 0.1 pJ, an fp32 sum 0.9 pJ).
IN_INTEGERS = 0.1
INTEGERS = ("int8", "int4")
SUMMING = tuple(IN_INTEGERS if name in (*INTEGERS, "fp4") else 1.0 for name in COMPUTE_FORMATS)
MULTIPLYING = tuple(MULTIPLYING_INTEGERS if name in INTEGERS else 1.0 for name in COMPUTE_FORMATS)
CUT = ("tile_rows", "tile_columns", "parts")
HALF = 2.0  # bytes of a 16-bit operand


def rows(x: Shape) -> Scalar:
    """Rows of the left-hand side: a batch shares the right-hand side, so its rows are further rows [1]."""
    return x["batch"] * x["m"]


def groups(x: Shape) -> Scalar:
    """Products of one launch that have a right-hand side each, as those of the heads of latent attention do [1]."""
    return way(x, "groups", 1.0)


def cut(device: Device, x: Shape) -> Shape:
    """The tile of a product, as further columns of its shape in which `tile` finds it."""
    found = tile(device, x)
    return dict(zip(CUT, (found.m, found.n, found.split_k), strict=True))


def tile(device: Device, x: Shape) -> Tile:
    """The tile of a library that divides reductions, or of one that leaves them whole (`x["unsplit"]`: 1), by the table
    in its source where that is known."""
    if CUT[0] in x:
        return Tile(*(x[name] for name in CUT))
    usual = _either(does(x, "unsplit"), _whole(device, x), _divided(device, x))
    return _either(does(x, "tile_table"), _tabled(x), usual)


def _tabled(x: Shape) -> Tile:
    """The tile by the table of the engine's source (`x["tile_table"]`: its number, from one)."""
    height, width = (as_float(size) for size in LARGE_TILES[-1])
    for number, table in enumerate(TABLES, start=1):
        for most_rows, most_columns, tall, wide in reversed(table):
            here = (way(x, "tile_table") == number) & (rows(x) <= most_rows) & (x["n"] <= most_columns)
            height, width = jnp.where(here, tall, height), jnp.where(here, wide, width)
    return Tile(height, width)


def _divided(device: Device, x: Shape) -> Tile:
    """A large tile, or a small one where large ones leave cores idle and it is lighter by enough."""
    m, n, k, each = rows(x), x["n"], x["k"], groups(x)
    (large, usual), (small, less) = (
        least_loaded(loaded_tiles(device, m, n, k, each, deepest_split(k), of)) for of in (LARGE_TILES, SMALL_TILES)
    )
    idle = ceil_div(m, large.m) * ceil_div(n, large.n) * each < device.num_cores
    return _either(idle & (less < LIGHTER * usual), small, large)


def _either(first: Scalar, one: Tile, other: Tile) -> Tile:
    return jax.tree.map(lambda here, there: jnp.where(first, here, there), one, other)


def _whole(device: Device, x: Shape) -> Tile:
    m, n, k, each, one = rows(x), x["n"], x["k"], groups(x), as_float(1.0)
    small, tall_only = does(x, "small_tiles"), does(x, "tall_tiles")
    least = jnp.where(tall_only, TALL_ROWS, GROUP_ROWS)
    large = choose_tile(device, jnp.where(small, m, jnp.maximum(m, least)), n, k, each, one)
    candidates = [(large, busiest_core_flops(device, m, n, k, each, large))]
    height = jnp.maximum(next_power_of_two(m), SMALLEST_ROWS)
    for tall, wide in SMALL_TILES:
        cut = Tile(jnp.where(small, jnp.minimum(height, tall), tall), wide, one)
        usual = small | (~tall_only & (tall == GROUP_ROWS) & (m <= GROUP_ROWS))
        candidates.append((cut, jnp.where(usual, busiest_core_flops(device, m, n, k, each, cut), jnp.inf)))
    return least_loaded(candidates)[0]


def steps(device: Device, x: Shape, f: Formats, cut: Tile, parts: Scalar) -> Scalar:
    """Steps of the busiest core, one after the other, where each reduction is in so many parts [1]."""
    tiles = ceil_div(rows(x), cut.m) * ceil_div(x["n"], cut.n) * parts * groups(x)
    far = does(x, "exchanged") & (rows(x) <= MOST_EXCHANGED)
    depth = ceil_div(ceil_div(x["k"], parts) * f.weights.operand_itemsize, jnp.where(far, STEP_EXCHANGED, STEP))
    at_once = jnp.where(does(x, "deep"), 1.0, jnp.clip(floor_div(as_float(FILLING), cut.m + cut.n), 1.0, MOST_AT_ONCE))
    return ceil_div(tiles, device.num_cores * at_once) * depth


def stepping(hardware: Hardware, x: Shape, f: Formats) -> Scalar:
    """Time for the busiest core to go through its steps if they hardly multiply [s]."""
    loaded = jnp.where(does(x, "deep"), WAIT_DEEP, WAIT)
    wait = jnp.where(hardware.reads_shared > 0.0, WAIT_BY_COPIES, loaded) / hardware.clock
    cut = tile(hardware.device, x)
    whole = steps(hardware.device, x, f, cut, jnp.ones_like(cut.split_k)) * wait
    return jnp.minimum(whole, steps(hardware.device, x, f, cut, cut.split_k) * wait + ADDING)


def switched(device: Device, f: Formats) -> Scalar:
    """Energy of a FLOP over what it would be in proportion to the bytes of its operands [1]; a format that the device
    lacks is multiplied, and summed, as its activations are."""
    native = device.native[f.weights.compute] > 0.0
    multiplying, summing = (
        jnp.where(native, as_float(each)[f.weights.compute], 1.0) for each in (MULTIPLYING, SUMMING)
    )
    wider = HALF / operand_itemsize(device, f.weights, f.activations)
    return (1.0 - ACCUMULATING) * multiplying + ACCUMULATING * summing * wider
