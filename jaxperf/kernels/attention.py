"""Flash attention: prefill by exact tile counts, decode with split KV (Dao 2023, arXiv 2307.08691; flash-decoding)."""

from __future__ import annotations

import functools
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, as_optional_float, ceil_div, floor_div
from jaxperf.kernels.masks import BLOCK, AbstractMask, Causal
from jaxperf.kernels.roofline import kernel_cost, matrix_peak

PARTIAL_ITEMSIZE = 4.0  # split-KV partial outputs are fp32 [byte]
PACKED_QUERIES = 16.0  # query heads of one KV head fill a matrix instruction of that many rows
MIN_SPLIT_KEYS = 128.0  # a shorter stretch of keys does not pay for combining partial outputs
# Splits are made until the cores have this many blocks each: two where the longest are cut further, so that all cores
# end at once (FlashAttention 3, FlashInfer), four where they even out the last wave (FlashAttention 2).
BLOCKS_PER_CORE = {"even": 2.0, "waves": 4.0}
ALIBI_FLOPS = 2.0  # slope x distance, added to the score (Press et al. 2021, arXiv 2108.12409)
SINK_FLOPS = 2.0  # the exponential of a sink's logit, added to the denominator of the softmax


class AttentionShape(eqx.Module):
    """Heads of one attention layer on one rank; `window` keys at most are visible, 0 means all.

    What a layer lacks is `None`, which is structure: nothing is computed for it. `value_dim`: width of a value where
    it is not `head_dim`, the width of queries and keys; `cached_dim`: elements cached per token and KV head where they
    are not a key and a value (a latent that serves as both); `mask`: where it is not causal with that window;
    `score_flops`: vector FLOP added to every score (`ALIBI_FLOPS`); `sinks`: learned logits per head
    that take part in the softmax without a key (gpt-oss, arXiv 2508.10925: one), which cost next to nothing.
    """

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    kv_heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    window: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    value_dim: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    cached_dim: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    mask: AbstractMask | None = None
    score_flops: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    sinks: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)

    @property
    def span(self) -> Float[Array, "*batch"]:
        """Keys a causal query can see [1]."""
        return Causal(self.window).span

    @property
    def value_width(self) -> Float[Array, "*batch"]:
        """Elements of one value [1]."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def cached_width(self) -> Float[Array, "*batch"]:
        """Elements cached per token and KV head [1]."""
        return self.head_dim + self.value_width if self.cached_dim is None else self.cached_dim

    @property
    def visibility(self) -> AbstractMask:
        """The mask of the layer."""
        return Causal(self.window) if self.mask is None else self.mask


def pair_flops(shape: AttentionShape) -> Scalar:
    """Useful FLOP of one query, one key and one head: QK^T, PV, and what is added to the score [FLOP]."""
    products = 2.0 * (shape.head_dim + shape.value_width)
    return products if shape.score_flops is None else products + shape.score_flops


def score_time(device: Device, shape: AttentionShape, scores: Scalar) -> Scalar | float:
    """Time of one core for what is added to so many scores, on the vector units, not overlapped [s]."""
    if shape.score_flops is None:
        return 0.0
    return scores * shape.score_flops * device.num_cores / device.vector_flops


def sink_work(shape: AttentionShape, queries: Scalar, itemsize: Scalar) -> tuple[Scalar | float, Scalar | float]:
    """(FLOP of the sinks for `queries` queries, bytes of their logits)."""
    if shape.sinks is None:
        return 0.0, 0.0
    return SINK_FLOPS * shape.heads * shape.sinks * queries, shape.heads * shape.sinks * itemsize


@jax.jit
def prefill_attention_cost(
    device: Device,
    shape: AttentionShape,
    batch: Scalar,
    queries: Scalar,
    prefix: Scalar,
    cache: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Attention of `queries` new tokens per sequence over what their mask lets them see of `prefix` cached tokens
    and of themselves.

    Useful FLOP = 2 (head_dim + value_dim) x pairs (QK^T and PV). The busiest core has the larger of an even share of
    all tiles and the longest single query tile. Keys and values are read once per KV head, queries and outputs once.

    **Arguments:** `batch`: sequences [1]; `queries`, `prefix`: tokens per sequence [1]; `cache`: format of stored
    keys and values; `activations`: format of queries, outputs and the two products.
    **Returns:** `Cost` of scalars.
    """
    mask, width = shape.visibility, shape.head_dim + shape.value_width
    tiles = mask.tiles(queries, prefix) * batch * shape.heads
    busiest = jnp.maximum(ceil_div(tiles, device.num_cores), mask.longest(queries, prefix))
    matrix_time = busiest * (2.0 * BLOCK * BLOCK * width) * device.num_cores / matrix_peak(device, activations)
    sink_flops, sink_bytes = sink_work(shape, batch * queries, activations.itemsize)
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=matrix_time + score_time(device, shape, busiest * BLOCK * BLOCK),
        flops=pair_flops(shape) * shape.heads * batch * mask.pairs(queries, prefix) + sink_flops,
        bytes_moved=batch
        * (
            queries * (shape.heads * width * activations.itemsize)
            + mask.keys(queries, prefix) * (shape.kv_heads * shape.cached_width * cache.itemsize)
        )
        + sink_bytes,
    )


@functools.partial(jax.jit, static_argnames="schedule")
def decode_attention_cost(
    device: Device,
    shape: AttentionShape,
    batch: Scalar,
    context: Scalar,
    cache: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
    schedule: Literal["even", "waves"] = "even",
) -> Cost:
    """One new token per sequence against `context` cached keys, the KV cache split over idle cores.

    Blocks = batch x KV heads x splits. The query heads that share a KV head are packed into one matrix instruction.
    The busiest core has blocks / cores of them, at least one, or with whole waves ceil(blocks / cores); the read is
    stretched by its share of the mean. Splits write and read fp32 partial outputs.

    **Arguments:** `batch`: sequences [1]; `context`: tokens per sequence, the new one included [1]; the mask says how
    many of them it sees, and cross-attention sees its own number instead; `schedule`: see `BLOCKS_PER_CORE`, structure.
    **Returns:** `Cost` of scalars.
    """
    width = shape.head_dim + shape.value_width
    keys = shape.visibility.visible(context)
    groups = batch * shape.kv_heads
    most = jnp.maximum(floor_div(keys, as_float(MIN_SPLIT_KEYS)), 1.0)
    splits = jnp.clip(floor_div(BLOCKS_PER_CORE[schedule] * device.num_cores, groups), 1.0, most)
    blocks = groups * splits
    waves = ceil_div(blocks, device.num_cores)
    share = waves if schedule == "waves" else jnp.maximum(blocks / device.num_cores, 1.0)  # of the busiest core
    packed = ceil_div(shape.heads / shape.kv_heads, as_float(PACKED_QUERIES)) * PACKED_QUERIES
    scores = share * packed * ceil_div(keys, splits)
    queries = batch * shape.heads
    partial_outputs = jnp.where(splits > 1.0, 2.0 * splits * queries * shape.value_width * PARTIAL_ITEMSIZE, 0.0)
    sink_flops, sink_bytes = sink_work(shape, batch, activations.itemsize)
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=scores * (2.0 * width) * device.num_cores / matrix_peak(device, activations)
        + score_time(device, shape, scores),
        flops=pair_flops(shape) * queries * keys + sink_flops,
        bytes_moved=keys * (groups * shape.cached_width * cache.itemsize)
        + queries * width * activations.itemsize
        + partial_outputs
        + sink_bytes,
        stretch=share * device.num_cores / blocks,
    )
