"""Linear attention and state-space layers: their shape, their state, and one step of the recurrence on it.

A head keeps a state h of key_dim x value_dim numbers: h <- decay h + k v^T, y = q h. State-space models write the
same with B for keys, C for queries and x for values (Dao, Gu 2024, arXiv 2405.21060).
"""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div
from jaxperf.kernels.roofline import kernel_cost, wave_stretch

STATE_ITEMSIZE = 4.0  # states are kept in fp32 [byte]
GATE_ITEMSIZE = 4.0  # decays and step sizes too [byte]
STATE_COLUMNS = 16.0  # value columns of a state that one block of the recurrent kernel holds
DECAYED_STEP = 5.0  # FLOP per number of the state: decay h: 1; + k v: 2; q h: 2


class LinearAttentionShape(eqx.Module):
    """One layer on one rank: `heads` states of `key_dim` x `value_dim`; queries and keys in `key_heads` (groups of
    heads share them); `chunk` tokens are multiplied at once in a prompt; `gates` decays per token and head: 1, or
    `key_dim` where every channel has its own (Kimi delta attention), or 0 where decays are fixed [1].
    """

    heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    key_heads: Float[Array, "*batch"] = eqx.field(converter=as_float)
    key_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    value_dim: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chunk: Float[Array, "*batch"] = eqx.field(converter=as_float)
    gates: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)

    @property
    def state_elements(self) -> Float[Array, "*batch"]:
        """Numbers in the state of one sequence [1]."""
        return self.heads * self.key_dim * self.value_dim

    @property
    def key_width(self) -> Float[Array, "*batch"]:
        """Elements of the keys (or of the queries) of one token [1]."""
        return self.key_heads * self.key_dim

    @property
    def gate_bytes(self) -> Float[Array, "*batch"]:
        """Decays of one token [byte]."""
        return self.gates * self.heads * GATE_ITEMSIZE

    @property
    def value_width(self) -> Float[Array, "*batch"]:
        """Elements of the values (or of the outputs) of one token [1]."""
        return self.heads * self.value_dim


def chunk_pairs(tokens: Scalar, chunk: Scalar) -> Scalar:
    """Pairs (query, key not after it) within aligned chunks, the last one possibly short [1]."""
    whole = floor_div(tokens, chunk)
    rest = tokens - whole * chunk
    return whole * (chunk * (chunk + 1.0) / 2.0) + rest * (rest + 1.0) / 2.0


def state_update_cost(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
    operations: float,
    strengths: float = 0.0,
) -> Cost:
    """One token per sequence: the state is read, updated and written back, on the vector units.

    Blocks = batch x heads x ceil(value_dim / 16) on the cores; with waves = ceil(blocks / cores) both resources are
    stretched by waves x cores / blocks.

    **Arguments:** `operations`: FLOP per number of the state [1]; `strengths`: gate values of a head beside its decays
    [1].
    **Returns:** `Cost` of scalars.
    """
    blocks = batch * shape.heads * ceil_div(shape.value_dim, as_float(STATE_COLUMNS))
    stretch = wave_stretch(device, blocks)
    flops = operations * batch * shape.state_elements
    vectors = 2.0 * (shape.key_width + shape.value_width)
    return kernel_cost(
        device,
        efficiency(shape, device),
        compute=flops * stretch / device.vector_flops,
        flops=flops,
        bytes_moved=batch
        * (
            2.0 * STATE_ITEMSIZE * shape.state_elements
            + vectors * activations.itemsize
            + shape.gate_bytes
            + strengths * shape.heads * GATE_ITEMSIZE
        ),
        stretch=stretch,
    )


@jax.jit
def decayed_decode_cost(
    device: Device,
    shape: LinearAttentionShape,
    batch: Scalar,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
) -> Cost:
    """One token per sequence of state spaces with a decay for each head and of lightning attention: 5 FLOP per number
    of the state, which is read and written in fp32.

    **Returns:** `Cost` of scalars.
    """
    return state_update_cost(device, shape, batch, activations, efficiency, DECAYED_STEP)
