"""Attention of a decoder to the tokens of an encoder, whose keys and values are made once, in prefill."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, as_optional_float, ceil_div
from jaxperf.kernels.attention import AttentionShape
from jaxperf.kernels.masks import Cross
from jaxperf.models.blocks.attention import attend, uneven_heads
from jaxperf.models.blocks.base import AbstractCached, Kernels
from jaxperf.models.blocks.launch import cache_write, linear
from jaxperf.models.blocks.phase import Phase, Prefill
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Attention


class CrossAttention(AbstractCached):
    """Heads, KV heads and their width, whole model; `key_input`: width that keys and values are read from, None for
    that of the layer [1]. It costs nothing for a sequence that has no encoder's tokens to read. Where it is `merged`
    with the attention before it, queries, outputs and weights are those of that."""

    name: ClassVar[str] = "cross_attention"

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    kv_heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    key_input: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    merged: bool = eqx.field(static=True, default=False)

    def shard(self, ranks: Scalar, source: Scalar) -> AttentionShape:
        """The heads of one of `ranks` tensor-parallel ranks, seeing `source` keys."""
        kv_heads = jnp.maximum(ceil_div(self.kv_heads, ranks), 1.0)
        return AttentionShape(ceil_div(self.heads, ranks), kv_heads, self.head_dim, mask=Cross(source))

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        exists = (phase.source > 0.0).astype(phase.source.dtype)
        source = jnp.maximum(phase.source, 1.0)
        shape = self.shard(deployment.layout.tensor_parallel, source)
        tokens, queries = phase.tokens, shape.heads * shape.head_dim
        kernels: Kernels = {}
        if not self.merged:
            kernels["cross_query_projection"] = linear(deployment, tokens, queries, hidden)
        if isinstance(phase, Prefill):
            read, keys_and_values = phase.sequences * source, 2.0 * shape.kv_heads * shape.head_dim
            depth = hidden if self.key_input is None else self.key_input
            kernels["cross_kv_projection"] = linear(deployment, read, keys_and_values, depth)
            kernels["cross_kv_write"] = cache_write(deployment, read, keys_and_values)
        kernels["cross_attention"] = attend(deployment, shape, phase, deployment.cache)
        if not self.merged:
            kernels["cross_output_projection"] = linear(deployment, tokens, hidden, queries)
        return {name: cost * exists for name, cost in kernels.items()}

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        if self.merged:
            return as_float(0.0)
        shape = self.shard(layout.tensor_parallel, as_float(1.0))
        depth = hidden if self.key_input is None else self.key_input
        return 2.0 * shape.head_dim * (hidden * shape.heads + depth * shape.kv_heads)

    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return as_float(0.0)

    def cached_elements(self, layout: Parallelism, length: Scalar) -> Scalar:
        """`length`: tokens of the encoder."""
        shape = self.shard(layout.tensor_parallel, length)
        return 2.0 * shape.kv_heads * shape.head_dim * length

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return uneven_heads(self.heads, self.kv_heads, layout.tensor_parallel)


def cross_attention(attention: Attention) -> CrossAttention:
    """The arrays of a described cross-attention."""
    return CrossAttention(attention.heads, attention.kv_heads, attention.head_dim, attention.kv_input, attention.merged)
