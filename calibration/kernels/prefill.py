"""What attention over many queries asks of a core, where a GPU gives each core blocks of queries (FlashAttention).

A block multiplies a tile of queries by one of keys after the other (what it does beside that: `prefill_beside`). All
functions are of one kernel.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from calibration.datasets.prefill_kernels import CLASSES, ORDINARY
from calibration.kernels.asked import Shape, way
from calibration.kernels.decoding import PADDED, PADDED_SIZE
from calibration.kernels.hardware import Hardware
from calibration.kernels.in_order import Blocks, evenly, last_end, last_end_rising
from calibration.kernels.latent_decoding import ROPE
from calibration.kernels.latents import NOPE, VALUE
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div, next_power_of_two
from jaxperf.kernels.masks import UNLIMITED
from jaxperf.kernels.roofline import matrix_peak

ITEMSIZE = 2.0  # of operands in shared memory; where registers feed the matrix units, 8-bit ones are converted [byte]
IDLE_SHARE = 0.5  # of a block's time, where it has no queries: zeros draw less power; by FlashInfer's rows of the L40S
LEAST_PART = (
    128.0  # keys of a block that shares them with others, at least: a tile of FlashAttention 3, and FlashInfer's
)
# Accumulators of 128 queries and heads of 256 fill the registers of a core; a kernel for larger ones takes fewer
# queries at a time and reads the keys as much more often.
ACCUMULATORS = 128.0 * 256.0
THREADS, REGISTERS = 128.0, 255.0  # of a block in four warps, and of each of its threads
RESIDENT = 2.0  # blocks at most that share a core and hide each other's start
RESERVED = 1024.0  # of shared memory, for each block (CUDA C++ programming guide, technical specifications) [byte]
USUAL_ROWS, LEAST_START = 128.0, 0.5  # rows of a block whose start is one; the start of the smallest blocks
SMALL, SMALLER = 64.0, 16.0  # rows of the blocks that a kernel takes where there are no more
SHORT, SHORT_KEYS = 64.0, 32.0  # keys for which a kernel takes smaller tiles, and keys of those

USUAL = ORDINARY.columns()
UNSTATED_MEMORY = 164e3  # of a core, where a table does not tell its device: the A100's [byte]


class Prefill(eqx.Module):
    """A kernel's `batch` of sequences and of `heads` that are taken apart; its `queries`, the tokens cached before them
    (`prefix`) and the `span` of keys that a query sees [1]; widths of a query or key and of a value as they are
    multiplied [elements]; the `rows` of a block, of which a `group` belongs to one query; elements of a key and a
    value as they are read (`stored`); shared memory of a core (`core_memory`) [byte]; and the fields of
    `PrefillReading`.

    Where blocks were planned for another group, `queries` are those that they take of the `asked`, and `idle` blocks of
    a head have none. `first_keys`: of a tile, where a block is smaller than usual, else 0 [1]."""

    batch: Scalar
    heads: Scalar
    queries: Scalar
    prefix: Scalar
    span: Scalar
    key_width: Scalar
    value_width: Scalar
    rows: Scalar
    group: Scalar
    keys: Scalar
    stored: Scalar
    core_memory: Scalar
    resident: Scalar
    spilled: Scalar
    looked_at: Scalar
    serial: Scalar
    itemsize: Scalar
    windowed: Scalar
    dividing: Scalar
    whole: Scalar
    in_registers: Scalar
    padding: Scalar
    strewn: Scalar
    rising: Scalar
    transposed: Scalar
    converting: Scalar
    first: Scalar
    twice: Scalar
    merging: Scalar
    captured: Scalar
    asked: Scalar
    idle: Scalar
    first_keys: Scalar

    @property
    def step(self) -> Scalar:
        """Queries of a block [1]."""
        return self.rows / self.group

    @property
    def side(self) -> Scalar:
        """Blocks whose queries are as many as the keys of a tile [1]."""
        return self.keys * self.group / self.rows

    @property
    def each(self) -> Scalar:
        """Blocks of what is taken apart [1]."""
        return ceil_div(self.queries * self.group, self.rows)

    @property
    def fitting(self) -> Scalar:
        """Blocks that a core's shared memory holds, up to two: their queries and a tile of keys and values [1]."""
        held = self.rows * self.key_width + self.keys * (self.key_width + self.value_width)
        return jnp.clip(floor_div(self.core_memory, held * ITEMSIZE + RESERVED), 1.0, RESIDENT)

    @property
    def too_large(self) -> Scalar:
        """1 where a block's accumulators, and its operands of one byte if they are held whole, need more registers than
        there are, else 0."""
        head = self.stored / 2.0  # what pads it is multiplied, but not held: heads of 192 run as those of 128 do
        accumulators = self.rows * (self.keys + head) / THREADS
        queries = self.rows * head / (4.0 * THREADS)
        tile = self.keys * self.stored / THREADS  # each of the four warps holds it
        held = accumulators + queries + tile
        full = jnp.where(self.in_registers > 0.0, held > REGISTERS, self.rows * self.value_width >= ACCUMULATORS)
        return as_float(full)

    @property
    def blocks(self) -> Scalar:
        """Blocks of all sequences, as if none divided its keys [1]."""
        return (self.each + self.idle) * self.heads * self.batch

    def causal(self) -> Scalar:
        """Keys of all tiles up to each block's last query, of the blocks `each` [1]."""
        n, side = self.each, self.side
        first = ceil_div(self.prefix * self.group, self.rows)
        shared = _rounded_up(first + n - 1.0, side) - _rounded_up(first, side)
        apart = (n - 1.0) * ceil_div(self.prefix, self.keys) + n * (n - 1.0) / 2.0 / side
        before = jnp.where(side > 1.0, shared, apart)
        return (before + ceil_div(self.prefix + self.queries, self.keys)) * self.keys

    def hidden(self) -> Scalar:
        """Those of them in tiles that the window hides from all of a block's queries [1]."""
        n, side = self.each, self.side
        beyond = self.span - 1.0 - self.prefix
        first = -floor_div(-beyond * self.group, self.rows)
        shared = _rounded_down(n - 1.0 - first, side) - _rounded_down(-first - 1.0, side)
        tiles = -floor_div(-beyond, self.keys)
        start = jnp.clip(floor_div(tiles * side, jnp.ones_like(n)) + 1.0, 0.0, n)
        apart = (n - start) * ((start + n - 1.0) / 2.0 / side - tiles)
        return jnp.where(side > 1.0, shared, apart) * self.keys

    def longest(self) -> Scalar:
        """Keys of the tiles of the block that sees most, at most one tile too few where cached tokens are no multiple
        of a tile [1]."""
        most = ceil_div(self.prefix + self.queries, self.keys) * self.keys
        near = ceil_div(self.span + self.step, self.keys) * self.keys
        return jnp.where(self.whole > 0.0, most, jnp.minimum(most, near))

    def shared(self, cores: Scalar) -> Scalar:
        """A core's share of the keys of all tiles that are multiplied [1]."""
        seen = self.causal() - jnp.where(self.whole > 0.0, 0.0, self.hidden())
        return (seen + IDLE_SHARE * self.idle * self.longest()) * self.heads * self.batch / cores

    def parts(self, cores: Scalar) -> Scalar:
        """Blocks that share the keys of one, where there are too few to fill the cores [1]."""
        most = jnp.minimum(floor_div(self.dividing * cores, self.blocks), ceil_div(self.longest(), LEAST_PART))
        return jnp.maximum(most, 1.0)

    def merged(self, cores: Scalar) -> Scalar:
        """1 where a kernel adds up what such blocks leave, else 0."""
        captured = (self.captured > 0.0) & (self.queries == 1.0)
        return as_float((self.merging > 0.0) & (captured | (self.parts(cores) > 1.0)))

    def busiest(self, cores: Scalar) -> Scalar:
        """Keys of the tiles of the busiest core: its share, or those of the longest block, which blocks that no core
        was left for may divide [1]."""
        parts = self.parts(cores)
        together = jnp.where(parts > 1.0, ceil_div(self.blocks * parts, cores), 1.0)
        balanced = jnp.maximum(self.shared(cores), self.longest() / parts * together)
        own = self.lengths(cores)
        none = jax.tree.map(jnp.zeros_like, own)
        ordered = jnp.where((self.strewn > 0.0) & (parts <= 1.0), last_end(own, none, cores), balanced)
        return jnp.where(self.rising > 0.0, last_end_rising(own, cores), ordered)

    def lengths(self, cores: Scalar) -> Blocks:
        """The keys of the blocks' tiles [1]."""
        longest = self.longest()
        first = ceil_div(self.prefix + jnp.minimum(self.step, self.queries), self.keys) * self.keys
        mean = self.shared(cores) * cores / self.blocks
        return evenly(self.blocks, jnp.minimum(first, longest), longest, mean)


AS_READ = tuple(name for name in USUAL if name in Prefill.__dataclass_fields__)


def as_seen(x: Shape) -> Shape:
    """The shape of `attention_prefill` without a window that hides no key: twins were measured at 0.998 to 1.002 of
    each other. Kernels that any window makes go another way keep it: those with small kernels for it, and those that
    swap heads and queries where there is none."""
    other = (_way(x, "windowed") > 0.0) | ((_way(x, "swapped") > 0.0) & (x["q_len"] == 1.0))
    idle = (x["window"] >= x["prefix"] + x["q_len"]) & ~other
    return {**x, "window": jnp.where(idle, 0.0, x["window"])}


def covered(x: Shape) -> Shape:
    """The shape of those queries of `attention_prefill` that its blocks take: all of them where blocks were planned for
    as many query heads a key head as there are."""
    return {**x, "q_len": prefill_of("attention_prefill", x).queries}


def prefill_of(family: str, x: Shape) -> Prefill:
    """What the columns of a family's tables, and what is known of its kernel, say of it."""
    if family == "mla_prefill":
        none, widths = jnp.zeros_like(x["q_len"]), (as_float(NOPE + ROPE), as_float(VALUE))
        return _prefill(x, x["kv_len"] - x["q_len"], none, widths, as_float(NOPE + ROPE + VALUE))
    size = jnp.where(_way(x, "padded") > 0.0, next_power_of_two(x["head_dim"]), x["head_dim"])
    return _prefill(x, x["prefix"], x["window"], (size, size), 2.0 * x["head_dim"])


def _prefill(x: Shape, prefix: Scalar, window: Scalar, widths: tuple[Scalar, Scalar], stored: Scalar) -> Prefill:
    key_width, value_width = widths
    packed = (_way(x, "packed") > 0.0) | ((_way(x, "swapped") > 0.0) & (x["q_len"] == 1.0) & (window <= 0.0))
    group = jnp.where(packed, x["heads"] / x.get("kv_heads", x["heads"]), 1.0)
    planned = jnp.where(_way(x, "planned") > 0.0, _way(x, "planned"), group)
    usual, keys, few = _tile(x, "rows", value_width), _tile(x, "keys", value_width), planned * x["q_len"]
    short = (_way(x, "short") > 0.0) & (prefix + x["q_len"] <= SHORT)
    small = jnp.where(few <= SMALLER, SMALLER, jnp.where(few <= SMALL, SMALL, usual))
    rows = jnp.where(_way(x, "fitting") > 0.0, jnp.minimum(small, usual), jnp.where(short, SMALL, usual))
    blocks = ceil_div(few, rows)
    return Prefill(
        batch=x["batch"],
        heads=x["heads"] / group,
        queries=jnp.minimum(x["q_len"], blocks * rows / group),
        asked=x["q_len"],
        idle=jnp.maximum(blocks - ceil_div(x["q_len"] * group, rows), 0.0),
        first_keys=jnp.where((rows < usual) & (rows > SMALLER), keys * usual / rows, 0.0),
        prefix=prefix,
        span=jnp.where(window > 0.0, window, UNLIMITED),
        key_width=key_width,
        value_width=value_width,
        rows=rows,
        group=group,
        keys=jnp.where(short, SHORT_KEYS, keys),
        stored=stored,
        core_memory=way(x, "shared", UNSTATED_MEMORY),
        **{name: _way(x, name) for name in AS_READ},
    )


def starts(prefill: Prefill, hardware: Hardware) -> Scalar:
    """Blocks of 128 rows whose start the busiest core waits for, one after the other, and small kernels beside them,
    in such starts [1].

    Kernels whose matrix instructions read shared memory themselves fill it with one block (FlashAttention-3).
    """
    residents = jnp.where(hardware.reads_shared > 0.0, 1.0, prefill.fitting)
    each = jnp.maximum(prefill.rows / USUAL_ROWS, LEAST_START) / residents
    small = prefill.windowed * as_float(prefill.span < UNLIMITED)
    small += PADDED * prefill.padding * as_float(prefill.stored == 2.0 * PADDED_SIZE)
    small += prefill.merged(hardware.device.num_cores)
    return ceil_div(prefill.blocks, hardware.device.num_cores) * each + small


def products_time(prefill: Prefill, hardware: Hardware, operands: NumberFormat) -> Scalar:
    """Time of the busiest core's matrix units [s]."""
    cores = hardware.device.num_cores
    flops = 2.0 * (prefill.key_width + prefill.value_width) * prefill.rows * prefill.busiest(cores)
    again = jnp.maximum(prefill.rows * prefill.value_width / ACCUMULATORS, 1.0)
    return flops * again * cores / matrix_peak(hardware.device, operands)


def _rounded_up(most: Scalar, side: Scalar) -> Scalar:
    """Sum of ceil(u / side) over 1 <= u <= most; 0 where that is negative [1]."""
    most = jnp.maximum(most, 0.0)
    full = floor_div(most, side)
    return side * full * (full + 1.0) / 2.0 + (most - side * full) * (full + 1.0)


def _rounded_down(most: Scalar, side: Scalar) -> Scalar:
    """Sum of floor(u / side) over 0 <= u <= most; 0 where that is negative [1]."""
    most = jnp.maximum(most, 0.0)
    full = floor_div(most, side)
    return side * full * (full - 1.0) / 2.0 + (most - side * full + 1.0) * full


def _tile(x: Shape, name: str, head: Scalar) -> Scalar:
    """Rows or keys of the first tile that takes heads of this size [1]."""
    found = _way(x, f"{name}_{CLASSES - 1}")
    for place in reversed(range(CLASSES - 1)):
        found = jnp.where(head <= _way(x, f"head_{place}"), _way(x, f"{name}_{place}"), found)
    return found


def _way(x: Shape, name: str) -> Scalar:
    return way(x, name, USUAL[name])
