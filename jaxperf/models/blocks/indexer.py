"""The indexer of sparse latent attention (DeepSeek V3.2, arXiv:2512.02556): it chooses the tokens a query sees.

A few small heads score every earlier token against one cached key; the `chosen` best are then attended to on the
latent, in prefill as in decode. Every tensor-parallel rank scores with all of these heads.
"""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float
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
from jaxperf.models.blocks.launch import cache_write, plain_linear
from jaxperf.models.blocks.phase import Decode, Phase
from jaxperf.models.deployment import Deployment


class IndexerArrays(eqx.Module):
    """Scoring heads, elements of their queries and of the cached key, tokens chosen for each query [1]; `shared` where
    an earlier layer chose them (structure)."""

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float)
    shared: bool = eqx.field(static=True, default=False)

    @property
    def cached(self) -> Scalar:
        """Elements kept of a token [1]."""
        return as_float(0.0) if self.shared else self.dim

    def kernels(self, at: Deployment, hidden: Scalar, q_rank: Scalar, phase: Phase) -> Kernels:
        """Projections of queries, key and head weights, the write of the key, scores and the choice; none if shared."""
        if self.shared:
            return {}
        tokens, stream = phase.tokens, at.efficiencies.elementwise
        shape, gemm = Indexer(self.heads, self.dim, self.chosen), at.efficiencies.gemm
        kernels = {
            "indexer_query_projection": plain_linear(at, tokens, self.heads * self.dim, q_rank),
            "indexer_key_projection": plain_linear(at, tokens, self.dim + self.heads, hidden),
            "indexer_key_write": cache_write(at, tokens, self.dim),
        }
        if isinstance(phase, Decode):
            scores = indexer_decode_cost(
                at.device, shape, phase.sequences, phase.context, at.cache, at.activations, gemm
            )
            columns = phase.context
        else:
            scores = indexer_prefill_cost(
                at.device, shape, phase.sequences, phase.prompt, phase.prefix, at.cache, at.activations, gemm
            )
            columns = phase.prefix + (phase.prompt + 1.0) / 2.0  # the mean of what the queries see
        return kernels | {"indexer": scores, "top_k": top_k_cost(at.device, tokens, columns, self.chosen, stream)}

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
        return as_float(0.0) if self.shared else q_rank * self.heads * self.dim + hidden * (self.dim + self.heads)


def indexer_arrays(indexer: described.Indexer) -> IndexerArrays:
    """The arrays of a described indexer."""
    return IndexerArrays(indexer.heads, indexer.dim, indexer.top_k, indexer.shared)
