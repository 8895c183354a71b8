"""What a grouped product of one rank's experts works through: FLOP, steps and bytes of the tiles of its experts' rows.

`calibration.kernels.expert_load` says how many rows each expert gets, `expert_tiles` beside it in which tiles.
"""

from __future__ import annotations

import jax.numpy as jnp

from calibration.kernels.asked import Shape, does, way
from calibration.kernels.expert_load import Load, load
from calibration.kernels.expert_tiles import Tile, tile
from calibration.kernels.formats import Formats
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div

LINE = 128.0  # bytes of a line of L2
# Blocks of a grouped product that a core holds at once, and waits of one that hides nothing of them: for its rows'
# numbers, its first operands, and its output. Assumed; of 0 to 10 waits a block side by side with the tables in sight.
RESIDENT, STARTS = 2.0, 4.0
# Weights of 4 bits that a core unpacks in a cycle. Set with the tables in sight: Marlin's and Triton's kernels read
# such weights at 2.2 TB/s on the H100 and the H200 alike, so not as fast as memory gives them: 18 a core and cycle.
UNPACKED = 30.0


def tiles(given: Load, height: Scalar) -> Scalar:
    """Tiles of so many rows that all experts of the rank take together: each has its own."""
    return jnp.sum(given.piles * ceil_div(given.heights, jnp.full_like(given.heights, height)))


def products(x: Shape) -> tuple[tuple[Scalar, Scalar], ...]:
    """Columns and depth of both products of an expert; the first makes a gate as well, unless `ungated`."""
    width = x["inter"] / x["tp"]
    return ((2.0 - way(x, "ungated")) * width, x["hidden"]), (x["hidden"], width)


def busiest_flops(x: Shape, given: Load, f: Formats, columns: Scalar, depth: Scalar, cores: Scalar) -> Scalar:
    """FLOP that the busiest core issues for one product, whole tiles of it, padding included."""
    cut = tile(x, given, f.weights.operand_itemsize)
    each = jnp.maximum(_tiles_of(given, cut, columns) / cores, 1.0)
    return each * 2.0 * cut.rows * cut.columns * depth


def unpacked(x: Shape, given: Load, f: Formats, cores: Scalar) -> Scalar:
    """Weights that a core converts to the format of the matrix unit, those of each tile anew [1]; 0 where it need
    not."""
    cut = tile(x, given, f.weights.operand_itemsize)
    each = sum(_tiles_of(given, cut, columns) * cut.columns * depth for columns, depth in products(x)) / cores
    return jnp.where(weight_bytes(x, f) < f.weights.operand_itemsize, each, 0.0)


def bytes_moved(x: Shape, given: Load, f: Formats, device: Device) -> Scalar:
    """Weights of the touched experts, read once, and what both products, the activation between them and the sum of a
    token's copies read and write [byte]; what one of them writes and the next reads stays in L2 as far as it fits."""
    weights = given.touched * sum(columns * depth for columns, depth in products(x)) * weight_bytes(x, f)
    (up, hidden), (_, width) = products(x)
    own = does(x, "own_rows")
    handed = (given.rows * up, given.rows * width, jnp.where(own, given.rows, given.copies) * hidden)
    permuted = jnp.where(own, given.rows * hidden, 0.0)
    size, room = f.activations.itemsize, cache(x, device)
    between = sum(each * size * (1.0 + _missed(each * size / room)) for each in (*handed, permuted))
    return weights + between + 2.0 * given.tokens * hidden * size


def _missed(footprint: Scalar) -> Scalar:
    """Share of what was just written that is read from memory again [1], by its size over L2; the power is assumed."""
    return 1.0 - 1.0 / (1.0 + footprint**4)


def cache(x: Shape, device: Device) -> Scalar:
    """L2 that what is read again may fill [byte]: half of it where each partition has a copy (`x["partitioned"]`:
    1)."""
    return device.l2_capacity / (1.0 + way(x, "partitioned"))


def weight_bytes(x: Shape, f: Formats) -> Scalar:
    """Bytes of a weight as the kernel finds it: of those that were converted before (`x["unpacked"]`: 1) an
    activation's."""
    return jnp.where(does(x, "unpacked"), f.activations.itemsize, f.weights.itemsize)


def bytes_from_l2(x: Shape, given: Load, f: Formats) -> Scalar:
    """Operands that the cores take from L2 for all tiles [byte]."""
    cut = tile(x, given, f.weights.operand_itemsize)
    each = cut.rows * f.weights.operand_itemsize + cut.columns * weight_bytes(x, f)
    loads = [_tiles_of(given, cut, columns) * each * depth for columns, depth in products(x)]
    return sum(loads, start=as_float(0.0))


def line_over_row(x: Shape, f: Formats) -> Scalar:
    """A line of L2 over what a step reads of one row of the weights, at least 1 [1]; 1 where they lie in another
    order."""
    row = tile(x, load(x), f.weights.operand_itemsize).depth * weight_bytes(x, f)
    plain = does(x, "tiles_by_experts")
    return jnp.where(plain, jnp.maximum(LINE / row, 1.0), 1.0)


def steps(x: Shape, given: Load, f: Formats, cores: Scalar) -> Scalar:
    """Times that a block waits for its next operands, one after the other, in both products [1].

    A step is fetched while `ahead` others are; other blocks hide nothing of the last one's waits. Marlin cuts the
    reduction where there are fewer tiles than cores.
    """
    cut = tile(x, given, f.weights.operand_itemsize)
    found = as_float(0.0)
    for columns, depth in products(x):
        striped = jnp.minimum(_tiles_of(given, cut, columns) / cores, 1.0)
        share = jnp.where(does(x, "tiles_by_copies"), striped, 1.0)
        started = jnp.maximum(_tiles_of(given, cut, columns) / (cores * RESIDENT), 1.0)
        found += ceil_div(depth, cut.depth) / cut.ahead * share + STARTS * started
    return found


def _tiles_of(given: Load, cut: Tile, columns: Scalar) -> Scalar:
    return tiles(given, cut.rows) * ceil_div(columns, cut.columns)
