"""Kimi delta attention (Kimi Linear, arXiv:2510.26692): the delta rule with a decay of its own for each key channel."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.delta_rule import delta_decode_cost, delta_prefill_cost
from jaxperf.kernels.recurrent import LinearAttentionShape
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gated_norm, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractSquareState, convolve, recur
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import KimiDelta

CHUNK = 64.0  # tokens of a prompt computed at once, as in the published kernels


class KimiDeltaMixer(AbstractSquareState):
    """Heads, width of queries, keys and values of a head, taps [1].

    Decay and output gate pass through a rank of one head's width, whose first halves every rank holds whole, or have
    whole matrices where they are `full`.
    """

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    taps: Float[Array, "*batch"] = eqx.field(converter=as_float)
    full: bool = eqx.field(static=True, default=False)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, layout = phase.tokens, deployment.layout
        heads = ceil_div(self.heads, layout.tensor_parallel)
        width = heads * self.head_dim
        shape = LinearAttentionShape(heads, heads, self.head_dim, self.head_dim, CHUNK, self.head_dim)
        if self.full:
            gates = linear(deployment, tokens, 2.0 * width, hidden)
        else:
            into_rank = linear(deployment, tokens, self.head_dim, hidden)
            gates = as_float(2.0) * (into_rank + linear(deployment, tokens, width, self.head_dim))
        step_sizes = linear(deployment, tokens, heads, hidden)
        return {
            "qkv_projection": linear(deployment, tokens, 3.0 * width, hidden),
            "delta_convolution": convolve(deployment, phase, *self.convolution(layout)),
            "delta_gate_projection": gates + step_sizes,
            "delta_rule": recur(deployment, phase, shape, delta_prefill_cost, delta_decode_cost),
            "delta_gate": gated_norm(deployment, tokens, width),
            "delta_out_projection": linear(deployment, tokens, hidden, width),
        }

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        return 3.0 * self.rank_width(layout), self.taps

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return self.rank_width(layout)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        width, heads = self.rank_width(layout), ceil_div(self.heads, layout.tensor_parallel)
        gates = hidden * width if self.full else self.head_dim * (hidden + width)
        return hidden * (4.0 * width + heads) + 2.0 * gates


def kimi_delta_mixer(delta: KimiDelta) -> KimiDeltaMixer:
    """The arrays of a described mixer."""
    return KimiDeltaMixer(delta.heads, delta.head_dim, delta.conv, delta.full)
