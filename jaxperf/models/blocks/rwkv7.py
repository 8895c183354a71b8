"""RWKV-7 (arXiv:2503.14456): each token mixed with the one before, a delta rule with decays and rates of channels."""

from __future__ import annotations

from functools import partial

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.delta_rule import delta_prefill_cost
from jaxperf.kernels.recurrent import LinearAttentionShape, state_update_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gated_norm, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractSquareState, recur, token_shift
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Rwkv7

CHUNK = 64.0  # tokens of a prompt computed at once
STEP_OPERATIONS = 9.0  # decay h: 1; read with one key: 2; take out: 2; add with another: 2; read: 2, a number of h
SHIFTED = 6.0  # mixtures of a token and the one before: for receptance, decay, key, value, rate and gate


class Rwkv7Mixer(AbstractSquareState):
    """Heads, width of a head, elements of the bottlenecks and how many there are [1].

    Tensor parallelism splits the heads; into the bottlenecks every rank projects in full. A prompt is counted as one of
    the delta rule, which takes out and adds with the same key.
    """

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    ranks: Float[Array, "*batch"] = eqx.field(converter=as_float)
    bottlenecks: int = eqx.field(static=True, default=4)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, width = phase.tokens, self.rank_width(deployment.layout)
        each, count = self.ranks / self.bottlenecks, as_float(self.bottlenecks)
        narrow = linear(deployment, tokens, each, hidden) + linear(deployment, tokens, width, each)
        return {
            "token_shift": token_shift(deployment, tokens, hidden, SHIFTED),
            "rkv_projection": as_float(3.0) * linear(deployment, tokens, width, hidden),  # of different mixtures
            "low_rank_projection": count * narrow,
            "wkv": self._recur(deployment, phase),
            "output_gate": gated_norm(deployment, tokens, width),
            "output_projection": linear(deployment, tokens, hidden, width),
        }

    def _recur(self, at: Deployment, phase: Phase) -> Cost:
        heads = ceil_div(self.heads, at.layout.tensor_parallel)
        gates = 2.0 * self.head_dim  # a decay and a rate for each channel
        shape = LinearAttentionShape(heads, heads, self.head_dim, self.head_dim, CHUNK, gates)
        return recur(at, phase, shape, delta_prefill_cost, partial(state_update_cost, operations=STEP_OPERATIONS))

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        """The token before, of this mixer and of the feed-forward block, whole on every rank."""
        return 2.0 * self.heads * self.head_dim, as_float(2.0)

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return 6.0 * self.rank_width(layout)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        width = self.rank_width(layout)
        return 4.0 * hidden * width + self.ranks * (hidden + width)


def rwkv7_mixer(mixer: Rwkv7) -> Rwkv7Mixer:
    """The arrays of a described mixer."""
    return Rwkv7Mixer(mixer.heads, mixer.head_dim, mixer.ranks, 3 if mixer.value_rank is None else 4)
