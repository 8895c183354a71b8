"""Linear attention with fixed decays: tiled prefill (Lightning Attention-2, arXiv 2401.04658).

MiniMax-01 (arXiv 2501.08313) has one decay per head; with a decay of 1 it is plain linear attention. A step of decode
is in `jaxperf.kernels.recurrent`.
"""

from __future__ import annotations

import jax

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.recurrent import STATE_ITEMSIZE, LinearAttentionShape, chunk_pairs
from jaxperf.kernels.roofline import busiest_time, kernel_cost, wave_stretch

VALUE_BLOCK = 64.0  # value columns of one block, which keeps its part of the state on chip


@jax.jit
def lightning_prefill_cost(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Prompts of `tokens` tokens in one kernel that walks the chunks in order, the state on chip.

    Per token and head: q h and k^T v, 4 key_dim value_dim FLOP; per pair within a chunk: 2 key_dim FLOP (q k^T, once
    per key head) and 2 value_dim (times v, per head). Blocks = batch x heads x ceil(value_dim / 64), each repeats
    q k^T for its columns and multiplies whole squares; with few blocks the transfer is stretched by the idle cores.

    **Arguments:** `batch`: sequences [1]. **Returns:** `Cost` of scalars.
    """
    blocks = batch * shape.heads * ceil_div(shape.value_dim, as_float(VALUE_BLOCK))
    chunk, width = shape.chunk, VALUE_BLOCK
    step = 2.0 * chunk * (chunk * (shape.key_dim + width) + 2.0 * shape.key_dim * width)
    per_token = 2.0 * (shape.key_width + shape.value_width) * activations.itemsize
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=busiest_time(device, blocks, ceil_div(tokens, chunk) * step, activations),
        flops=batch
        * (
            4.0 * tokens * shape.state_elements
            + 2.0 * chunk_pairs(tokens, chunk) * (shape.key_width + shape.value_width)
        ),
        bytes_moved=batch * (tokens * (per_token + shape.gate_bytes) + 2.0 * STATE_ITEMSIZE * shape.state_elements),
        stretch=wave_stretch(device, blocks),
    )
