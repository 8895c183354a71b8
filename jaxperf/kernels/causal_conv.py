"""Short causal convolution, depthwise: y[t, c] = sum over j < width of w[c, j] x[t - j, c] (Mamba, DeltaNet, LFM2)."""

from __future__ import annotations

import jax

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.numerics import Scalar
from jaxperf.kernels.elementwise import Stream, stream_cost


@jax.jit
def causal_conv_cost(
    device: Device,
    batch: Scalar,
    tokens: Scalar,
    channels: Scalar,
    width: Scalar,
    itemsize: Scalar,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Prompts of `tokens` tokens: inputs and weights read once, outputs and the last width - 1 inputs written.

    **Arguments:** `batch`: sequences [1]; `width`: taps [1]; `itemsize`: bytes of an element.
    **Returns:** `Cost` of scalars, 2 width FLOP an element.
    """
    elements, kept = batch * tokens * channels, batch * channels * (width - 1.0)
    read, written = elements + channels * width, elements + kept
    return stream_cost(device, Stream(read * itemsize, written * itemsize, 2.0 * width * elements), efficiency)


@jax.jit
def causal_conv_decode_cost(
    device: Device, batch: Scalar, channels: Scalar, width: Scalar, itemsize: Scalar, efficiency: AbstractEfficiency
) -> Cost:
    """One token per sequence: the last width - 1 inputs of every channel are read and, shifted by one, written.

    **Returns:** `Cost` of scalars.
    """
    elements, kept = batch * channels, batch * channels * (width - 1.0)
    read, written = elements + kept + channels * width, elements + kept
    return stream_cost(device, Stream(read * itemsize, written * itemsize, 2.0 * width * elements), efficiency)
