"""Latent attention of a prompt, expanded or absorbed (DeepSeek V2, arXiv:2405.04434): whichever is done sooner.

Expanded, keys and values of all heads are made from the latents of prompt and prefix, which takes
2 kv_rank (nope_dim + value_dim) FLOP for each head and token; absorbed, attention works on the latents themselves, with
2 (2 kv_rank + rope_dim) instead of 2 (nope_dim + rope_dim + value_dim) FLOP for each head, query and key. For the sizes
of DeepSeek V3 this is less below 171 new tokens after a long prefix. Engines switch by fixed numbers near it: vLLM
0.33 absorbs up to 128 (FlashMLA) or 512 (FlashAttention 3) new tokens of a sequence and expands the prefix in chunks
beyond, SGLang absorbs where a batch has less than 8,192 cached tokens; both expand a prompt that has no prefix.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar
from jaxperf.kernels.mla import (
    LatentShape,
    mla_absorb_output_cost,
    mla_absorb_query_cost,
    mla_decode_cost,
    mla_expand_cost,
    mla_prefill_cost,
)
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.phase import Prefill
from jaxperf.models.deployment import Deployment


def prompt_attention(at: Deployment, shape: LatentShape, phase: Prefill) -> Kernels:
    """Attention of a prompt with what makes its operands, expanded unless the absorbed form is done sooner.

    The kernels of the other form are there too and take nothing.
    """
    apart, together = expanded(at, shape, phase), absorbed(at, shape, phase.tokens, attend_prompt(at, shape, phase))
    sooner = (phase.prefix > 0.0) & (_time(together) < _time(apart))
    attention = jax.tree.map(
        lambda one, other: jnp.where(sooner, one, other), *(each["attention"] for each in (together, apart))
    )
    chosen = {name: _where(~sooner, cost) for name, cost in apart.items()}
    return chosen | {name: _where(sooner, cost) for name, cost in together.items()} | {"attention": attention}


def absorbed(at: Deployment, shape: LatentShape, tokens: Scalar, core: Cost) -> Kernels:
    """Attention on the latent: the up-projections are applied to the queries before and to the outputs after it."""
    gemm = at.efficiencies.gemm
    return {
        "absorb_query": mla_absorb_query_cost(at.device, shape, tokens, at.weights, at.activations, gemm),
        "attention": core,
        "absorb_output": mla_absorb_output_cost(at.device, shape, tokens, at.weights, at.activations, gemm),
    }


def attend_prompt(at: Deployment, shape: LatentShape, phase: Prefill) -> Cost:
    """The new tokens against the latents, as a decode with so many times the heads: all of them read a latent once.

    Without a window each sees the prefix and in the mean half of the prompt, itself included.
    """
    packed = dataclasses.replace(shape, heads=shape.heads * phase.prompt)
    seen = shape.mask.pairs(phase.prompt, phase.prefix) / phase.prompt
    efficiency = at.efficiencies.mla_decode
    return mla_decode_cost(at.device, packed, phase.sequences, seen, at.cache, at.activations, efficiency)


def expanded(at: Deployment, shape: LatentShape, phase: Prefill) -> Kernels:
    """Attention on keys and values of all heads, made from the latents of the prompt and, apart, of the prefix."""
    seen = shape.mask.keys(phase.prompt, phase.prefix) - phase.prompt  # of the prefix
    cached, prompted = (
        mla_expand_cost(at.device, shape, tokens, at.weights, at.activations, at.efficiencies.gemm)
        for tokens in (phase.sequences * seen, phase.tokens)
    )
    efficiency = at.efficiencies.attention_prefill
    return {
        "latent_expansion": prompted,
        "prefix_expansion": _where(phase.prefix > 0.0, cached),
        "attention": mla_prefill_cost(
            at.device, shape, phase.sequences, phase.prompt, phase.prefix, at.activations, efficiency
        ),
    }


def _time(kernels: Kernels) -> Scalar:
    return sum((cost.time for cost in kernels.values()), start=jnp.asarray(0.0))


def _where(condition: Bool[Array, ""], cost: Cost) -> Cost:
    """The cost where the condition holds, else nothing."""
    return jax.tree.map(lambda leaf: jnp.where(condition, leaf, jnp.zeros_like(leaf)), cost)
