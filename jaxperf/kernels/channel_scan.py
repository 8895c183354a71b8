"""Recurrences of single channels on the vector units: RWKV-4 (arXiv:2305.13048), RG-LRU (Griffin, arXiv:2402.19427)."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.recurrent import STATE_ITEMSIZE
from jaxperf.kernels.roofline import kernel_cost, wave_stretch

CHANNELS_PER_BLOCK = 32.0  # one a thread, a warp of them a block, as in RWKV's kernel


class ChannelScan(eqx.Module):
    """One layer on one rank: `channels`, each with a state of `state` numbers; `operations` [FLOP] and
    `vectors`, elements read and written, of a channel and token [1]."""

    channels: Float[Array, "*batch"] = eqx.field(converter=as_float)
    state: Float[Array, "*batch"] = eqx.field(converter=as_float)
    operations: Float[Array, "*batch"] = eqx.field(converter=as_float)
    vectors: Float[Array, "*batch"] = eqx.field(converter=as_float)


@jax.jit
def channel_scan_cost(
    device: Device,
    scan: ChannelScan,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """`tokens` tokens of each sequence in one kernel, the states on chip meanwhile.

    FLOP = operations per channel and token; vectors pass through device memory once, the fp32 states are read and
    written. With waves = ceil(batch ceil(channels / 32) / cores) both resources are stretched by the idle cores.

    **Arguments:** `batch`: sequences [1]. **Returns:** `Cost` of scalars.
    """
    blocks = batch * ceil_div(scan.channels, as_float(CHANNELS_PER_BLOCK))
    stretch = wave_stretch(device, blocks)
    flops = batch * tokens * scan.channels * scan.operations
    vectors = batch * tokens * scan.channels * scan.vectors
    states = 2.0 * batch * scan.channels * scan.state
    return kernel_cost(
        device,
        efficiency(scan, device),
        compute=flops * stretch / device.vector_flops,
        flops=flops,
        bytes_moved=vectors * activations.itemsize + states * STATE_ITEMSIZE,
        stretch=stretch,
    )
