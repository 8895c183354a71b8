"""RWKV-5 and RWKV-6 (arXiv:2404.05892): mixed tokens, linear attention with a decay for each channel."""

from __future__ import annotations

from functools import partial

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.recurrent import LinearAttentionShape, state_update_cost
from jaxperf.kernels.ssd import ssd_prefill_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gated_norm, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractSquareState, recur, token_shift
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Rwkv6

CHUNK = 64.0  # tokens of a prompt computed at once
STEP_OPERATIONS = 7.0  # k v: 1; u k v + h: 2; read: 2; decay h, add k v: 2, a number of h
MIXTURES = 5.0  # for receptance, decay, key, value and gate


class Rwkv6Mixer(AbstractSquareState):
    """Heads, width of a head [1]; `mix_rank` of each mixture and `decay_rank`, 0 where decays and mixtures are fixed
    (RWKV-5), which is not `dependent`.

    Tensor parallelism splits the heads; the bottlenecks of the mixtures are on every rank. A prompt is counted as one
    of state spaces, whose chunks have the same products.
    """

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    mix_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    decay_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    dependent: bool = eqx.field(static=True)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, width = phase.tokens, self.rank_width(deployment.layout)
        kernels = {
            "token_shift": token_shift(deployment, tokens, hidden, MIXTURES + 1.0 if self.dependent else MIXTURES - 1.0)
        }
        if self.dependent:
            into = linear(deployment, tokens, MIXTURES * self.mix_rank, hidden)
            mixing = into + as_float(MIXTURES) * linear(deployment, tokens, hidden, self.mix_rank)
            decays = linear(deployment, tokens, self.decay_rank, hidden)
            kernels["low_rank_projection"] = mixing + decays + linear(deployment, tokens, width, self.decay_rank)
        return kernels | {
            "rkvg_projection": as_float(4.0) * linear(deployment, tokens, width, hidden),  # of different mixtures
            "wkv": self._recur(deployment, phase),
            "output_gate": gated_norm(deployment, tokens, width),
            "output_projection": linear(deployment, tokens, hidden, width),
        }

    def _recur(self, at: Deployment, phase: Phase) -> Cost:
        heads = ceil_div(self.heads, at.layout.tensor_parallel)
        gates = self.head_dim if self.dependent else as_float(0.0)
        shape = LinearAttentionShape(heads, heads, self.head_dim, self.head_dim, CHUNK, gates)
        return recur(at, phase, shape, ssd_prefill_cost, partial(state_update_cost, operations=STEP_OPERATIONS))

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        """The token before, of this mixer and of the feed-forward block, whole on every rank."""
        return 2.0 * self.heads * self.head_dim, as_float(2.0)

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return 4.0 * self.rank_width(layout)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        width = self.rank_width(layout)
        return 5.0 * hidden * width + 2.0 * MIXTURES * self.mix_rank * hidden + self.decay_rank * (hidden + width)


def rwkv6_mixer(mixer: Rwkv6) -> Rwkv6Mixer:
    """The arrays of a described mixer."""
    ranks = mixer.mix_rank or 0, mixer.decay_rank or 0
    return Rwkv6Mixer(mixer.heads, mixer.head_dim, *ranks, dependent=mixer.mix_rank is not None)
