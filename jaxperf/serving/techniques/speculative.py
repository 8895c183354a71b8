"""Speculative decoding: a draft proposes tokens, one step of the target verifies them all.

With a_i the chance that the proposal for position i is accepted where all before it are, a round of k positions makes

    E[n] = 1 + sum_{i=1..k} prod_{j<=i} a_j        ( = (1 - a^(k+1)) / (1 - a) for equal a )

tokens (Leviathan, Kalman, Matias 2023, arXiv 2211.17192, equation 1; Chen et al. 2023, arXiv 2302.01318): what is
accepted and one token of the target's own. A tree proposes w_i tokens for position i (SpecInfer, ASPLOS 2024; Medusa;
EAGLE) and a_i is the chance that one of them is right; 1 + sum w_i tokens of each sequence are verified. The time per
output token is that of a round over E[n]: rounds are independent, so this is the long-run mean (renewal reward).
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import MemoryUse, activation_bytes
from jaxperf.models.transformer import merged
from jaxperf.serving.techniques.drafts import AbstractDraft, as_draft
from jaxperf.serving.techniques.step import Step, several_token_kernels


class Speculation(eqx.Module):
    """`draft`: who proposes; `acceptance` of each position given those before it [k] [1]; `widths`: tokens proposed for
    each position, ones for a chain [k] [1]."""

    draft: AbstractDraft
    acceptance: Float[Array, " k"] = eqx.field(converter=as_float)
    widths: Float[Array, " k"] = eqx.field(converter=as_float)

    @property
    def verified(self) -> Float[Array, ""]:
        """Tokens of a sequence that the target works on in one round [1]."""
        return 1.0 + jnp.sum(self.widths)


def expected_tokens(acceptance: Float[Array, " k"]) -> Scalar:
    """Mean tokens of a round, 1 + sum_i prod_{j<=i} a_j [1]."""
    return 1.0 + jnp.sum(jnp.cumprod(acceptance))


def token_distribution(acceptance: Float[Array, " k"]) -> Float[Array, " k_plus_1"]:
    """The chance that a round makes 1, 2, ... k + 1 tokens [k + 1] [1]."""
    at_least = jnp.concatenate([jnp.ones(1), jnp.cumprod(acceptance)])
    return at_least - jnp.concatenate([at_least[1:], jnp.zeros(1)])


def round_kernels(
    deployment: Deployment,
    model: Transformer,
    speculation: Speculation,
    batch: Scalar,
    context: Scalar,
    source: Scalar,
    step: Step = several_token_kernels,
) -> Kernels:
    """The kernels of one round: what proposes, as the kernel `draft`, and the verification, a `step` over several
    tokens of each sequence; see `decode_cost`."""
    sequences = ceil_div(batch, deployment.layout.data_parallel)
    verification = step(deployment, model, sequences, context, speculation.verified, source)
    kept = expected_tokens(speculation.acceptance)
    proposing = speculation.draft.round_kernels(deployment, sequences, context, speculation.widths, kept)
    return merged([verification, as_draft(proposing)])


def memory_with_draft(
    deployment: Deployment,
    model: Transformer,
    speculation: Speculation,
    memory: MemoryUse,
    sequences: Scalar,
    length: Scalar,
) -> MemoryUse:
    """The memory of the target with the draft's weights and cache, and the activations of a verification [byte]."""
    draft, tokens = speculation.draft, sequences * speculation.verified
    return dataclasses.replace(
        memory,
        weights=memory.weights + draft.weight_bytes(deployment, speculation.widths.shape[0]),
        kv_cache=memory.kv_cache + draft.cache_bytes(deployment, sequences, length),
        activations=jnp.maximum(memory.activations, activation_bytes(deployment, model, tokens, tokens)),
    )
