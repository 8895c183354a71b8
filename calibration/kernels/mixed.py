"""What one attention kernel over a chunk of prefill and the decodes beside it asks of a core (FlashAttention).

Blocks of the chunk are those of `calibration.kernels.prefill`. A decode has blocks of its own, of which one row, or one
for each query head that shares a key head, is not padding: its tiles of keys take as long as the chunk's. Where a
kernel packs heads and divides keys in steps without a chunk, such a step is decode attention
(`calibration.kernels.decoding`). All functions are of one kernel.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from calibration.datasets.decode_kernels import Reading
from calibration.datasets.mixed_kernels import OF_DECODE
from calibration.kernels import prefill
from calibration.kernels.asked import FULL, Shape, does, way
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import WARP_SHARE, Hardware
from calibration.kernels.in_order import evenly, last_end
from calibration.kernels.latent_decoding import SHARED_BYTES_PER_CYCLE
from calibration.kernels.prefill import Prefill
from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div
from jaxperf.kernels.attention import AttentionShape, decode_attention_cost, prefill_attention_cost
from jaxperf.kernels.roofline import matrix_peak

WARPS = 4.0  # of a block; each loads a tile of keys and values for its own rows
EXPOSED = 0.5  # of those loads, what products of other warps do not hide
# Waits for the two operands of a tile, which a second block on the core hides; and a block that finds that it has no
# queries. Round figures of the tables' H100, A6000 and RTX 4090 [cycle].
WAIT = 500.0
EMPTY = 900.0
DECODE_START = 2.5  # of a block of decode attention, over one of prefill: the units of both laws (`priors`)


def divided(x: Shape) -> Bool[Array, ""]:
    """Whether the step has no chunk and runs as decode attention."""
    return does(x, "apart") & (x["prefill_q"] <= 0.0)


def as_decode(x: Shape) -> Shape:
    """The decodes as a shape of decode attention."""
    own = {name: way(x, OF_DECODE + name, float(usual)) for name, usual in Reading()._asdict().items()}
    decodes = jnp.maximum(x["n_decode"], 1.0)
    return {**x, **own, "batch": decodes, "kv_len": jnp.maximum(context(x), 1.0)}


def as_chunk(x: Shape) -> Prefill:
    """The chunk as prefill, of one sequence."""
    queries, one = jnp.maximum(x["prefill_q"], 1.0), jnp.ones_like(x["prefill_q"])
    return prefill.prefill_of("attention_prefill", {**x, "batch": one, "q_len": queries, "prefix": x["prefill_kv"]})


def context(x: Shape) -> Scalar:
    """Tokens that each decode attends to: as many for all of them, which leaves out a remainder [1]."""
    each = floor_div(x["kv_decode"], jnp.maximum(x["n_decode"], 1.0))
    return jnp.where(x["window"] > 0.0, jnp.minimum(each, x["window"]), each)


def blocks(x: Shape) -> tuple[Scalar, Scalar]:
    """Blocks of the chunk and of the decodes that have queries [1]."""
    chunk = as_chunk(x)
    has_keys = as_float(context(x) > 0.0)  # else the kernel ends before its first tile
    return chunk.each * chunk.heads * as_float(x["prefill_q"] > 0.0), chunk.heads * x["n_decode"] * has_keys


def empty_blocks(x: Shape) -> Scalar:
    """Blocks of the decodes that the chunk's grid starts in vain [1]."""
    chunk = as_chunk(x)
    return way(x, "launched") * (chunk.each - 1.0) * chunk.heads * x["n_decode"]


def keys_of_busiest(x: Shape, cores: Scalar) -> tuple[Scalar, Scalar]:
    """Keys of the tiles of the busiest core, and those of them whose waits nothing else on it hides [1]."""
    chunk, (of_chunk, of_decodes) = as_chunk(x), blocks(x)
    each = ceil_div(context(x), chunk.keys) * chunk.keys
    longest, shortest, mean = _of_chunk(x, chunk)
    parts = jnp.where(does(x, "dividing"), jnp.maximum(floor_div(cores, of_chunk + of_decodes), 1.0), 1.0)
    ordered = last_end(evenly(of_chunk, shortest, longest, mean), evenly(of_decodes, each, each, each), cores)
    most = jnp.maximum(longest * as_float(of_chunk > 0.0), each * as_float(of_decodes > 0.0))
    shared = (of_chunk * mean + of_decodes * each) / cores
    busiest = jnp.where(parts > 1.0, jnp.maximum(shared, most / parts), ordered)
    odd = floor_div(ceil_div(of_chunk + of_decodes, cores), chunk.fitting) * chunk.fitting
    alone = jnp.where(ceil_div(of_chunk + of_decodes, cores) > odd, most, 0.0)
    return busiest, jnp.where(chunk.fitting > 1.0, jnp.minimum(alone, busiest), busiest)


def _of_chunk(x: Shape, chunk: Prefill) -> tuple[Scalar, Scalar, Scalar]:
    """Keys of the tiles of the block of the chunk that sees most, of the one that sees fewest, and of the mean [1]."""
    whole = ceil_div(chunk.prefix + chunk.queries, chunk.keys) * chunk.keys
    first = ceil_div(chunk.prefix + jnp.minimum(chunk.step, chunk.queries), chunk.keys) * chunk.keys
    mean, longest = (chunk.causal() - chunk.hidden()) / chunk.each, chunk.longest()

    def seen(own: Scalar) -> Scalar:
        return jnp.where(does(x, "whole_pairs"), whole, own)

    return seen(longest), seen(jnp.minimum(first, longest)), seen(mean)


def beside_products_time(x: Shape, hardware: Hardware) -> Scalar:
    """Time that the busiest core's exponentials, its loads from shared memory, its waits for tiles and its empty blocks
    take [s]."""
    chunk, cores = as_chunk(x), hardware.device.num_cores
    keys, alone = keys_of_busiest(x, cores)
    reads = 1.0 - hardware.reads_shared * (1.0 - way(x, "by_warps"))
    loaded = (chunk.key_width + chunk.value_width) * prefill.ITEMSIZE * WARPS * EXPOSED / SHARED_BYTES_PER_CYCLE
    cycles = keys * (chunk.rows / hardware.exponentials + loaded * reads)
    cycles = cycles + alone / chunk.keys * WAIT + empty_blocks(x) / cores * EMPTY
    return cycles / hardware.clock


def products_time(x: Shape, hardware: Hardware, operands: NumberFormat) -> Scalar:
    """Time of the busiest core's matrix units [s]."""
    chunk, cores = as_chunk(x), hardware.device.num_cores
    keys, _ = keys_of_busiest(x, cores)
    flops = 2.0 * (chunk.key_width + chunk.value_width) * chunk.rows * keys
    slower = 1.0 + way(x, "by_warps") * (1.0 / WARP_SHARE - 1.0)
    return flops * cores / matrix_peak(hardware.device, operands) * slower


def starts(x: Shape, hardware: Hardware) -> Scalar:
    """Starts of blocks that the busiest core waits for, those that it holds at once being one, in starts of a block of
    128 rows [1]."""
    chunk = as_chunk(x)
    own_start = jnp.maximum(chunk.rows / prefill.USUAL_ROWS, prefill.LEAST_START)
    return ceil_div(sum(blocks(x)), hardware.device.num_cores * chunk.fitting) * own_start


def times_read(x: Shape, f: Formats, device: Device) -> Scalar:
    """How often the decodes' keys leave memory: a grid goes through all sequences of a head before the next, so that
    query heads of one key head find its keys in L2 where these fit, or where they run at the same time [1]."""
    chunk = as_chunk(x)
    group = x["heads"] / x["kv_heads"] / chunk.group
    of_chunk, of_decodes = blocks(x)
    at_once = device.num_cores * chunk.fitting * chunk.heads / jnp.maximum(of_chunk + of_decodes, 1.0)
    of_head = 2.0 * x["head_dim"] * context(x) * x["n_decode"] * f.cache.itemsize
    apart = ~divided(x) & (of_head > device.l2_capacity)
    return jnp.where(apart, jnp.clip(group / jnp.maximum(at_once, 1.0), 1.0, group), 1.0)


def mixed(device: Device, x: Shape, f: Formats) -> Cost:
    """One chunk of prefill and the decodes beside it; `kv_decode` is summed over the sequences."""
    decodes, one = jnp.maximum(x["n_decode"], 1.0), jnp.ones_like(x["n_decode"])
    shape = AttentionShape(x["heads"], x["kv_heads"], x["head_dim"], x["window"])
    chunk = jnp.maximum(x["prefill_q"], 1.0)
    prefill_cost = prefill_attention_cost(device, shape, one, chunk, x["prefill_kv"], f.cache, f.activations, FULL)
    decode_cost = decode_attention_cost(
        device, shape, decodes, jnp.maximum(context(x), 1.0), f.cache, f.activations, FULL, schedule="waves"
    )
    read = eqx.tree_at(lambda cost: cost.memory, decode_cost, decode_cost.memory * times_read(x, f, device))
    return as_float(x["prefill_q"] > 0.0) * prefill_cost + as_float(x["n_decode"] > 0.0) * read
