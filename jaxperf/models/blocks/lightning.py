"""Lightning attention (MiniMax-01, arXiv:2501.08313): linear attention with a fixed decay a head, normed and gated."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.lightning import lightning_prefill_cost
from jaxperf.kernels.recurrent import LinearAttentionShape, decayed_decode_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gated_norm, linear, rotary
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractSquareState, recur
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import LightningAttention


class LightningMixer(AbstractSquareState):
    """Heads, width of a head, tokens computed at once in a prompt [1]; `rotary` positions, with norms of queries and
    keys fused into them where there are any."""

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    block: Float[Array, "*batch"] = eqx.field(converter=as_float)
    rotary: bool = eqx.field(static=True, default=False)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, width = phase.tokens, self.rank_width(deployment.layout)
        heads = ceil_div(self.heads, deployment.layout.tensor_parallel)
        shape = LinearAttentionShape(heads, heads, self.head_dim, self.head_dim, self.block, 0.0)
        turned = {"rotary": rotary(deployment, tokens, 2.0 * heads, self.head_dim)} if self.rotary else {}
        return turned | {
            "qkv_projection": linear(deployment, tokens, 3.0 * width, hidden),
            "gate_projection": linear(deployment, tokens, width, hidden),
            "linear_attention": recur(deployment, phase, shape, lightning_prefill_cost, decayed_decode_cost),
            "output_gate": gated_norm(deployment, tokens, width),
            "output_projection": linear(deployment, tokens, hidden, width),
        }

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        return as_float(0.0), as_float(1.0)

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return as_float(0.0)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return 5.0 * hidden * self.rank_width(layout)


def lightning_mixer(attention: LightningAttention) -> LightningMixer:
    """The arrays of a described mixer."""
    return LightningMixer(attention.heads, attention.head_dim, attention.block, attention.rotary)
