"""The indexer of attention to chosen blocks of tokens (MiniMax M3, arXiv:2606.13392).

For each group of heads that share keys and values a small head scores every earlier token; the best score in a block of
tokens is the block's, and the group attends to all tokens of the best blocks. Keys of the indexer are one for all heads
and held by every tensor-parallel rank; its heads are divided like those of keys and values.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.attention import AttentionShape, decode_attention_cost
from jaxperf.kernels.sparse_attention import (
    Indexer,
    indexer_decode_cost,
    indexer_prefill_cost,
    sparse_prefill_attention_cost,
    top_k_cost,
)
from jaxperf.models import mixers as described
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import cache_write, plain_linear, rotary
from jaxperf.models.blocks.phase import Decode, Phase
from jaxperf.models.deployment import Deployment


class BlockIndexerArrays(eqx.Module):
    """Scoring heads, elements of their queries and of the cached key, tokens chosen for each query, in blocks of
    `block` tokens [1]; `pooled` where a block has one key, the mean of its tokens', by which all heads choose it at
    once and every rank alike (structure)."""

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float)
    block: Float[Array, "*batch"] = eqx.field(converter=as_float)
    pooled: bool = eqx.field(static=True, default=False)

    @property
    def cached(self) -> Scalar:
        """Elements kept of a token [1]."""
        return self.dim / self.block if self.pooled else self.dim

    def shard(self, ranks: Scalar) -> Scalar:
        """Scoring heads of one tensor-parallel rank [1]."""
        return self.heads if self.pooled else jnp.maximum(ceil_div(self.heads, ranks), 1.0)

    def kernels(self, at: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        """Projections of queries and key, the write of the key, scores of tokens or blocks and the choice of blocks."""
        tokens, heads = phase.tokens, self.shard(at.layout.tensor_parallel)
        written, choosing = (1.0, 1.0) if self.pooled else (heads / self.block, heads)
        shape = Indexer(heads, self.dim, self.chosen, written)
        cache, gemm, pool = at.cache, at.efficiencies.gemm, self.block if self.pooled else as_float(1.0)
        if isinstance(phase, Decode):
            seen = phase.context
            scored = jnp.maximum(seen / pool, 1.0)
            scores = indexer_decode_cost(at.device, shape, phase.sequences, scored, cache, at.activations, gemm)
        else:
            seen = phase.prefix + (phase.prompt + 1.0) / 2.0  # the mean of what the queries see
            scores = indexer_prefill_cost(
                at.device, shape, phase.sequences / pool, phase.prompt, phase.prefix, cache, at.activations, gemm
            )
        columns = jnp.maximum(seen / self.block, 1.0)
        stream = at.efficiencies.elementwise
        return {
            "indexer_projection": plain_linear(at, tokens, (heads + 1.0) * self.dim, hidden),
            "indexer_rotary": rotary(at, tokens, heads + 1.0, self.dim),
            "indexer_key_write": cache_write(at, tokens, self.cached),
            "indexer": scores,
            "top_k": top_k_cost(at.device, tokens * choosing, columns, self.chosen / self.block, stream),
        }

    def attend(self, at: Deployment, shape: AttentionShape, phase: Phase) -> Cost:
        """Attention of the heads of `shape` to the tokens of the chosen blocks, or to all while they are fewer."""
        cache, activations = at.cache, at.activations
        if isinstance(phase, Decode):
            seen, efficiency = jnp.minimum(phase.context, self.chosen), at.efficiencies.attention_decode
            return decode_attention_cost(at.device, shape, phase.sequences, seen, cache, activations, efficiency)
        efficiency = at.efficiencies.attention_prefill
        return sparse_prefill_attention_cost(
            at.device,
            dataclasses.replace(shape, mask=None),
            self.chosen,
            phase.sequences,
            phase.prompt,
            phase.prefix,
            cache,
            activations,
            efficiency,
        )

    def elements(self, hidden: Scalar, ranks: Scalar) -> Scalar:
        """Elements of the projections of one rank [1]."""
        return hidden * (self.shard(ranks) + 1.0) * self.dim


def block_indexer_arrays(indexer: described.Indexer) -> BlockIndexerArrays:
    """The arrays of a described indexer."""
    together = max(indexer.block, indexer.pool)
    return BlockIndexerArrays(indexer.heads, indexer.dim, indexer.top_k, together, indexer.pool > 1)
