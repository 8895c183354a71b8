"""Mamba-1: the selective scan, a recurrence on the vector units (Gu, Dao 2023, arXiv 2312.00752)."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.recurrent import STATE_ITEMSIZE
from jaxperf.kernels.roofline import kernel_cost, wave_stretch

STATE_OPERATIONS = 7.0  # exp(step A): 2; step x B: 1; a h + that: 2; C h, summed: 2, per number of the state
CHANNEL_OPERATIONS = 3.0  # step x: 1; D x, added: 2, per channel
VECTORS = 4.0  # x, step size, gate and output: elements per channel and token


class SelectiveScan(eqx.Module):
    """One layer on one rank: `channels`, each with a state of `state` numbers [1]."""

    channels: Float[Array, "*batch"] = eqx.field(converter=as_float)
    state: Float[Array, "*batch"] = eqx.field(converter=as_float)


@jax.jit
def selective_scan_cost(
    device: Device,
    scan: SelectiveScan,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Prompts of `tokens` tokens in one fused kernel, one block a channel, its states on chip.

    FLOP = (7 state + 3) per channel and token. x, step, gate and output pass through device memory once, B and C
    (2 state elements a token) too; A once, the last states are written. With waves = ceil(batch channels / cores)
    both resources are stretched by waves x cores / blocks.

    **Arguments:** `batch`: sequences [1]. **Returns:** `Cost` of scalars.
    """
    blocks = batch * scan.channels
    stretch = wave_stretch(device, blocks)
    flops = blocks * tokens * (STATE_OPERATIONS * scan.state + CHANNEL_OPERATIONS)
    per_token = VECTORS * scan.channels + 2.0 * scan.state
    states = (batch + 1.0) * scan.channels * scan.state * STATE_ITEMSIZE
    return kernel_cost(
        device,
        efficiency(scan, device),
        compute=flops * stretch / device.vector_flops,
        flops=flops,
        bytes_moved=batch * tokens * per_token * activations.itemsize + states,
        stretch=stretch,
    )


@jax.jit
def selective_scan_decode_cost(
    device: Device,
    scan: SelectiveScan,
    batch: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """One token per sequence: the fp32 states are read and written, A read once for all sequences.

    **Returns:** `Cost` of scalars.
    """
    blocks = batch * scan.channels
    flops = blocks * (STATE_OPERATIONS * scan.state + CHANNEL_OPERATIONS)
    vectors = batch * (VECTORS * scan.channels + 2.0 * scan.state)
    states = (2.0 * batch + 1.0) * scan.channels * scan.state * STATE_ITEMSIZE
    return kernel_cost(
        device,
        efficiency(scan, device),
        compute=flops / device.vector_flops,
        flops=flops,
        bytes_moved=vectors * activations.itemsize + states,
    )
