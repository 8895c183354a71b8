"""Mamba-2 (arXiv:2405.21060): projection in, short convolution, state-space scan, gated norm, projection out."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.recurrent import LinearAttentionShape, decayed_decode_cost
from jaxperf.kernels.ssd import ssd_prefill_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gate, gated_norm, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractRecurrent, convolve, recur
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Mamba2

CHUNK = 256.0  # tokens of a prompt computed at once, as in the published models and their kernels


class Mamba2Mixer(AbstractRecurrent):
    """Heads, width of a head, groups of heads that share B and C, state elements of a channel, taps [1].

    Tensor parallelism splits the heads, and the groups with them while there are enough; then each rank has one.
    """

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    groups: Float[Array, "*batch"] = eqx.field(converter=as_float)
    state: Float[Array, "*batch"] = eqx.field(converter=as_float)
    taps: Float[Array, "*batch"] = eqx.field(converter=as_float)
    gated_norm: bool = eqx.field(static=True)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, layout = phase.tokens, deployment.layout
        heads, groups = self.rank_heads(layout), self.rank_groups(layout)
        inner = heads * self.head_dim
        shape = LinearAttentionShape(heads, groups, self.state, self.head_dim, CHUNK)
        closing = gated_norm if self.gated_norm else gate
        return {
            "mamba_in_projection": linear(deployment, tokens, self._projected(layout), hidden),
            "mamba_convolution": convolve(deployment, phase, *self.convolution(layout)),
            "mamba_scan": recur(deployment, phase, shape, ssd_prefill_cost, decayed_decode_cost),
            "mamba_gate": closing(deployment, tokens, inner),
            "mamba_out_projection": linear(deployment, tokens, hidden, inner),
        }

    def rank_heads(self, layout: Parallelism) -> Scalar:
        """Heads of one tensor-parallel rank [1]."""
        return ceil_div(self.heads, layout.tensor_parallel)

    def rank_groups(self, layout: Parallelism) -> Scalar:
        """Groups of one tensor-parallel rank, at least one [1]."""
        return jnp.maximum(ceil_div(self.groups, layout.tensor_parallel), 1.0)

    def _projected(self, layout: Parallelism) -> Scalar:
        """Columns of the projection in: gate and channels, B and C of each group, the step size of each head [1]."""
        heads = self.rank_heads(layout)
        return 2.0 * heads * self.head_dim + 2.0 * self.rank_groups(layout) * self.state + heads

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return self.rank_heads(layout) * self.head_dim * self.state

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        return self.rank_heads(layout) * self.head_dim + 2.0 * self.rank_groups(layout) * self.state, self.taps

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return 3.0 * self.rank_heads(layout)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return hidden * (self._projected(layout) + self.rank_heads(layout) * self.head_dim)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        ranks = layout.tensor_parallel
        replicated = (ranks > self.groups) & divides(self.groups, ranks)
        return ~divides(ranks, self.heads) | ~(divides(ranks, self.groups) | replicated)


def mamba2_mixer(mamba: Mamba2) -> Mamba2Mixer:
    """The arrays of a described mixer."""
    return Mamba2Mixer(mamba.heads, mamba.head_dim, mamba.groups, mamba.state, mamba.conv, mamba.gated_norm)
