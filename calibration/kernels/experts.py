"""What a grouped product of one rank's experts works through: how many rows each expert gets, and in which tiles.

Tables of layers are measured on synthetic routing, which is computed here as it was made (aiconfigurator,
`balanced_logits`, `_generate_power_law_distribution` and `build_rank0_local_workload` of collector/helper.py): either
every expert gets the same number of tokens, or loads follow a power law and the measured rank is the one with the most.
Where a table states neither, each token chooses its experts at random.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from calibration.kernels.asked import Shape
from calibration.kernels.formats import Formats
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, next_power_of_two
from jaxperf.kernels.moe import ROW_TOLERANCE, Routing, rank_rows, touched_experts

LINE = 128.0  # bytes of a line of L2
# Blocks of a grouped product that a core holds at once, and waits of one that hides nothing of them: for its rows'
# numbers, its first operands, and its output. Assumed; of 0 to 10 waits a block side by side with the tables in sight.
RESIDENT, STARTS = 2.0, 4.0
# Weights of 4 bits that a core unpacks in a cycle. Set with the tables in sight: Marlin's and Triton's kernels read
# such weights at 2.2 TB/s on the H100 and the H200 alike, so not as fast as memory gives them: 18 a core and cycle.
UNPACKED = 30.0
NODES = 32  # loads that stand for those of all experts of a rank
# The most loaded expert of a layer, before all loads are scaled to their sum, over the least: of a layer with more
# copies than experts 0.8 tokens over one, else 2 over 0.01 (`_generate_power_law_distribution`).
BUSIEST, FEW_COPIES = 0.8, (0.01, 2.0)


class Load(eqx.Module):
    """Of one rank: `tokens` that enter; `copies` of them, other ranks' experts' included; `rows` multiplied; `touched`
    experts; experts with the same number of rows together: `piles` of them, each with `heights` rows [1]."""

    tokens: Float[Array, ""]
    copies: Float[Array, ""]
    rows: Float[Array, ""]
    touched: Float[Array, ""]
    piles: Float[Array, " N"]
    heights: Float[Array, " N"]


class Tile(eqx.Module):
    """An output tile of a grouped product, the depth of one of its steps, and how many steps are fetched `ahead` (the
    stages of its pipeline less the one that is multiplied) [1]."""

    rows: Float[Array, ""]
    columns: Float[Array, ""]
    depth: Float[Array, ""]
    ahead: Float[Array, ""]


def load(x: Shape) -> Load:
    """What the measured rank gets, as the ways of the table's routing tell (`calibration.datasets.routing`)."""
    kinds = (_random(x), _balanced(x), _power_law(x))
    at = jnp.where(_way(x, "skew") > 0.0, 2, jnp.where(_way(x, "balanced") > 0.0, 1, 0))
    own = jax.tree.map(lambda *each: jnp.select([at == place for place in range(len(each))], each), *kinds)
    return _with_remote(x, own)


def tiles(given: Load, height: Scalar) -> Scalar:
    """Tiles of so many rows that all experts of the rank take together: each has its own."""
    return jnp.sum(given.piles * ceil_div(given.heights, jnp.full_like(given.heights, height)))


def products(x: Shape) -> tuple[tuple[Scalar, Scalar], ...]:
    """Columns and depth of both products of an expert; the first makes a gate as well, unless `ungated`."""
    width = x["inter"] / x["tp"]
    return ((2.0 - _way(x, "ungated")) * width, x["hidden"]), (x["hidden"], width)


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
    own = _way(x, "own_rows") > 0.0
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
    return device.l2_capacity / (1.0 + x.get("partitioned", jnp.zeros_like(device.l2_capacity)))


def weight_bytes(x: Shape, f: Formats) -> Scalar:
    """Bytes of a weight as the kernel finds it: of those that were converted before (`x["unpacked"]`: 1) an
    activation's."""
    return jnp.where(_way(x, "unpacked") > 0.0, f.activations.itemsize, f.weights.itemsize)


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
    plain = _way(x, "tiles_by_experts") > 0.0
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
        share = jnp.where(_way(x, "tiles_by_copies") > 0.0, striped, 1.0)
        started = jnp.maximum(_tiles_of(given, cut, columns) / (cores * RESIDENT), 1.0)
        found += ceil_div(depth, cut.depth) / cut.ahead * share + STARTS * started
    return found


def _tiles_of(given: Load, cut: Tile, columns: Scalar) -> Scalar:
    return tiles(given, cut.rows) * ceil_div(columns, cut.columns)


def _random(x: Shape) -> Load:
    routing = Routing(x["experts"], x["topk"])
    rows = jnp.maximum(rank_rows(routing, x["tokens"], x["ep"]), 1.0)
    touched = jnp.clip(touched_experts(routing, x["tokens"], x["experts"] / x["ep"]), 1.0, rows)
    return _load(x, rows, touched, jnp.full(NODES, touched / NODES), jnp.full(NODES, _whole(rows / touched)))


def _balanced(x: Shape) -> Load:
    """Token t chooses the experts t + i stride, or evenly spaced ones where tokens are fewer than the stride."""
    stride, local = ceil_div(x["experts"], x["topk"]), x["experts"] / x["ep"]
    chosen = jnp.minimum(x["tokens"], stride)  # tokens that choose other experts than each other
    share = jnp.minimum(local / stride, 1.0)
    touched = jnp.clip(chosen * local / stride, 1.0, local)
    each = ceil_div(x["tokens"], stride)
    rows = jnp.maximum(x["tokens"] * local / stride, 1.0)
    return _load(x, rows, touched, jnp.full(NODES, touched / NODES), jnp.full(NODES, each), share * x["tokens"])


def _power_law(x: Shape) -> Load:
    """Loads x of density x^-skew, scaled to their sum, rounded, and repaired by single rows of the least loaded."""
    tokens, local, ranks = x["tokens"], x["experts"] / x["ep"], x["ep"]
    mean_rows = tokens * x["topk"] / x["experts"]
    low, high = _ends(tokens, mean_rows)
    skew = jnp.where(_way(x, "skew") > 0.0, _way(x, "skew"), 0.5)
    mean = _moment(low, high, skew, 1.0)
    at = (as_float(jnp.arange(NODES)) + 0.5) / NODES
    drawn = (low ** (1.0 - skew) + at * (high ** (1.0 - skew) - low ** (1.0 - skew))) ** (1.0 / (1.0 - skew))
    heights = jnp.round(jnp.minimum(drawn / mean * mean_rows, tokens))
    usual = local * mean_rows
    rows = jnp.clip(
        usual * _busiest(local, ranks, _moment(low, high, skew, 2.0) / mean**2 - 1.0), usual, local * tokens
    )
    rows = jnp.maximum(jnp.minimum(rows, tokens * x["topk"]), 1.0)
    loaded = jnp.mean(as_float(heights > 0.0))
    single = jnp.maximum(mean_rows - jnp.mean(heights), 0.0)
    share = jnp.minimum(loaded + single, 1.0) * jnp.where(mean_rows < 1.5, rows / usual, 1.0)
    touched = jnp.maximum(jnp.minimum(local * share, jnp.minimum(local, rows)), 1.0)
    alone = jnp.maximum(touched - local * loaded, 0.0)
    piles = jnp.full(NODES, local / NODES)
    return _load(x, rows, touched, piles, heights, None, alone, jnp.round(jnp.maximum(rows - usual, 0.0)))


def _ends(tokens: Scalar, mean_rows: Scalar) -> tuple[Scalar, Scalar]:
    few, many = FEW_COPIES
    low = jnp.where(mean_rows > 1.0, 1.0, few)
    return low, jnp.where(mean_rows > 1.0, jnp.maximum(BUSIEST * tokens, 1.001), many)


def _moment(low: Scalar, high: Scalar, skew: Scalar, power: float) -> Scalar:
    """Mean of x^power under a density x^-skew between two ends."""
    of = lambda p: (high**p - low**p) / p  # noqa: E731
    return of(power + 1.0 - skew) / of(1.0 - skew)


def _busiest(local: Scalar, ranks: Scalar, variance: Scalar) -> Scalar:
    """Load of the busiest rank over the mean: the expected largest of so many gamma variables (Blom's plotting
    position;
    Wilson and Hilferty's cube of a normal variable), `variance` that of one expert's load over its squared mean."""
    shape = local / variance
    largest = jax.scipy.special.ndtri((ranks - 0.375) / (ranks + 0.25))
    cube = jnp.maximum(1.0 - 1.0 / (9.0 * shape) + largest / (3.0 * jnp.sqrt(shape)), 0.0) ** 3
    return jnp.where(ranks > 1.0, cube, 1.0)


def _load(
    x: Shape,
    rows: Scalar,
    touched: Scalar,
    piles: Array,
    heights: Array,
    seen: Scalar | None = None,
    alone: Scalar | float = 0.0,
    most: Scalar | float = 0.0,
) -> Load:
    """`seen`: tokens that chose any expert of the rank; `alone`: experts with one row besides the piles, and `most`
    rows of one more."""
    seen = x["tokens"] * -jnp.expm1(-rows / x["tokens"]) if seen is None else seen
    more = lambda first, second: jnp.stack([as_float(first), as_float(second)])  # noqa: E731
    piles = jnp.concatenate([piles, more(jnp.full_like(rows, alone), jnp.ones_like(rows))])
    heights = jnp.concatenate([heights, more(jnp.ones_like(rows), jnp.full_like(rows, most))])
    return Load(jnp.where(x["ep"] > 1.0, seen, x["tokens"]), x["tokens"] * x["topk"], rows, touched, piles, heights)


def _with_remote(x: Shape, own: Load) -> Load:
    """Whose kernel skips what is not its own takes all tokens in; whose does not (`remote_first`) takes those that
    chose
    any of its experts, and multiplies their other copies by its first expert."""
    whole = _way(x, "remote_first") > 0.0
    tokens = jnp.where(whole, _whole(own.tokens), x["tokens"])
    copies = tokens * x["topk"]
    remote = jnp.where(whole, jnp.round(jnp.maximum(copies - own.rows, 0.0)), 0.0)
    piles, heights = jnp.append(own.piles, 1.0), jnp.append(own.heights, remote)
    return Load(tokens, copies, own.rows + remote, own.touched, piles, heights)


def tile(x: Shape, given: Load, itemsize: Scalar) -> Tile:
    """The tile that the software of a kernel chooses.

    Where the ways name no rule, a library's: the next power of two above an expert's rows, 16 to 128, of 128 columns.
    """
    local = x["experts"] / x["ep"]
    usual = jnp.clip(next_power_of_two(_whole(given.rows / given.touched)), 16.0, 128.0)
    chosen = [usual, *(jnp.full_like(usual, each) for each in (128.0, 64.0, 3.0))]
    for way, own in {
        "tiles_by_experts": _by_experts(given.tokens, local, itemsize),
        "tiles_by_tokens": _by_tokens(x, given.tokens, itemsize),
        "tiles_by_copies": _by_copies(given.copies / local),
    }.items():
        named = _way(x, way) > 0.0
        chosen = [jnp.where(named, mine, other) for mine, other in zip(own, chosen, strict=True)]
    return Tile(*chosen)


def _by_experts(tokens: Scalar, local: Scalar, itemsize: Scalar) -> tuple[Scalar | float, ...]:
    """`get_default_config` of SGLang's fused_moe_triton_config.py, and of vLLM's fused_moe.py until 0.14: 16 x 32 where
    tokens are no more than experts, else 64 x 64; of 8-bit blocks 64 x 128."""
    few, narrow = tokens <= local, itemsize < 2.0
    return (
        jnp.where(few & ~narrow, 16.0, 64.0),
        jnp.where(narrow, 128.0, jnp.where(few, 32.0, 64.0)),
        jnp.where(narrow, 128.0, jnp.where(few, 64.0, 32.0)),
        2.0,
    )


def _by_tokens(x: Shape, tokens: Scalar, itemsize: Scalar) -> tuple[Scalar | float, ...]:
    """`get_default_config` of later versions of vLLM's fused_moe.py; of 8-bit blocks as recalled."""
    blocks, narrow = _way(x, "in_blocks") > 0.0, itemsize < 2.0
    rows = jnp.where(tokens <= 32.0, 16.0, jnp.where(tokens <= 96.0, 32.0, jnp.where(tokens <= 512.0, 64.0, 128.0)))
    return (
        jnp.where(blocks, jnp.where(tokens <= 64.0, 16.0, 64.0), rows),
        jnp.where(blocks | (tokens > 64.0), 128.0, 64.0),
        jnp.where(narrow | (tokens <= 64.0), 128.0, 64.0),
        jnp.where((tokens <= 32.0) & ~blocks, 3.0, 2.0),
    )


def _by_copies(each: Scalar) -> tuple[Scalar | float, ...]:
    """Marlin's `fused_marlin_moe` (recalled): the least of some heights of which a mean expert's copies fill 0.9."""
    rows = jnp.full_like(each, 64.0)
    for height in (48.0, 32.0, 16.0):
        rows = jnp.where(each < 0.9 * height, height, rows)
    return rows, 128.0, 64.0, 3.0


def _whole(expected: Scalar) -> Scalar:
    """An expected number of rows, rounded up, where it is not whole but for rounding."""
    return ceil_div(jnp.maximum(expected - ROW_TOLERANCE, 1.0), jnp.ones_like(expected))


def _way(x: Shape, name: str) -> Scalar:
    return as_float(x.get(name, jnp.zeros_like(x["tokens"])))
