"""The gated short convolution of LFM2 (arXiv:2511.23404): projection to three parts, gate, taps, gate, projection."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import add, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractRecurrent, convolve
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import ShortConv


class ShortConvMixer(AbstractRecurrent):
    """Channels and taps [1]. Tensor parallelism splits the channels."""

    width: Float[Array, "*batch"] = eqx.field(converter=as_float)
    taps: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, width = phase.tokens, ceil_div(self.width, deployment.layout.tensor_parallel)
        return {
            "conv_in_projection": linear(deployment, tokens, 3.0 * width, hidden),
            "conv_gate": as_float(2.0) * add(deployment, tokens, width),
            "short_convolution": convolve(deployment, phase, width, self.taps),
            "conv_out_projection": linear(deployment, tokens, hidden, width),
        }

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return as_float(0.0)

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        return ceil_div(self.width, layout.tensor_parallel), self.taps

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return as_float(0.0)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return 4.0 * hidden * ceil_div(self.width, layout.tensor_parallel)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.width)


def short_conv_mixer(mixer: ShortConv) -> ShortConvMixer:
    """The arrays of a described mixer."""
    return ShortConvMixer(mixer.width, mixer.conv)
