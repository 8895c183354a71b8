"""What a grouped product of one rank's experts works through: FLOP, steps and bytes of the tiles of its experts' rows.

`calibration.kernels.expert_load` says how many rows each expert gets, `expert_tiles` beside it in which tiles.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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


class Work(eqx.Module):
    """Of one rank: `tokens`, `copies`, `rows` and `touched` as in `expert_load.Load`; `stacked`: tiles of rows of all
    experts together [1], and the `tile` of both products."""

    tokens: Float[Array, ""]
    copies: Float[Array, ""]
    rows: Float[Array, ""]
    touched: Float[Array, ""]
    stacked: Float[Array, ""]
    tile: Tile


# Columns that hold a work which was settled before, in the order of its leaves.
SETTLED = (
    *("rank_tokens", "rank_copies", "rank_rows", "touched", "stacked"),
    *("tile_rows", "tile_columns", "tile_depth", "tile_ahead"),
)


def work(x: Shape, f: Formats) -> Work:
    """What the experts of a rank work through; as `settled` found it, where it did."""
    if SETTLED[0] in x:
        found = [x[name] for name in SETTLED]
        return Work(*found[:5], tile=Tile(*found[5:]))
    given = load(x)
    cut = tile(x, given, f.weights.operand_itemsize)
    return Work(given.tokens, given.copies, given.rows, given.touched, tiles(given, cut.rows), cut)


def settled(x: Shape, f: Formats) -> Shape:
    """The work as further columns of a shape, in which `work` finds it."""
    return dict(zip(SETTLED, jax.tree.leaves(work(x, f)), strict=True))


def tiles(given: Load, height: Scalar) -> Scalar:
    """Tiles of so many rows that all experts of the rank take together: each has its own."""
    piles = given.piles * jnp.sum(ceil_div(given.heights, jnp.full_like(given.heights, height)))
    return piles + given.single + ceil_div(given.most, height) + ceil_div(given.remote, height)


def products(x: Shape) -> tuple[tuple[Scalar, Scalar], ...]:
    """Columns and depth of both products of an expert; the first makes a gate as well, unless `ungated`."""
    width = x["inter"] / x["tp"]
    return ((2.0 - way(x, "ungated")) * width, x["hidden"]), (x["hidden"], width)


def busiest_flops(given: Work, columns: Scalar, depth: Scalar, cores: Scalar) -> Scalar:
    """FLOP that the busiest core issues for one product, whole tiles of it, padding included."""
    each = jnp.maximum(_tiles_of(given, columns) / cores, 1.0)
    return each * 2.0 * given.tile.rows * given.tile.columns * depth


def unpacked(x: Shape, given: Work, f: Formats, cores: Scalar) -> Scalar:
    """Weights that a core converts to the format of the matrix unit, those of each tile anew [1]; 0 where it need
    not."""
    each = sum(_tiles_of(given, columns) * given.tile.columns * depth for columns, depth in products(x)) / cores
    return jnp.where(weight_bytes(x, f) < f.weights.operand_itemsize, each, 0.0)


def bytes_moved(x: Shape, given: Work, f: Formats, device: Device) -> Scalar:
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


def bytes_from_l2(x: Shape, given: Work, f: Formats) -> Scalar:
    """Operands that the cores take from L2 for all tiles [byte]."""
    each = given.tile.rows * f.weights.operand_itemsize + given.tile.columns * weight_bytes(x, f)
    loads = [_tiles_of(given, columns) * each * depth for columns, depth in products(x)]
    return sum(loads, start=as_float(0.0))


def line_over_row(x: Shape, given: Work, f: Formats) -> Scalar:
    """A line of L2 over what a step reads of one row of the weights, at least 1 [1]; 1 where they lie in another
    order."""
    row = given.tile.depth * weight_bytes(x, f)
    plain = does(x, "tiles_by_experts")
    return jnp.where(plain, jnp.maximum(LINE / row, 1.0), 1.0)


def steps(x: Shape, given: Work, cores: Scalar) -> Scalar:
    """Times that a block waits for its next operands, one after the other, in both products [1].

    A step is fetched while `ahead` others are; other blocks hide nothing of the last one's waits. Marlin cuts the
    reduction where there are fewer tiles than cores.
    """
    found = as_float(0.0)
    for columns, depth in products(x):
        striped = jnp.minimum(_tiles_of(given, columns) / cores, 1.0)
        share = jnp.where(does(x, "tiles_by_copies"), striped, 1.0)
        started = jnp.maximum(_tiles_of(given, columns) / (cores * RESIDENT), 1.0)
        found += ceil_div(depth, given.tile.depth) / given.tile.ahead * share + STARTS * started
    return found


def _tiles_of(given: Work, columns: Scalar) -> Scalar:
    return given.stacked * ceil_div(columns, given.tile.columns)
