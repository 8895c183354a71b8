"""Multi-head latent attention (DeepSeek V2, arXiv:2405.04434): one cached latent for all heads.

In decode the up-projections of keys and values are absorbed into the query and the output (section 2.1.3 and appendix
C), so that attention works on the latent itself; a prompt is in `latent_prompt`.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, as_optional_float, ceil_div, divides
from jaxperf.kernels.mla import (
    LatentShape,
    mla_decode_cost,
)
from jaxperf.models.blocks.base import AbstractCached, Kernels
from jaxperf.models.blocks.indexer import IndexerArrays, indexer_arrays
from jaxperf.models.blocks.latent_prompt import absorbed, prompt_attention
from jaxperf.models.blocks.launch import cache_write, gate, linear, plain_norm, rotary
from jaxperf.models.blocks.phase import Decode, Phase
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Mla


class LatentMixer(AbstractCached):
    """Latent attention of one layer, whole model; `q_rank` is used where `compressed`; `gates` of the output of a head,
    None for none; `window` tokens that a query sees, None for all [1].

    Tensor parallelism splits the heads; the projections to the latents and the cache are held by every rank.
    """

    name: ClassVar[str] = "attention"

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    q_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    kv_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    nope_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    rope_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    value_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    compressed: bool = eqx.field(static=True)
    rotary: bool = eqx.field(static=True)
    indexer: IndexerArrays | None = None
    gates: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    window: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)

    @property
    def cached_width(self) -> Float[Array, "*batch"]:
        """Elements kept of a token: the latent and the rotary key that the heads share [1]."""
        return self.kv_rank + self.rope_dim

    def shard(self, ranks: Scalar) -> LatentShape:
        """The heads of one of `ranks` tensor-parallel ranks; the latent is not split."""
        heads = ceil_div(self.heads, ranks)
        return LatentShape(heads, self.nope_dim, self.rope_dim, self.value_dim, self.kv_rank, self.window)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, shape = phase.tokens, self.shard(deployment.layout.tensor_parallel)
        kernels = self._query_kernels(deployment, hidden, tokens, shape.heads)
        if self.rotary:
            kernels["rotary"] = rotary(deployment, tokens, shape.heads + 1.0, self.rope_dim)
        kernels["kv_write"] = cache_write(deployment, tokens, self.cached_width)
        if self.indexer is not None:
            kernels |= self.indexer.kernels(deployment, hidden, self._query_depth(hidden), phase)
            kernels |= absorbed(deployment, shape, tokens, self.indexer.attend(deployment, shape, phase))
        elif isinstance(phase, Decode):
            kernels |= absorbed(deployment, shape, tokens, attend_latent(deployment, shape, phase))
        else:
            kernels |= prompt_attention(deployment, shape, phase)
        if self.gates is not None:
            kernels["gate_projection"] = linear(deployment, tokens, shape.heads * self.gates, hidden)
            kernels["output_gate"] = gate(deployment, tokens, shape.heads * self.value_dim)
        kernels["output_projection"] = linear(deployment, tokens, hidden, shape.heads * self.value_dim)
        return kernels

    def _query_depth(self, hidden: Scalar) -> Scalar:
        """Elements of what queries are made of [1]."""
        return self.q_rank if self.compressed else hidden

    def _query_kernels(self, deployment: Deployment, hidden: Scalar, tokens: Scalar, heads: Scalar) -> Kernels:
        """From the hidden state to the queries of the rank's heads and the latent of keys and values."""
        queries = heads * (self.nope_dim + self.rope_dim)
        if not self.compressed:
            return {
                "query_projection": linear(deployment, tokens, queries, hidden),
                "latent_projection": linear(deployment, tokens, self.cached_width, hidden),
                "latent_norm": plain_norm(deployment, tokens, self.kv_rank),
            }
        return {
            "latent_projection": linear(deployment, tokens, self.q_rank + self.cached_width, hidden),
            "latent_norm": plain_norm(deployment, tokens, self.q_rank + self.kv_rank),
            "query_projection": linear(deployment, tokens, queries, self.q_rank),
        }

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        heads = self.shard(layout.tensor_parallel).heads
        query = self._query_depth(hidden) * heads * (self.nope_dim + self.rope_dim)
        into_latents = hidden * (self.cached_width + (self.q_rank if self.compressed else 0.0))
        out_of_latent = self.kv_rank * heads * (self.nope_dim + self.value_dim)
        outputs = heads * (self.value_dim if self.gates is None else self.value_dim + self.gates)
        return query + into_latents + out_of_latent + outputs * hidden

    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return as_float(0.0) if self.indexer is None else self.indexer.elements(hidden, self._query_depth(hidden))

    def cached_elements(self, layout: Parallelism, length: Scalar) -> Scalar:
        kept = length if self.window is None else jnp.minimum(length, self.window)
        return kept * (self.cached_width if self.indexer is None else self.cached_width + self.indexer.cached)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.heads)


def attend_latent(at: Deployment, shape: LatentShape, phase: Decode) -> Cost:
    """One new token against the cached latents."""
    efficiency, seen = at.efficiencies.mla_decode, shape.mask.visible(phase.context)
    return mla_decode_cost(at.device, shape, phase.sequences, seen, at.cache, at.activations, efficiency)


def latent_mixer(mla: Mla) -> LatentMixer:
    """The arrays of a described mixer."""
    return LatentMixer(
        mla.heads,
        mla.q_rank or 0,
        mla.kv_rank,
        mla.nope_dim,
        mla.rope_dim,
        mla.value_dim,
        compressed=mla.q_rank is not None,
        rotary=mla.rotary and mla.rope_dim > 0,
        indexer=None if mla.indexer is None else indexer_arrays(mla.indexer),
        gates=mla.gates or None,
        window=mla.window,
    )
