"""The mLSTM of xLSTM (arXiv:2405.04517): linear attention with an input and a forget gate a head, normed and gated."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.recurrent import LinearAttentionShape, decayed_decode_cost
from jaxperf.kernels.ssd import ssd_prefill_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gated_norm, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractRecurrent, recur
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import MLstm

CHUNK = 64.0  # tokens of a prompt computed at once, the default of the published config
GATES = 2.0  # of a head: input and forget


class MLstmMixer(AbstractRecurrent):
    """Heads, width of queries and keys, of values [1]. Tensor parallelism splits the heads.

    The normalizer is one more column of a head's state in its update, and as such counted in memory alone.
    """

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    key_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    value_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, heads = phase.tokens, self.rank_heads(deployment.layout)
        values = heads * self.value_dim
        shape = LinearAttentionShape(heads, heads, self.key_dim, self.value_dim, CHUNK, GATES)
        return {
            "qkv_projection": linear(deployment, tokens, 2.0 * heads * self.key_dim + values, hidden),
            "gate_projection": linear(deployment, tokens, values + GATES * heads, hidden),
            "linear_attention": recur(deployment, phase, shape, ssd_prefill_cost, decayed_decode_cost),
            "output_gate": gated_norm(deployment, tokens, values),
            "output_projection": linear(deployment, tokens, hidden, values),
        }

    def rank_heads(self, layout: Parallelism) -> Scalar:
        """Heads of one tensor-parallel rank [1]."""
        return ceil_div(self.heads, layout.tensor_parallel)

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return self.rank_heads(layout) * (self.key_dim * self.value_dim + self.key_dim + 1.0)

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        return as_float(0.0), as_float(1.0)

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return as_float(0.0)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        columns = 2.0 * self.key_dim + 3.0 * self.value_dim + GATES
        return hidden * self.rank_heads(layout) * columns

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.heads)


def mlstm_mixer(mixer: MLstm) -> MLstmMixer:
    """The arrays of a described mixer."""
    return MLstmMixer(mixer.heads, mixer.key_dim, mixer.value_dim)
