"""Many LoRA adapters served by one model: two thin products beside each adapted one, with a request's own matrices.

y = x W + (x A) B with A [in, r], B [r, out] (Hu et al. 2021, arXiv 2106.09685). The tokens of a step are grouped by
adapter and multiplied in one launch (SGMV: Punica, MLSys 2024; S-LoRA, MLSys 2024), so that a step reads the matrices
of every adapter it meets once: with popularity p_i and B requests,

    E[distinct adapters] = sum_i 1 - (1 - p_i)^B

An adapter is in device memory while a request that uses it runs, and the most popular ones always.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.moe import GroupedGemm, grouped_gemm_cost, routed_gemm_cost
from jaxperf.models.blocks.attention import AttentionMixer
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.mlp import DenseFfn
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import LayerGroup, Transformer
from jaxperf.models.transformer import merged


class Adapters(eqx.Module):
    """`popularity`: share of the requests that want each adapter, adding up to 1 [n] [1]; `rank`: r [1]; `loaded`: how
    many of the most popular stay in device memory [1]; `host_bandwidth`: host to device, one way [byte/s];
    `everywhere`: dense feed-forward projections are adapted as well as those of attention (structure)."""

    popularity: Float[Array, " n"] = eqx.field(converter=as_float)
    rank: Float[Array, ""] = eqx.field(converter=as_float)
    loaded: Float[Array, ""] = eqx.field(converter=as_float)
    host_bandwidth: Float[Array, ""] = eqx.field(converter=as_float)
    everywhere: bool = eqx.field(static=True, default=False)


class Projection(NamedTuple):
    """One rank's part of an adapted product: `pieces` with adapters of their own (queries, keys, values: 3; up with a
    gate: 2) that read `depth` elements and write `columns` together [1]."""

    pieces: Scalar
    depth: Scalar
    columns: Scalar


def zipf_popularity(adapters: int, exponent: float) -> Float[Array, " n"]:
    """p_i proportional to i^-s; s = 0 for equal ones [n] [1]."""
    weights = jnp.arange(1.0, adapters + 1.0) ** -as_float(exponent)
    return weights / jnp.sum(weights)


def distinct_adapters(popularity: Float[Array, " n"], requests: Scalar) -> Scalar:
    """Expected adapters that any of `requests` independent requests wants [1]."""
    missed = jnp.log1p(-jnp.clip(popularity, 0.0, 1.0 - 1e-12))
    return jnp.sum(-jnp.expm1(requests * missed))


def adapters_there(adapters: Adapters, requests: Scalar) -> Scalar:
    """Adapters in device memory: those that stay, and of the others those that any of `requests` running requests
    uses, expected [1]."""
    return adapters.loaded + distinct_adapters(_passing(adapters), requests)


def miss_share(adapters: Adapters, requests: Scalar) -> Scalar:
    """Share of the requests whose adapter has to be loaded: it does not stay, and none of the others among `requests`
    running requests uses it, sum of p_i (1 - p_i)^(B - 1) [1]."""
    passing = _passing(adapters)
    unused = jnp.clip(1.0 - passing, 0.0, 1.0) ** jnp.maximum(requests - 1.0, 0.0)
    return jnp.sum(passing * unused)


def _passing(adapters: Adapters) -> Float[Array, " n"]:
    """Popularity of the adapters that do not stay in device memory, 0 of the most popular, which do [n] [1]."""
    ranked = jnp.sort(adapters.popularity, descending=True)
    return jnp.where(jnp.arange(float(ranked.shape[0])) >= adapters.loaded, ranked, 0.0)


def adapted(deployment: Deployment, model: Transformer, group: LayerGroup, everywhere: bool) -> list[Projection]:
    """The adapted projections of one layer on one rank: inputs of column-parallel ones are whole, outputs split."""
    ranks, found = deployment.layout.tensor_parallel, []
    for mixer in group.mixers:
        if isinstance(mixer, AttentionMixer):
            shape = mixer.shard(ranks)
            outputs = shape.heads * shape.value_width
            columns = shape.heads * shape.head_dim + shape.kv_heads * shape.cached_width
            found += [
                Projection(as_float(3.0), model.hidden, columns),
                Projection(as_float(1.0), outputs, model.hidden),
            ]
    if everywhere and isinstance(group.ffn, DenseFfn):
        width, up = ceil_div(group.ffn.intermediate, ranks), 1.0 + group.ffn.gates
        found += [Projection(up, model.hidden, up * width), Projection(as_float(1.0), width, model.hidden)]
    return found


def adapter_kernels(
    deployment: Deployment, model: Transformer, adapters: Adapters, tokens: Scalar, requests: Scalar
) -> Kernels:
    """The products a step adds for `tokens` tokens of `requests` requests: `lora_shrink` (x A) and `lora_expand`."""
    distinct, parts = distinct_adapters(adapters.popularity, requests), []
    for group in model.groups:
        for pieces, depth, columns in adapted(deployment, model, group, adapters.everywhere):
            rows, groups = tokens * pieces, distinct * pieces
            shrink = GroupedGemm(rows, groups, adapters.rank, depth)
            expand = GroupedGemm(rows, groups, columns / pieces, adapters.rank)
            kernels = {"lora_shrink": _shrink(deployment, shrink), "lora_expand": _expand(deployment, expand)}
            parts.append({name: cost * group.repeats for name, cost in kernels.items()})
    return merged(parts)


def _shrink(at: Deployment, gemm: GroupedGemm) -> Cost:
    """x A: few columns and a deep reduction, which SGMV splits between the cores."""
    return grouped_gemm_cost(at.device, gemm, at.activations, at.activations, at.efficiencies.moe, schedule="split-k")


def _expand(at: Deployment, gemm: GroupedGemm) -> Cost:
    """(x A) B: a shallow reduction and many columns, each tile of them a core's."""
    return routed_gemm_cost(at.device, gemm, at.activations, at.activations, at.efficiencies.moe)


def adapter_bytes(deployment: Deployment, model: Transformer, adapters: Adapters) -> Scalar:
    """One adapter on one rank [byte]."""
    elements = as_float(0.0)
    for group in model.groups:
        for pieces, depth, columns in adapted(deployment, model, group, adapters.everywhere):
            elements = elements + group.repeats * adapters.rank * (pieces * depth + columns)
    return elements * deployment.activations.itemsize


def swap_time(deployment: Deployment, model: Transformer, adapters: Adapters, requests: Scalar) -> Scalar:
    """What a request waits on average for an adapter that is not there: miss share x bytes / bandwidth [s]."""
    share = miss_share(adapters, requests)
    return share * adapter_bytes(deployment, model, adapters) / adapters.host_bandwidth
