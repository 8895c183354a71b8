"""What all mixers with a state of constant size share: no cache that grows, a state, taps of a short convolution."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.causal_conv import causal_conv_cost, causal_conv_decode_cost
from jaxperf.kernels.elementwise import Stream, stream_cost
from jaxperf.kernels.recurrent import STATE_ITEMSIZE, LinearAttentionShape
from jaxperf.kernels.selective_scan import SelectiveScan
from jaxperf.models.blocks.base import AbstractMixer
from jaxperf.models.blocks.phase import Decode, Phase
from jaxperf.models.deployment import Deployment, Parallelism


class AbstractRecurrent(AbstractMixer):
    """A mixer whose memory of a sequence does not grow with it."""

    name: ClassVar[str] = "mixer"

    @abc.abstractmethod
    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        """Elements of the recurrent state of one sequence on one rank [1]."""

    @abc.abstractmethod
    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        """(channels on one rank, taps) of the causal convolution; (0, 1) without one [1]."""

    @abc.abstractmethod
    def decay_elements(self, layout: Parallelism) -> Scalar:
        """Decays, step-size biases and skips of one rank, which are in no matrix [1]."""

    def cached_elements(self, layout: Parallelism, length: Scalar) -> Scalar:
        return as_float(0.0)

    def state_bytes(self, layout: Parallelism, itemsize: Scalar) -> Scalar:
        """The state in fp32 and the convolution's last inputs, `taps - 1` a channel [byte]."""
        channels, taps = self.convolution(layout)
        return self.recurrent_elements(layout) * STATE_ITEMSIZE + channels * (taps - 1.0) * itemsize

    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        channels, taps = self.convolution(layout)
        return channels * taps + self.decay_elements(layout)


class AbstractSquareState(AbstractRecurrent):
    """Heads with a state of `head_dim` x `head_dim` each, which tensor parallelism splits."""

    heads: eqx.AbstractVar[Float[Array, "*batch"]]
    head_dim: eqx.AbstractVar[Float[Array, "*batch"]]

    def rank_width(self, layout: Parallelism) -> Scalar:
        """Elements of all heads of one tensor-parallel rank [1]."""
        return ceil_div(self.heads, layout.tensor_parallel) * self.head_dim

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return self.rank_width(layout) * self.head_dim

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.heads)


def convolve(at: Deployment, phase: Phase, channels: Scalar, taps: Scalar) -> Cost:
    """The causal convolution of a phase."""
    itemsize, stream = at.activations.itemsize, at.efficiencies.elementwise
    if isinstance(phase, Decode):
        return causal_conv_decode_cost(at.device, phase.sequences, channels, taps, itemsize, stream)
    return causal_conv_cost(at.device, phase.sequences, phase.prompt, channels, taps, itemsize, stream)


def recur(
    at: Deployment,
    phase: Phase,
    shape: LinearAttentionShape | SelectiveScan,
    prefill: Callable[..., Cost],
    decode: Callable[..., Cost],
) -> Cost:
    """The state's update and its reading: in chunks of the prompt, or one token against the state."""
    if isinstance(phase, Decode):
        return decode(at.device, shape, phase.sequences, at.activations, at.efficiencies.elementwise)
    efficiency = at.efficiencies.linear_attention
    return prefill(at.device, shape, phase.sequences, phase.prompt, at.activations, efficiency)


def token_shift(at: Deployment, tokens: Scalar, hidden: Scalar, mixtures: float) -> Cost:
    """So many mixtures of each token and the one before, in one kernel."""
    elements, itemsize = tokens * hidden, at.activations.itemsize
    stream = Stream(elements * itemsize, mixtures * elements * itemsize, (1.0 + 2.0 * mixtures) * elements)
    return stream_cost(at.device, stream, at.efficiencies.elementwise)
