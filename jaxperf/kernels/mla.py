"""Multi-head latent attention: a latent per token is cached, not its keys and values (DeepSeek-V2, arXiv 2405.04434).

A cached token is a latent c of `kv_rank` elements, from which W_UK and W_UV make the keys and values of all heads, and
one rotary key of `rope_dim` elements that all heads share. Not absorbed, keys and values are expanded and attention is
multi-head. Absorbed, W_UK moves to the query and W_UV to the output, since q (W_UK c) = (W_UK^T q) c: attention is then
multi-query on the latents themselves, which serve as keys and as values.
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
from jaxperf.core.numerics import Scalar, as_float, as_optional_float, ceil_div
from jaxperf.kernels.attention import (
    PACKED_QUERIES,
    AttentionShape,
    prefill_attention_cost,
)
from jaxperf.kernels.batched_gemm import BatchedGemm, batched_gemm_cost
from jaxperf.kernels.gemm import linear_cost
from jaxperf.kernels.masks import Causal
from jaxperf.kernels.roofline import kernel_cost, matrix_peak

BLOCK_HEADS, BLOCK_KEYS = 64.0, 64.0  # of FlashMLA: rows of an instruction of four warps, latents of a page


class LatentShape(eqx.Module):
    """One layer on one rank: `heads` (split over ranks), widths of a query and key without and with rotary positions,
    of a value, and of the latent (not split); `window` keys at most are visible, None for all [1]."""

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    nope_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    rope_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    value_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    kv_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    window: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)

    @property
    def mask(self) -> Causal:
        """What a query sees."""
        return Causal(0.0 if self.window is None else self.window)

    @property
    def cached_dim(self) -> Float[Array, "*batch"]:
        """Elements cached per token, for all heads together [1]."""
        return self.kv_rank + self.rope_dim

    @property
    def expanded(self) -> AttentionShape:
        """Not absorbed: every head has its own keys and values."""
        window = 0.0 if self.window is None else self.window
        return AttentionShape(self.heads, self.heads, self.nope_dim + self.rope_dim, window, value_dim=self.value_dim)

    @property
    def absorbed(self) -> AttentionShape:
        """Absorbed: all heads read the latent, whose first `kv_rank` elements are the value too."""
        return AttentionShape(self.heads, 1.0, self.cached_dim, value_dim=self.kv_rank, cached_dim=self.cached_dim)


@jax.jit
def mla_prefill_cost(
    device: Device,
    shape: LatentShape,
    batch: Scalar,
    queries: Scalar,
    prefix: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Prefill, not absorbed: causal multi-head attention over expanded keys and values.

    These are activations of `mla_expand_cost`, which the prefix goes through as well: its latents are what is cached.

    **Arguments:** as `prefill_attention_cost`. **Returns:** `Cost` of scalars.
    """
    return prefill_attention_cost(device, shape.expanded, batch, queries, prefix, activations, activations, efficiency)


@jax.jit
def mla_decode_cost(
    device: Device,
    shape: LatentShape,
    batch: Scalar,
    context: Scalar,
    cache: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Decode, absorbed: 2 heads context (2 kv_rank + rope_dim) FLOP, every cached latent read once for all heads.

    A block multiplies `BLOCK_HEADS` heads with `BLOCK_KEYS` latents at a time, and the cores share all such tiles
    evenly, wherever a sequence ends (FlashMLA's `get_mla_metadata`). Idle ones stretch the read of the latents, which
    takes no longer where the last tile is left out; queries and outputs, which are the same for any context, are not
    stretched. The partial outputs, at most two of a core, are combined in L2.

    **Arguments:** as `decode_attention_cost`. **Returns:** `Cost` of scalars.
    """
    rows = jnp.minimum(ceil_div(shape.heads, as_float(PACKED_QUERIES)) * PACKED_QUERIES, BLOCK_HEADS)
    head_blocks = ceil_div(shape.heads, as_float(BLOCK_HEADS))
    tiles = ceil_div(context, as_float(BLOCK_KEYS))
    busiest = ceil_div(batch * head_blocks * tiles, device.num_cores)
    width = shape.cached_dim + shape.kv_rank  # of a query and an output
    multiplied = busiest * device.num_cores * rows * BLOCK_KEYS * 2.0 * width
    whole = ceil_div(batch * head_blocks * (tiles - 1.0), device.num_cores) * BLOCK_KEYS
    longest = jnp.maximum(busiest * context / tiles, whole)  # latents of the busiest core
    latents = batch * context * shape.cached_dim * cache.itemsize
    others = batch * shape.heads * width * activations.itemsize
    read = longest * device.num_cores / head_blocks * shape.cached_dim * cache.itemsize
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=multiplied / matrix_peak(device, activations),
        flops=2.0 * width * shape.heads * batch * context,
        bytes_moved=latents + others,
        stretch=(read + others) / (latents + others),
    )


@jax.jit
def mla_expand_cost(
    device: Device,
    shape: LatentShape,
    tokens: Scalar,
    weights: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Keys and values of all heads from the latents of `tokens` tokens: one GEMM with W_UK and W_UV side by side."""
    width = shape.heads * (shape.nope_dim + shape.value_dim)
    return linear_cost(device, tokens, width, shape.kv_rank, weights, activations, efficiency)


@jax.jit
def mla_absorb_query_cost(
    device: Device,
    shape: LatentShape,
    tokens: Scalar,
    weights: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """W_UK^T q: a batched GEMM over the heads, [tokens, nope_dim] x [nope_dim, kv_rank]."""
    gemm = BatchedGemm(shape.heads, tokens, shape.kv_rank, shape.nope_dim)
    return batched_gemm_cost(device, gemm, weights, activations, efficiency)


@jax.jit
def mla_absorb_output_cost(
    device: Device,
    shape: LatentShape,
    tokens: Scalar,
    weights: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """W_UV o: a batched GEMM over the heads, [tokens, kv_rank] x [kv_rank, value_dim]."""
    gemm = BatchedGemm(shape.heads, tokens, shape.value_dim, shape.kv_rank)
    return batched_gemm_cost(device, gemm, weights, activations, efficiency)
