"""What attention over many queries asks of a core, where a GPU gives each core blocks of queries (FlashAttention).

A block multiplies a tile of queries by one of keys after the other. Between its two products stand the exponentials of
the softmax, on the special-function units; and where matrix instructions take operands from registers, the warps load
each tile of keys and values from shared memory. Both are the block's own, so that they add to its products
(FlashAttention-3, arXiv:2407.08608, section 3.2, overlaps a part of them). Where products leave their results in a
memory of their own, a block has two tiles, and the exponentials of one are computed while the other is multiplied (as
in CUTLASS's example 77 for Blackwell; recalled). All functions are of one kernel.
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
from calibration.kernels.latent_decoding import ROPE, SHARED_BYTES_PER_CYCLE
from calibration.kernels.latents import NOPE, VALUE
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div, next_power_of_two
from jaxperf.kernels.masks import UNLIMITED
from jaxperf.kernels.roofline import matrix_peak

# Queries for which a warp loads a tile once: FlashAttention-2's four warps of 32 rows load each tile four times, of
# which other warps' products hide half. The half is assumed, with the measured tables in sight (docs/kernel-laws.md).
ROWS_PER_LOAD = 64.0
ITEMSIZE = 2.0  # of operands in shared memory; where registers feed the matrix units, 8-bit ones are converted [byte]
TRANSPOSING = 2.0  # a value of 8 bits is read from shared memory and written there [byte]
# Accumulators of 128 queries and heads of 256 fill the registers of a core; a kernel for larger ones takes fewer
# queries at a time and reads the keys as much more often.
ACCUMULATORS = 128.0 * 256.0
THREADS, REGISTERS = 128.0, 255.0  # of a block in four warps, and of each of its threads
RESIDENT = 2.0  # blocks at most that share a core and hide each other's start
RESERVED = 1024.0  # of shared memory, for each block (CUDA C++ programming guide, technical specifications) [byte]
# A tile that is asked for once the last one is multiplied: cycles until it arrives, and bytes of it in a cycle. Round
# figures of SGLang's kernel in Triton, the same for heads of 64 and 192 on the L40S and of 512 on the H100.
LATENCY, RATE = 3000.0, 25.0
USUAL_ROWS, LEAST_START = 128.0, 0.5  # rows of a block whose start is one; the start of the smallest blocks
SMALL, SMALLER = 64.0, 16.0  # rows of the blocks that a kernel takes where there are no more
SHORT, SHORT_KEYS = 64.0, 32.0  # keys for which a kernel takes smaller tiles, and keys of those

USUAL = ORDINARY.columns()
UNSTATED_MEMORY = 164e3  # of a core, where a table does not tell its device: the A100's [byte]
AS_READ = (
    "windowed",
    "resident",
    "spilled",
    "looked_at",
    "serial",
    "dividing",
    "whole",
    "in_registers",
    "padding",
    "strewn",
    "rising",
    "transposed",
)


class Prefill(eqx.Module):
    """A kernel's `batch` of sequences and of `heads` that are taken apart; its `queries`, the tokens cached before them
    (`prefix`) and the `span` of keys that a query sees [1]; widths of a query or key and of a value as they are
    multiplied [elements]; the `rows` of a block, of which a `group` belongs to one query; elements of a key and a
    value as they are read (`stored`); shared memory of a core (`core_memory`) [byte]; and the fields of
    `PrefillReading`."""

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
    windowed: Scalar
    dividing: Scalar
    whole: Scalar
    in_registers: Scalar
    padding: Scalar
    strewn: Scalar
    rising: Scalar
    transposed: Scalar

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
        return self.each * self.heads * self.batch

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
        return seen * self.heads * self.batch / cores

    def busiest(self, cores: Scalar) -> Scalar:
        """Keys of the tiles of the busiest core: its share, or those of the longest block, which blocks that no core
        was left for may divide [1]."""
        parts = jnp.where(self.dividing > 0.0, jnp.maximum(floor_div(cores, self.blocks), 1.0), 1.0)
        balanced = jnp.maximum(self.shared(cores), self.longest() / parts)
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


def as_seen(x: Shape) -> Shape:
    """The shape of `attention_prefill` without a window that hides no key: twins were measured at 0.998 to 1.002 of
    each other. Kernels that any window makes go another way keep it: those with small kernels for it, and those that
    swap heads and queries where there is none."""
    other = (_way(x, "windowed") > 0.0) | ((_way(x, "swapped") > 0.0) & (x["q_len"] == 1.0))
    idle = (x["window"] >= x["prefix"] + x["q_len"]) & ~other
    return {**x, "window": jnp.where(idle, 0.0, x["window"])}


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
    rows, keys, few = _tile(x, "rows", value_width), _tile(x, "keys", value_width), group * x["q_len"]
    short = (_way(x, "short") > 0.0) & (prefix + x["q_len"] <= SHORT)
    small = jnp.where(few <= SMALLER, SMALLER, jnp.where(few <= SMALL, SMALL, rows))
    rows = jnp.where(_way(x, "fitting") > 0.0, jnp.minimum(small, rows), jnp.where(short, SMALL, rows))
    return Prefill(
        batch=x["batch"],
        heads=x["heads"] / group,
        queries=x["q_len"],
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
    return ceil_div(prefill.blocks, hardware.device.num_cores) * each + small


def products_time(prefill: Prefill, hardware: Hardware, operands: NumberFormat) -> Scalar:
    """Time of the busiest core's matrix units [s]."""
    cores = hardware.device.num_cores
    flops = 2.0 * (prefill.key_width + prefill.value_width) * prefill.rows * prefill.busiest(cores)
    again = jnp.maximum(prefill.rows * prefill.value_width / ACCUMULATORS, 1.0)
    return flops * again * cores / matrix_peak(hardware.device, operands)


def beside_products_time(prefill: Prefill, hardware: Hardware) -> Scalar:
    """Time that the busiest core's exponentials, its loads from shared memory, its turning of values there and its
    waits for tiles take [s]; 0 on other than GPUs."""
    cores = hardware.device.num_cores
    scores = prefill.busiest(cores) * prefill.rows
    loaded = (prefill.key_width + prefill.value_width) * ITEMSIZE / ROWS_PER_LOAD * (1.0 - hardware.reads_shared)
    turned = prefill.transposed * prefill.busiest(cores) * prefill.value_width * TRANSPOSING / SHARED_BYTES_PER_CYCLE
    cycles = scores * (1.0 / hardware.exponentials + loaded / SHARED_BYTES_PER_CYCLE)
    cycles += turned + waiting(prefill, cores)
    return cycles / hardware.clock * hardware.many_cores


def waiting(prefill: Prefill, cores: Scalar) -> Scalar:
    """Waits of the busiest core for its tiles, which blocks on one core hide from each other, and for the masks of
    those that it passes over [cycle]."""
    spilled = prefill.spilled * prefill.too_large
    wait = prefill.serial * (LATENCY + prefill.keys * prefill.stored * ITEMSIZE / RATE)
    waits = jnp.maximum(prefill.shared(cores) * (wait / prefill.resident + spilled), wait * prefill.longest())
    passed = prefill.looked_at * prefill.hidden() * prefill.heads * prefill.batch / cores
    return (waits + passed) / prefill.keys


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
