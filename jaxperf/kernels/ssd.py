"""Mamba-2, structured state-space duality: chunked prefill (Dao, Gu 2024, arXiv 2405.21060); a step of decode is in
`jaxperf.kernels.recurrent`."""

from __future__ import annotations

import jax

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, ceil_div
from jaxperf.kernels.elementwise import Stream, stream_cost
from jaxperf.kernels.recurrent import STATE_ITEMSIZE, LinearAttentionShape, chunk_pairs
from jaxperf.kernels.roofline import busiest_time, kernel_cost


@jax.jit
def ssd_prefill_cost(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Prompts of `tokens` tokens in three kernels: the state of every chunk, their passing on, the outputs.

    With N = key_dim, P = value_dim, chunks of Q tokens and the pairs within them:
    states: 2 N P per token and head; passing: 2 N P per chunk and head on the vector units;
    outputs: C B^T, 2 N per pair and group; (C B^T) x, 2 P per pair and head; C h, 2 N P per token and head.
    Cores multiply whole squares of Q x Q. Chunk states pass through device memory in fp32, four times.

    **Arguments:** `shape`: `key_heads` are the groups of B and C, `key_dim` the state width, `value_dim` the head
    width; `batch`: sequences [1]. **Returns:** `Cost` of scalars, the sum of three launches.
    """
    chunks = batch * ceil_div(tokens, shape.chunk)
    states = chunks * shape.state_elements
    passing = Stream(states * STATE_ITEMSIZE, states * STATE_ITEMSIZE, 2.0 * states)
    return (
        _chunk_states(device, shape, batch, tokens, activations, efficiency)
        + stream_cost(device, passing, efficiency)
        + _chunk_outputs(device, shape, batch, tokens, activations, efficiency)
    )


def _chunk_states(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """B^T x of every chunk and head, one block each."""
    chunks = batch * ceil_div(tokens, shape.chunk)
    outer = 2.0 * shape.key_dim * shape.value_dim
    read = (shape.key_width + shape.value_width) * activations.itemsize + shape.gate_bytes
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=busiest_time(device, chunks * shape.heads, shape.chunk * outer, activations),
        flops=batch * tokens * shape.heads * outer,
        bytes_moved=batch * tokens * read + chunks * shape.state_elements * STATE_ITEMSIZE,
    )


def _chunk_outputs(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    tokens: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """(C B^T, decayed) x + C h of every chunk and head; C B^T is computed once for the heads of a group."""
    chunks = batch * ceil_div(tokens, shape.chunk)
    within = 2.0 * (shape.key_width + shape.value_width) / shape.heads  # FLOP per pair and head
    outer = 2.0 * shape.key_dim * shape.value_dim
    moved = 2.0 * (shape.key_width + shape.value_width) * activations.itemsize  # C, B, x and the output
    pairs = batch * chunk_pairs(tokens, shape.chunk)
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=busiest_time(device, chunks * shape.heads, shape.chunk * (shape.chunk * within + outer), activations),
        flops=2.0 * pairs * (shape.key_width + shape.value_width) + batch * tokens * shape.heads * outer,
        bytes_moved=batch * tokens * (moved + shape.gate_bytes) + chunks * shape.state_elements * STATE_ITEMSIZE,
    )
