"""The gated delta rule as in Qwen3-Next (arXiv:2412.06464): linear attention whose state forgets and overwrites."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.delta_rule import delta_decode_cost, delta_prefill_cost
from jaxperf.kernels.recurrent import LinearAttentionShape
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gated_norm, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractRecurrent, convolve, recur
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import GatedDelta

CHUNK = 64.0  # tokens of a prompt computed at once, as in the published kernels


class GatedDeltaMixer(AbstractRecurrent):
    """Key heads (queries too), value heads, width of either, taps [1]. Tensor parallelism splits both kinds of head."""

    key_heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    value_heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    key_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    value_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    taps: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, layout = phase.tokens, deployment.layout
        keys, values = self.rank_widths(layout)
        heads = ceil_div(self.value_heads, layout.tensor_parallel)
        key_heads = ceil_div(self.key_heads, layout.tensor_parallel)
        shape = LinearAttentionShape(heads, key_heads, self.key_dim, self.value_dim, CHUNK)
        return {
            "delta_in_projection": linear(deployment, tokens, 2.0 * (keys + values), hidden),
            "delta_gate_projection": linear(deployment, tokens, 2.0 * heads, hidden),
            "delta_convolution": convolve(deployment, phase, *self.convolution(layout)),
            "delta_rule": recur(deployment, phase, shape, delta_prefill_cost, delta_decode_cost),
            "delta_gate": gated_norm(deployment, tokens, values),
            "delta_out_projection": linear(deployment, tokens, hidden, values),
        }

    def rank_widths(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        """(elements of all keys, of all values) on one tensor-parallel rank [1]."""
        keys = ceil_div(self.key_heads, layout.tensor_parallel) * self.key_dim
        return keys, ceil_div(self.value_heads, layout.tensor_parallel) * self.value_dim

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return self.key_dim * self.rank_widths(layout)[1]

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        keys, values = self.rank_widths(layout)
        return 2.0 * keys + values, self.taps

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return 2.0 * ceil_div(self.value_heads, layout.tensor_parallel)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        keys, values = self.rank_widths(layout)
        return hidden * (2.0 * keys + 3.0 * values + 2.0 * ceil_div(self.value_heads, layout.tensor_parallel))

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~(divides(layout.tensor_parallel, self.key_heads) & divides(layout.tensor_parallel, self.value_heads))


def gated_delta_mixer(delta: GatedDelta) -> GatedDeltaMixer:
    """The arrays of a described mixer."""
    return GatedDeltaMixer(delta.key_heads, delta.value_heads, delta.key_dim, delta.value_dim, delta.conv)
