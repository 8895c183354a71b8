"""The indexer of sparse latent attention (DeepSeek V3.2, arXiv:2512.02556): it chooses the tokens a query sees.

A few small heads score every earlier token against one cached key; the `chosen` best are then attended to on the
latent, in prefill as in decode. Every tensor-parallel rank scores with all of these heads.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, as_optional_float
from jaxperf.kernels.mla import LatentShape
from jaxperf.kernels.sparse_attention import (
    Indexer,
    indexer_decode_cost,
    indexer_prefill_cost,
    sparse_decode_attention_cost,
    sparse_prefill_attention_cost,
    top_k_cost,
)
from jaxperf.models import mixers as described
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import cache_write, gate, plain_linear
from jaxperf.models.blocks.phase import Decode, Phase
from jaxperf.models.deployment import Deployment


class IndexerArrays(eqx.Module):
    """Scoring heads, elements of their queries and of the cached key, tokens chosen for each query [1]; `shared` where
    an earlier layer chose them (structure); `pool`: tokens that share a key, a weighted sum of theirs, None for a key
    each."""

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float)
    shared: bool = eqx.field(static=True, default=False)
    pool: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)

    @property
    def columns(self) -> Scalar:
        """Elements projected of a token for its key, its weight in a pool and the weights of the heads [1]."""
        return (self.dim if self.pool is None else 2.0 * self.dim) + self.heads

    @property
    def cached(self) -> Scalar:
        """Elements kept of a token [1]."""
        if self.shared:
            return as_float(0.0)
        return self.dim if self.pool is None else self.dim / self.pool

    def kernels(self, at: Deployment, hidden: Scalar, q_rank: Scalar, phase: Phase) -> Kernels:
        """Projections of queries, key and head weights, the write of the key, scores and the choice; none if shared."""
        if self.shared:
            return {}
        tokens, stream = phase.tokens, at.efficiencies.elementwise
        shape, gemm = Indexer(self.heads, self.dim, self.chosen), at.efficiencies.gemm
        pool = as_float(1.0) if self.pool is None else self.pool
        kernels = {
            "indexer_query_projection": plain_linear(at, tokens, self.heads * self.dim, q_rank),
            "indexer_key_projection": plain_linear(at, tokens, self.columns, hidden),
            "indexer_key_write": cache_write(at, tokens, self.cached),
        }
        if self.pool is not None:
            kernels["indexer_key_pooling"] = gate(at, tokens, self.dim)
        if isinstance(phase, Decode):
            columns = jnp.maximum(phase.context / pool, 1.0)
            scores = indexer_decode_cost(at.device, shape, phase.sequences, columns, at.cache, at.activations, gemm)
        else:  # of all causal pairs one in `pool` is scored
            scores = indexer_prefill_cost(
                at.device, shape, phase.sequences / pool, phase.prompt, phase.prefix, at.cache, at.activations, gemm
            )
            seen = phase.prefix + (phase.prompt + 1.0) / 2.0  # the mean of what the queries see
            columns = jnp.maximum(seen / pool, 1.0)
        choice = top_k_cost(at.device, tokens, columns, self.chosen / pool, stream)
        return kernels | {"indexer": scores, "top_k": choice}

    def attend(self, at: Deployment, shape: LatentShape, phase: Phase) -> Cost:
        """Attention of the heads of `shape` to the chosen tokens, on the latent."""
        sequences = phase.sequences
        if isinstance(phase, Decode):
            efficiency = at.efficiencies.mla_decode
            return sparse_decode_attention_cost(
                at.device, shape, self.chosen, sequences, phase.context, at.cache, at.activations, efficiency
            )
        core, efficiency = shape.absorbed, at.efficiencies.attention_prefill
        return sparse_prefill_attention_cost(
            at.device, core, self.chosen, sequences, phase.prompt, phase.prefix, at.cache, at.activations, efficiency
        )

    def elements(self, hidden: Scalar, q_rank: Scalar) -> Scalar:
        """Elements of its projections [1]."""
        return as_float(0.0) if self.shared else q_rank * self.heads * self.dim + hidden * self.columns


def indexer_arrays(indexer: described.Indexer) -> IndexerArrays:
    """The arrays of a described indexer."""
    pool = None if indexer.pool == 1 else indexer.pool
    return IndexerArrays(indexer.heads, indexer.dim, indexer.top_k, indexer.shared, pool)
