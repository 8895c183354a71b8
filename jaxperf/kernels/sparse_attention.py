"""Top-k sparse attention with a lightning indexer (DeepSeek Sparse Attention, DeepSeek-V3.2, arXiv 2512.02556).

For every query the indexer scores all tokens before it, I = sum over its heads of weight ReLU(q k); the `chosen` tokens
with the largest scores are then attended to. The key of the indexer is cached once per token.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div
from jaxperf.kernels.attention import PACKED_QUERIES, AttentionShape, pair_flops
from jaxperf.kernels.elementwise import Stream, stream_cost, two_pass_reads
from jaxperf.kernels.masks import BLOCK, UNLIMITED, causal_pairs, visited_tiles
from jaxperf.kernels.mla import LatentShape, mla_decode_cost
from jaxperf.kernels.roofline import kernel_cost, matrix_peak

SCORE_ITEMSIZE = 4.0  # scores are fp32 [byte]
INDEX_ITEMSIZE = 4.0  # positions of chosen tokens are int32 [byte]
WEIGHT_ITEMSIZE = 4.0  # weights of the heads are fp32 [byte]
HEAD_OPERATIONS = 3.0  # ReLU, times the weight, added: per head and score, on the vector units
SELECT_OPERATIONS = 4.0  # a radix selection of 32-bit scores looks at 8 bits at a time: operations per score


class Indexer(eqx.Module):
    """`heads` scoring queries of `head_dim` elements a token, one key of `head_dim`; `chosen` tokens are kept; scores
    `written` for each pair of query and key: the heads' sum, or one a head for each block of keys [1]."""

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float)
    written: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)


def ramp_tiles(queries: Scalar, prefix: Scalar, span: Scalar) -> Scalar:
    """Key tiles where every query has its own: sum over i < queries of ceil(min(span, prefix + i + 1) / B) [1]."""
    rising = jnp.clip(span - prefix, 0.0, queries)
    return _tiles_up_to(prefix, rising) + (queries - rising) * ceil_div(span, as_float(BLOCK))


def _tiles_up_to(start: Scalar, count: Scalar) -> Scalar:
    """Sum of ceil(x / B) over start < x <= start + count, without differences of large numbers."""
    block = as_float(BLOCK)
    tile = floor_div(start, block)  # numbers up to (tile + 1) B have tile + 1 tiles
    first = jnp.minimum(count, (tile + 1.0) * block - start)
    rest = count - first
    whole = floor_div(rest, block)
    last = rest - whole * block
    return first * (tile + 1.0) + block * whole * (tile + 1.0 + (whole + 1.0) / 2.0) + last * (tile + whole + 2.0)


@jax.jit
def indexer_prefill_cost(
    device: Device,
    indexer: Indexer,
    batch: Scalar,
    queries: Scalar,
    prefix: Scalar,
    cache: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Scores of all causal pairs: heads (2 head_dim + 3) FLOP each; whole tiles are multiplied, fp32 scores written.

    **Arguments:** `batch`: sequences [1]; `queries`, `prefix`: tokens per sequence [1]; `cache`: format of stored
    keys; `activations`: format of queries and product (fp8 in DeepSeek-V3.2).
    **Returns:** `Cost` of scalars.
    """
    pairs = batch * causal_pairs(queries, prefix, as_float(UNLIMITED))
    tiles = batch * visited_tiles(queries, prefix, as_float(UNLIMITED))
    busiest = ceil_div(tiles, device.num_cores) * BLOCK * BLOCK
    read = queries * indexer.heads * (indexer.head_dim * activations.itemsize + WEIGHT_ITEMSIZE)
    keys = (prefix + queries) * indexer.head_dim * cache.itemsize
    return _scoring_cost(device, indexer, busiest, pairs, batch * (read + keys), activations, efficiency)


@jax.jit
def indexer_decode_cost(
    device: Device,
    indexer: Indexer,
    batch: Scalar,
    context: Scalar,
    cache: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Scores of one new token per sequence against `context` keys, cut into tiles of 128 keys for all cores.

    **Returns:** `Cost` of scalars.
    """
    tiles = batch * ceil_div(context, as_float(BLOCK))
    rows = ceil_div(indexer.heads, as_float(PACKED_QUERIES)) * PACKED_QUERIES / indexer.heads  # padding of the heads
    busiest = ceil_div(tiles, device.num_cores) * BLOCK * rows
    read = indexer.heads * (indexer.head_dim * activations.itemsize + WEIGHT_ITEMSIZE)
    keys = context * indexer.head_dim * cache.itemsize
    return _scoring_cost(device, indexer, busiest, batch * context, batch * (read + keys), activations, efficiency)


def _scoring_cost(
    device: Device,
    indexer: Indexer,
    busiest: Scalar,
    pairs: Scalar,
    read: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """`pairs` useful scores, `busiest` computed on the busiest core; the matrix and vector units overlap."""
    matrix = indexer.heads * indexer.head_dim * 2.0 / matrix_peak(device, activations)
    vector = indexer.heads * HEAD_OPERATIONS / device.vector_flops
    return kernel_cost(
        device,
        efficiency(indexer, device),
        compute=busiest * device.num_cores * jnp.maximum(matrix, vector),
        flops=pairs * indexer.heads * (2.0 * indexer.head_dim + HEAD_OPERATIONS),
        bytes_moved=read + pairs * indexer.written * SCORE_ITEMSIZE,
    )


@jax.jit
def top_k_cost(device: Device, rows: Scalar, columns: Scalar, chosen: Scalar, efficiency: AbstractEfficiency) -> Cost:
    """The positions of the `chosen` largest of `columns` fp32 scores in each row, by radix selection.

    A second look at the scores comes from on-chip memory where the rows in flight fit the L2. In a prefill a row has
    prefix + queries columns, of which on average about half are visible: take that mean as `columns`.

    **Returns:** `Cost` of scalars; its operations are those of selecting, not of arithmetic on scores.
    """
    scores = rows * columns
    reads = two_pass_reads(device, rows, columns * SCORE_ITEMSIZE)
    written = rows * jnp.minimum(chosen, columns) * INDEX_ITEMSIZE
    stream = Stream(scores * SCORE_ITEMSIZE * reads, written, SELECT_OPERATIONS * scores)
    return stream_cost(device, stream, efficiency)


@jax.jit
def sparse_prefill_attention_cost(
    device: Device,
    shape: AttentionShape,
    chosen: Scalar,
    batch: Scalar,
    queries: Scalar,
    prefix: Scalar,
    cache: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Every query attends to its own `chosen` tokens, or to all before it while they are fewer.

    One query is one block: its heads (per KV head) fill matrix rows, its keys whole tiles. Rows of the cache are
    gathered per query; they come from device memory once, and again for the share of the cache beyond the L2.

    **Arguments:** `shape`: the heads, absorbed for latent attention; `chosen`: tokens per query [1]; the rest as
    `prefill_attention_cost`. **Returns:** `Cost` of scalars.
    """
    packed = ceil_div(shape.heads / shape.kv_heads, as_float(PACKED_QUERIES)) * PACKED_QUERIES
    blocks = batch * shape.kv_heads
    tiles = blocks * ramp_tiles(queries, prefix, chosen)
    longest = ceil_div(jnp.minimum(chosen, prefix + queries), as_float(BLOCK))
    busiest = jnp.maximum(ceil_div(tiles, device.num_cores), longest)
    width = shape.head_dim + shape.value_width
    pairs = batch * causal_pairs(queries, prefix, chosen)
    key_bytes = shape.kv_heads * shape.cached_width * cache.itemsize
    stored = batch * (prefix + queries) * key_bytes
    missed = jnp.maximum(1.0 - device.l2_capacity / stored, 0.0)
    again = jnp.maximum(pairs * key_bytes - stored, 0.0) * missed
    seen = jnp.minimum(stored, pairs * key_bytes)  # few queries do not even touch every token
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=busiest * packed * BLOCK * (2.0 * width) * device.num_cores / matrix_peak(device, activations),
        flops=pair_flops(shape) * shape.heads * pairs,
        bytes_moved=seen
        + again
        + batch * queries * (shape.heads * width * activations.itemsize)
        + batch * queries * jnp.minimum(chosen, prefix + queries) * INDEX_ITEMSIZE,
    )


@jax.jit
def sparse_decode_attention_cost(
    device: Device,
    shape: LatentShape,
    chosen: Scalar,
    batch: Scalar,
    context: Scalar,
    cache: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """One new token per sequence against the latents of its `chosen` tokens, or of all while they are fewer.

    **Arguments:** as `mla_decode_cost`. **Returns:** `Cost` of scalars.
    """
    return mla_decode_cost(device, shape, batch, jnp.minimum(chosen, context), cache, activations, efficiency)
