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
import jax.numpy as jnp

from calibration.datasets.prefill_kernels import ORDINARY
from calibration.kernels.asked import Shape, way
from calibration.kernels.hardware import Hardware
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
# Accumulators of 128 queries and heads of 256 fill the registers of a core; a kernel for larger ones takes fewer
# queries at a time and reads the keys as much more often.
ACCUMULATORS = 128.0 * 256.0
RESIDENT = 2.0  # blocks that share a core and hide each other's start (FlashAttention-2); one where one fills the core
# A tile that is asked for once the last one is multiplied: cycles until it arrives, and bytes of it in a cycle. Round
# figures of SGLang's kernel in Triton, the same for heads of 64 and 192 on the L40S and of 512 on the H100.
LATENCY, RATE = 3000.0, 25.0
USUAL_ROWS, LEAST_START = 128.0, 0.5  # rows of a block whose start is one; the start of the smallest blocks
SMALL, SMALLER = 64.0, 16.0  # rows of the blocks that a kernel takes where there are no more

AS_READ = ("windowed", "spilled", "looked_at", "serial", "dividing", "whole")


class Prefill(eqx.Module):
    """A kernel's `batch` of sequences and of `heads` that are taken apart; its `queries`, the tokens cached before them
    (`prefix`) and the `span` of keys that a query sees [1]; widths of a query or key and of a value as they are
    multiplied [elements]; the `rows` of a block, of which a `group` belongs to one query; elements of a key and a
    value as they are read (`stored`); and the fields of `PrefillReading`."""

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
    resident: Scalar
    stored: Scalar
    spilled: Scalar
    looked_at: Scalar
    serial: Scalar
    windowed: Scalar
    dividing: Scalar
    whole: Scalar

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
        return jnp.maximum(self.shared(cores), self.longest() / parts)


def prefill_of(family: str, x: Shape) -> Prefill:
    """What the columns of a family's tables, and what is known of its kernel, say of it."""
    if family == "mla_prefill":
        none, widths = jnp.zeros_like(x["q_len"]), (as_float(NOPE + ROPE), as_float(VALUE))
        return _prefill(x, x["kv_len"] - x["q_len"], none, widths, as_float(NOPE + ROPE + VALUE))
    size = jnp.where(_way(x, "padded") > 0.0, next_power_of_two(x["head_dim"]), x["head_dim"])
    return _prefill(x, x["prefix"], x["window"], (size, size), 2.0 * x["head_dim"])


def _prefill(x: Shape, prefix: Scalar, window: Scalar, widths: tuple[Scalar, Scalar], stored: Scalar) -> Prefill:
    key_width, value_width = widths
    usual = value_width <= _way(x, "head")
    group = jnp.where(_way(x, "packed") > 0.0, x["heads"] / x.get("kv_heads", x["heads"]), 1.0)
    rows, few = jnp.where(usual, _way(x, "rows"), _way(x, "rows_beyond")), group * x["q_len"]
    fitting = jnp.where(few <= SMALLER, SMALLER, jnp.where(few <= SMALL, SMALL, rows))
    return Prefill(
        batch=x["batch"],
        heads=x["heads"] / group,
        queries=x["q_len"],
        prefix=prefix,
        span=jnp.where(window > 0.0, window, UNLIMITED),
        key_width=key_width,
        value_width=value_width,
        rows=jnp.where(_way(x, "fitting") > 0.0, jnp.minimum(fitting, rows), rows),
        group=group,
        keys=jnp.where(usual, _way(x, "keys"), _way(x, "keys_beyond")),
        resident=jnp.where(usual, _way(x, "resident"), 1.0),
        stored=stored,
        **{name: _way(x, name) for name in AS_READ},
    )


def starts(prefill: Prefill, hardware: Hardware) -> Scalar:
    """Blocks of 128 rows whose start the busiest core waits for, one after the other, and small kernels beside them,
    in such starts [1].

    Kernels whose matrix instructions read shared memory themselves fill it with one block (FlashAttention-3).
    """
    residents = jnp.where(hardware.reads_shared > 0.0, 1.0, RESIDENT)
    each = jnp.maximum(prefill.rows / USUAL_ROWS, LEAST_START) / residents
    small = prefill.windowed * as_float(prefill.span < UNLIMITED)
    return ceil_div(prefill.blocks, hardware.device.num_cores) * each + small


def products_time(prefill: Prefill, hardware: Hardware, operands: NumberFormat) -> Scalar:
    """Time of the busiest core's matrix units [s]."""
    cores = hardware.device.num_cores
    flops = 2.0 * (prefill.key_width + prefill.value_width) * prefill.rows * prefill.busiest(cores)
    again = jnp.maximum(prefill.rows * prefill.value_width / ACCUMULATORS, 1.0)
    return flops * again * cores / matrix_peak(hardware.device, operands)


def beside_products_time(prefill: Prefill, hardware: Hardware) -> Scalar:
    """Time that the busiest core's exponentials, its loads from shared memory, and its waits for tiles take [s]; 0 on
    other than GPUs."""
    cores = hardware.device.num_cores
    scores = prefill.busiest(cores) * prefill.rows
    loaded = (prefill.key_width + prefill.value_width) * ITEMSIZE / ROWS_PER_LOAD * (1.0 - hardware.reads_shared)
    cycles = scores * (1.0 / hardware.exponentials + loaded / SHARED_BYTES_PER_CYCLE) + waiting(prefill, cores)
    return cycles / hardware.clock * hardware.many_cores


def waiting(prefill: Prefill, cores: Scalar) -> Scalar:
    """Waits of the busiest core for its tiles, which blocks on one core hide from each other, and for the masks of
    those that it passes over [cycle]."""
    spilled = prefill.spilled * as_float(prefill.rows * prefill.value_width >= ACCUMULATORS)
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


def _way(x: Shape, name: str) -> Scalar:
    return way(x, name, getattr(ORDINARY, name))
