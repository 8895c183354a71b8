"""RWKV-4 (arXiv:2305.13048): each token mixed with the one before, a decaying mean of the values of each channel."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.channel_scan import ChannelScan, channel_scan_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gate, linear
from jaxperf.models.blocks.phase import Decode, Phase
from jaxperf.models.blocks.recurrent import AbstractRecurrent, token_shift
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Rwkv4

STATE = 3.0  # numerator, denominator and their exponent
# u + k and w + exponent: 2; two maxima, each with two differences and exponentials: 10; for the output and for the
# state a numerator: 6, and a denominator: 4; the quotient: 1.
OPERATIONS = 23.0
VECTORS = 3.0  # key, value and output
SHIFTED = 3.0  # mixtures: for receptance, key and value


class Rwkv4Mixer(AbstractRecurrent):
    """Channels, as many as the residual has [1]. Tensor parallelism splits them."""

    width: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, width = phase.tokens, self.rank_width(deployment.layout)
        return {
            "token_shift": token_shift(deployment, tokens, hidden, SHIFTED),
            "rkv_projection": as_float(3.0) * linear(deployment, tokens, width, hidden),  # of different mixtures
            "wkv": scan(deployment, phase, ChannelScan(width, STATE, OPERATIONS, VECTORS)),
            "output_gate": gate(deployment, tokens, width),
            "output_projection": linear(deployment, tokens, hidden, width),
        }

    def rank_width(self, layout: Parallelism) -> Scalar:
        """Channels of one tensor-parallel rank [1]."""
        return ceil_div(self.width, layout.tensor_parallel)

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return STATE * self.rank_width(layout)

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        """The token before, of this mixer and of the feed-forward block, whole on every rank."""
        return 2.0 * self.width, as_float(2.0)

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return 2.0 * self.rank_width(layout)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return 4.0 * hidden * self.rank_width(layout)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.width)


def scan(at: Deployment, phase: Phase, shape: ChannelScan) -> Cost:
    """The recurrence of a phase, of one token in decode."""
    if isinstance(phase, Decode):
        efficiency = at.efficiencies.elementwise
        return channel_scan_cost(at.device, shape, phase.sequences, as_float(1.0), at.activations, efficiency)
    efficiency = at.efficiencies.linear_attention
    return channel_scan_cost(at.device, shape, phase.sequences, phase.prompt, at.activations, efficiency)


def rwkv4_mixer(mixer: Rwkv4) -> Rwkv4Mixer:
    """The arrays of a described mixer."""
    return Rwkv4Mixer(mixer.width)
