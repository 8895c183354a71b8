"""The gated delta rule: chunked prefill and recurrent decode (Gated DeltaNet, Yang et al. 2024, arXiv 2412.06464).

h <- decay h (I - beta k k^T) + beta k v^T. Within a chunk the updates are folded into two matrices, w and u (the WY
form of Yang et al. 2024, arXiv 2406.06484), by inverting the unit lower triangle I + A, A = beta k k^T below the
diagonal. Kimi delta attention (arXiv 2510.26692) is the same with one decay per channel.
"""

from __future__ import annotations

import jax

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div
from jaxperf.kernels.recurrent import (
    GATE_ITEMSIZE,
    STATE_ITEMSIZE,
    LinearAttentionShape,
    chunk_pairs,
    state_update_cost,
)
from jaxperf.kernels.roofline import busiest_time, kernel_cost, wave_stretch

STEP_OPERATIONS = 7.0  # decay h: 1; k h: 2; + k (v - k h): 2; q h: 2, per number of the state
VALUE_BLOCK = 64.0  # value columns of one block of the kernel that walks the chunks


def inverse_flops(size: Scalar) -> Scalar:
    """To invert a unit lower triangular matrix by substitution: n (n - 1) (n - 2) / 3 [FLOP]."""
    return size * (size - 1.0) * (size - 2.0) / 3.0


@jax.jit
def delta_prefill_cost(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Prompts of `tokens` tokens in three kernels: w and u of every chunk, the states in order, the outputs.

    With K = key_dim, V = value_dim and heads sharing keys in groups:
    folding: k k^T below the diagonal, the inverse, and its products with k and v (2 K + 2 V per pair and head);
    states: w h and k^T (u - w h), 4 K V per token and head, chunk after chunk;
    outputs: q k^T and its product with the new values (2 K + 2 V per pair and head), q h (2 K V per token and head).
    k k^T and q k^T are computed for each head, since the gates differ.

    **Arguments:** `batch`: sequences [1]. **Returns:** `Cost` of scalars, the sum of three launches.
    """
    arguments = (device, shape, batch, tokens, activations, efficiency)
    return _fold(*arguments) + _states(*arguments) + _outputs(*arguments)


def _fold(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """w and u from k, v, the decays and the strengths beta: A and its inverse stay on chip."""
    chunk, whole = shape.chunk, floor_div(tokens, shape.chunk)
    pairs = chunk_pairs(tokens, chunk)
    widths = shape.key_dim + shape.value_dim
    inverses = whole * inverse_flops(chunk) + inverse_flops(tokens - whole * chunk)
    square = 2.0 * chunk * chunk * (shape.key_dim + widths) + inverse_flops(chunk)
    flops = 2.0 * (pairs - tokens) * shape.key_dim + inverses + 2.0 * pairs * widths
    moved = (shape.key_width + shape.heads * shape.key_dim + 2.0 * shape.value_width) * activations.itemsize
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=busiest_time(device, _chunks(shape, batch, tokens), square, activations),
        flops=batch * shape.heads * flops,
        bytes_moved=batch * tokens * (moved + shape.gate_bytes + shape.heads * GATE_ITEMSIZE),
    )


def _states(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """The states at all chunk borders and the new values; a block walks the chunks with 64 value columns of a state."""
    blocks = batch * shape.heads * ceil_div(shape.value_dim, as_float(VALUE_BLOCK))
    chunks = ceil_div(tokens, shape.chunk)
    walk = chunks * shape.chunk * 4.0 * shape.key_dim * VALUE_BLOCK
    read = shape.key_width + shape.heads * shape.key_dim + shape.value_width  # k, w, u
    borders = chunks * shape.state_elements * activations.itemsize
    ends = 2.0 * STATE_ITEMSIZE * shape.state_elements
    per_token = (read + shape.value_width) * activations.itemsize + shape.gate_bytes
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=busiest_time(device, blocks, walk, activations),
        flops=4.0 * batch * tokens * shape.state_elements,
        bytes_moved=batch * (tokens * per_token + borders + ends),
        stretch=wave_stretch(device, blocks),
    )


def _outputs(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """(q k^T, decayed) times the new values, plus q times the state at the chunk's border."""
    chunk, widths = shape.chunk, shape.key_dim + shape.value_dim
    state = 2.0 * shape.key_dim * shape.value_dim
    square = chunk * (2.0 * chunk * widths + state)
    per_token = 2.0 * (shape.key_width + shape.value_width) * activations.itemsize
    borders = ceil_div(tokens, chunk) * shape.state_elements * activations.itemsize
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=busiest_time(device, _chunks(shape, batch, tokens), square, activations),
        flops=batch * shape.heads * (2.0 * chunk_pairs(tokens, chunk) * widths + tokens * state),
        bytes_moved=batch * (tokens * (per_token + shape.gate_bytes) + borders),
    )


def _chunks(shape: LinearAttentionShape, batch: Scalar, tokens: Scalar) -> Scalar:
    """Chunks of all heads, each one block [1]."""
    return batch * shape.heads * ceil_div(tokens, shape.chunk)


@jax.jit
def delta_decode_cost(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """One token per sequence: 7 FLOP per number of the state, which is read and written in fp32.

    **Returns:** `Cost` of scalars.
    """
    return state_update_cost(device, shape, batch, activations, efficiency, STEP_OPERATIONS, strengths=1.0)
