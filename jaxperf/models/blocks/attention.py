"""Grouped-query attention over a layer's own tokens: causal, in a window, in blocks, or without a mask (encoders)."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.cost import Cost
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, as_optional_float, ceil_div, divides
from jaxperf.kernels.attention import ALIBI_FLOPS, AttentionShape, decode_attention_cost, prefill_attention_cost
from jaxperf.kernels.masks import AbstractMask, Chunked, Full
from jaxperf.models.blocks.base import AbstractCached, Kernels
from jaxperf.models.blocks.block_indexer import BlockIndexerArrays, block_indexer_arrays
from jaxperf.models.blocks.launch import cache_write, gate, linear, plain_norm, rotary
from jaxperf.models.blocks.phase import Decode, Phase, Prefill
from jaxperf.models.blocks.query_experts import QueryExperts
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Attention


class AttentionMixer(AbstractCached):
    """Grouped-query attention of one layer, whole model: heads, KV heads, head width, window (0: none) [1].

    `value_dim`: width of a value, None for that of a key; `chunk`: tokens of an aligned block that attend to each
    other, None for all; `score_flops`: vector operations added to every score (linear or learned position biases),
    None for none; `q_rank`: width that queries are compressed to by a projection that every rank holds whole, None for
    none; `indexer`: chooses the blocks of tokens that a query sees, None for all; `input_width`: of what queries, keys
    and values are read from, None for that of the layer; `experts`: of queries and outputs, None where these have one
    projection each. Structure: `rotary` positions; `causal`; `own_keys` false
    where keys and values are an earlier layer's; `output_gate` a second query projection gates the output, `head_gate`
    one gate for each head does; `sinks` a learned logit for each head; `windowed` whether `window` counts in a layer
    that is not causal.

    A window that looks both ways is counted like one of as many keys that looks back. Norms of queries and keys are
    fused with the rotary embedding, their weights left out (below 0.1 %).
    """

    name: ClassVar[str] = "attention"

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    kv_heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    window: Float[Array, "*batch"] = eqx.field(converter=as_float)
    rotary: bool = eqx.field(static=True)
    value_dim: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    chunk: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    score_flops: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    causal: bool = eqx.field(static=True, default=True)
    own_keys: bool = eqx.field(static=True, default=True)
    output_gate: bool = eqx.field(static=True, default=False)
    sinks: bool = eqx.field(static=True, default=False)
    windowed: bool = eqx.field(static=True, default=False)
    q_rank: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    head_gate: bool = eqx.field(static=True, default=False)
    indexer: BlockIndexerArrays | None = None
    input_width: Float[Array, "*batch"] | None = eqx.field(converter=as_optional_float, default=None)
    experts: QueryExperts | None = None

    def shard(self, ranks: Scalar) -> AttentionShape:
        """The heads of one of `ranks` tensor-parallel ranks; KV heads are replicated once there are too few."""
        return AttentionShape(
            ceil_div(self.heads, ranks),
            jnp.maximum(ceil_div(self.kv_heads, ranks), 1.0),
            self.head_dim,
            self.window,
            value_dim=self.value_dim,
            mask=self._mask(),
            score_flops=self.score_flops,
            sinks=1.0 if self.sinks else None,
        )

    def _mask(self) -> AbstractMask | None:
        """None for a causal mask with the shape's window."""
        if self.causal:
            return None if self.chunk is None else Chunked(self.chunk)
        return None if self.windowed else Full()

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, shape = phase.tokens, self.shard(deployment.layout.tensor_parallel)
        outputs, keys_and_values = shape.heads * shape.value_width, shape.kv_heads * shape.cached_width
        kernels = self._projections(deployment, hidden, tokens, shape)
        if self.rotary:
            rotated = shape.heads + shape.kv_heads if self.own_keys else shape.heads
            kernels["rotary"] = rotary(deployment, tokens, rotated, shape.head_dim)
        if self.own_keys and self.causal:
            kernels["kv_write"] = cache_write(deployment, tokens, keys_and_values)
        if self.indexer is not None:
            kernels |= self.indexer.kernels(deployment, hidden, phase)
        kernels["attention"] = self._attend(deployment, shape, phase)
        if self.output_gate or self.head_gate:
            kernels["output_gate"] = gate(deployment, tokens, outputs)
        project = linear if self.experts is None else self.experts.outputs
        kernels["output_projection"] = project(deployment, tokens, hidden, outputs)
        return kernels

    def _projections(self, deployment: Deployment, hidden: Scalar, tokens: Scalar, shape: AttentionShape) -> Kernels:
        """From the hidden state to queries, keys, values and gates."""
        queries = shape.heads * shape.head_dim
        if self.experts is not None:
            keys_and_values = linear(deployment, tokens, shape.kv_heads * shape.cached_width, hidden)
            return {"kv_projection": keys_and_values, **self.experts.queries(deployment, tokens, queries, hidden)}
        columns = self._columns(queries if self.q_rank is None else self.q_rank, shape)
        read = hidden if self.input_width is None else self.input_width
        kernels = {"qkv_projection": linear(deployment, tokens, columns, read)}
        if self.q_rank is not None:
            kernels["query_norm"] = plain_norm(deployment, tokens, self.q_rank)
            kernels["query_projection"] = linear(deployment, tokens, queries, self.q_rank)
        return kernels

    def _columns(self, queries: Scalar, shape: AttentionShape) -> Scalar:
        """Columns of the projections that read the hidden state [1]."""
        columns = queries + shape.kv_heads * shape.cached_width if self.own_keys else queries
        if self.output_gate:
            columns = columns + shape.heads * shape.value_width
        return columns + shape.heads if self.head_gate else columns

    def _attend(self, deployment: Deployment, shape: AttentionShape, phase: Phase) -> Cost:
        if self.indexer is not None:
            return self.indexer.attend(deployment, shape, phase)
        if self.causal:
            return attend(deployment, shape, phase, deployment.cache)
        if self.chunk is not None and isinstance(phase, Prefill):
            phase = Prefill(phase.sequences * ceil_div(phase.prompt, self.chunk), jnp.minimum(phase.prompt, self.chunk))
        return attend(deployment, shape, phase, deployment.activations)  # keys and values are not cached

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        shape = self.shard(layout.tensor_parallel)
        queries, outputs = shape.heads * shape.head_dim, shape.heads * shape.value_width
        read = hidden if self.input_width is None else self.input_width
        if self.experts is not None:
            copies = self.experts.experts / self.experts.chosen
            return hidden * (shape.kv_heads * shape.cached_width + copies * (queries + outputs))
        if self.q_rank is None:
            return read * self._columns(queries, shape) + hidden * outputs
        return read * self._columns(self.q_rank, shape) + hidden * outputs + self.q_rank * queries

    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        router = as_float(0.0) if self.experts is None else self.experts.experts * hidden
        return router if self.indexer is None else router + self.indexer.elements(hidden, layout.tensor_parallel)

    def cached_elements(self, layout: Parallelism, length: Scalar) -> Scalar:
        if not (self.own_keys and self.causal):
            return as_float(0.0)
        shape = self.shard(layout.tensor_parallel)
        chosen_by = 0.0 if self.indexer is None else self.indexer.cached
        return (shape.kv_heads * shape.cached_width + chosen_by) * shape.visibility.kept(length)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return uneven_heads(self.heads, self.kv_heads, layout.tensor_parallel)


def uneven_heads(heads: Scalar, kv_heads: Scalar, ranks: Scalar) -> Bool[Array, ""]:
    """Whether `ranks` divide neither the heads evenly, nor the KV heads or the reverse."""
    replicated = (ranks > kv_heads) & divides(kv_heads, ranks)
    return ~divides(ranks, heads) | ~(divides(ranks, kv_heads) | replicated)


def attend(at: Deployment, shape: AttentionShape, phase: Phase, cache: NumberFormat) -> Cost:
    """The attention kernel of a phase; `cache`: format of the keys and values it reads."""
    if isinstance(phase, Decode):
        efficiency = at.efficiencies.attention_decode
        return decode_attention_cost(
            at.device, shape, phase.sequences, phase.context, cache, at.activations, efficiency
        )
    efficiency = at.efficiencies.attention_prefill
    return prefill_attention_cost(
        at.device, shape, phase.sequences, phase.prompt, phase.prefix, cache, at.activations, efficiency
    )


def attention_mixer(attention: Attention) -> AttentionMixer:
    """The arrays of a described mixer."""
    biased = attention.alibi or attention.relative_buckets > 0
    experts = QueryExperts(attention.experts, attention.queries_per_key) if attention.experts else None
    return AttentionMixer(
        attention.heads,
        attention.kv_heads,
        attention.head_dim,
        attention.window or 0,
        attention.rotary,
        value_dim=attention.value_dim,
        chunk=attention.chunk,
        score_flops=ALIBI_FLOPS if biased else None,
        causal=attention.causal,
        own_keys=not attention.shared_kv,
        output_gate=attention.output_gate,
        sinks=attention.sinks,
        windowed=attention.window is not None,
        q_rank=attention.q_rank,
        head_gate=attention.head_gate,
        indexer=None if attention.indexer is None else block_indexer_arrays(attention.indexer),
        input_width=attention.input_width,
        experts=experts,
    )
