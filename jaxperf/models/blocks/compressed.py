"""Attention to a window and to compressed tokens (DeepSeek V4): one key for all heads, which is its value too.

Each `ratio` tokens become one entry of the cache, a weighted mean of what is projected of them. A query sees the tokens
of its window, and all entries (heavily compressed attention) or those that an indexer chooses (compressed sparse
attention, whose entries are made of two blocks each). The outputs of a group of heads are projected to a lower rank.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, as_optional_float, ceil_div, divides
from jaxperf.kernels.mla import LatentShape, mla_decode_cost
from jaxperf.kernels.sparse_attention import (
    Indexer,
    indexer_decode_cost,
    indexer_prefill_cost,
    sparse_prefill_attention_cost,
    top_k_cost,
)
from jaxperf.models.blocks.base import AbstractCached, Kernels
from jaxperf.models.blocks.indexer import IndexerArrays, indexer_arrays
from jaxperf.models.blocks.launch import cache_write, gate, linear, plain_linear, plain_norm, rotary
from jaxperf.models.blocks.phase import Decode, Phase
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import CompressedAttention


class CompressedMixer(AbstractCached):
    """One layer, whole model: heads, their width, the rotary part of it, rank of the queries, window, groups of heads
    and rank of their outputs [1]; `ratio` of tokens to entries, None without entries; `width`: elements projected of a
    token for them. Tensor parallelism splits heads and groups; the cache is held by every rank."""

    name: ClassVar[str] = "attention"

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    rope_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    q_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    window: Float[Array, "*batch"] = eqx.field(converter=as_float)
    groups: Float[Array, "*batch"] = eqx.field(converter=as_float)
    output_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    width: Float[Array, "*batch"] = eqx.field(converter=as_float)
    ratio: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    indexer: IndexerArrays | None = None

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, ranks = phase.tokens, deployment.layout.tensor_parallel
        heads, groups = ceil_div(self.heads, ranks), self._groups(ranks)
        outputs, depth = groups * self.output_rank, heads / groups * self.head_dim
        written = self.head_dim * (1.0 if self.ratio is None else 1.0 + 1.0 / self.ratio)
        kernels = {
            "latent_projection": linear(deployment, tokens, self.q_rank + self.head_dim, hidden),
            "latent_norm": plain_norm(deployment, tokens, self.q_rank + self.head_dim),
            "query_projection": linear(deployment, tokens, heads * self.head_dim, self.q_rank),
            "rotary": rotary(deployment, tokens, 2.0 * heads + 1.0, self.rope_dim),  # outputs are turned back
            "kv_write": cache_write(deployment, tokens, written),
        }
        if self.ratio is not None:
            kernels["compressor_projection"] = linear(deployment, tokens, 2.0 * self.width, hidden)
            kernels["compression"] = gate(deployment, tokens, self.width)
        if self.indexer is not None:
            kernels |= self._choice(deployment, self.indexer, hidden, phase)
        return kernels | {
            "attention": self._attend(deployment, heads, phase),
            "output_down_projection": linear(deployment, tokens, outputs, depth),
            "output_projection": linear(deployment, tokens, hidden, outputs),
        }

    def _groups(self, ranks: Scalar) -> Scalar:
        """Groups that one rank has heads of; of more ranks than groups each sums up a part of one's outputs [1]."""
        return jnp.maximum(ceil_div(self.groups, ranks), 1.0)

    def _entries(self, context: Scalar) -> Scalar:
        """Compressed entries of `context` tokens, between whole ones in proportion [1]."""
        return as_float(0.0) if self.ratio is None else context / self.ratio

    def _seen(self, context: Scalar) -> Scalar:
        """Keys that a query with `context` tokens up to itself attends to [1]."""
        entries = self._entries(context)
        chosen = entries if self.indexer is None else jnp.minimum(entries, self.indexer.chosen)
        return jnp.minimum(context, self.window) + chosen

    def _attend(self, at: Deployment, heads: Scalar, phase: Phase) -> Cost:
        none = as_float(0.0)
        shape = LatentShape(heads, self.head_dim, none, self.head_dim, self.head_dim)
        if isinstance(phase, Decode):
            seen, efficiency = jnp.maximum(self._seen(phase.context), 1.0), at.efficiencies.mla_decode
            return mla_decode_cost(at.device, shape, phase.sequences, seen, at.cache, at.activations, efficiency)
        seen = jnp.maximum(self._seen(_mean_context(phase)), 1.0)
        return sparse_prefill_attention_cost(
            at.device,
            shape.absorbed,
            seen,
            phase.sequences,
            phase.prompt,
            phase.prefix,
            at.cache,
            at.activations,
            at.efficiencies.attention_prefill,
        )

    def _choice(self, at: Deployment, indexer: IndexerArrays, hidden: Scalar, phase: Phase) -> Kernels:
        """Projections, the write of the compressed key, scores of the entries and the choice among them."""
        assert self.ratio is not None
        tokens, gemm = phase.tokens, at.efficiencies.gemm
        shape = Indexer(indexer.heads, indexer.dim, indexer.chosen)
        columns = jnp.maximum(self._entries(_mean_context(phase)), 1.0)
        if isinstance(phase, Decode):
            scores = indexer_decode_cost(at.device, shape, phase.sequences, columns, at.cache, at.activations, gemm)
        else:  # of all causal pairs one in `ratio` is scored
            scores = indexer_prefill_cost(
                at.device,
                shape,
                phase.sequences / self.ratio,
                phase.prompt,
                phase.prefix,
                at.cache,
                at.activations,
                gemm,
            )
        stream = at.efficiencies.elementwise
        return {
            "indexer_query_projection": plain_linear(at, tokens, indexer.heads * indexer.dim, self.q_rank),
            "indexer_key_projection": plain_linear(at, tokens, 4.0 * indexer.dim + indexer.heads, hidden),
            "indexer_key_write": cache_write(at, tokens / self.ratio, indexer.dim),
            "indexer": scores,
            "top_k": top_k_cost(at.device, tokens, columns, indexer.chosen, stream),
        }

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        heads, groups = ceil_div(self.heads, layout.tensor_parallel), self._groups(layout.tensor_parallel)
        into = hidden * (self.q_rank + self.head_dim + 2.0 * self.width)
        out = self.output_rank * (heads * self.head_dim + groups * hidden)
        return into + self.q_rank * heads * self.head_dim + out

    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        if self.indexer is None:
            return as_float(0.0)
        own = self.indexer
        return hidden * (4.0 * own.dim + own.heads) + self.q_rank * own.heads * own.dim

    def cached_elements(self, layout: Parallelism, length: Scalar) -> Scalar:
        kept = self.head_dim if self.indexer is None else self.head_dim + self.indexer.dim
        return jnp.minimum(length, self.window) * self.head_dim + self._entries(length) * kept

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.heads)


def _mean_context(phase: Phase) -> Scalar:
    """Tokens up to a query, itself included, in the mean over the queries of a phase [1]."""
    return phase.context if isinstance(phase, Decode) else phase.prefix + (phase.prompt + 1.0) / 2.0


def compressed_mixer(attention: CompressedAttention) -> CompressedMixer:
    """The arrays of a described mixer."""
    return CompressedMixer(
        attention.heads,
        attention.head_dim,
        attention.rope_dim,
        attention.q_rank,
        attention.window,
        attention.groups,
        attention.output_rank,
        attention.compressed_width,
        attention.ratio,
        None if attention.indexer is None else indexer_arrays(attention.indexer),
    )
