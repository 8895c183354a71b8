"""Streams over activations: kernels that read and write each element a fixed number of times."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.roofline import kernel_cost


class Stream(eqx.Module):
    """An elementwise kernel: bytes read, bytes written, and vector operations in all."""

    read: Float[Array, "*batch"] = eqx.field(converter=as_float)
    written: Float[Array, "*batch"] = eqx.field(converter=as_float)
    operations: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)


def stream_cost(device: Device, stream: Stream, efficiency: AbstractEfficiency) -> Cost:
    """bytes = read + written, compute = operations / vector peak."""
    return kernel_cost(
        device,
        efficiency(stream, device),
        compute=stream.operations / device.vector_flops,
        flops=stream.operations,
        bytes_moved=stream.read + stream.written,
    )


def two_pass_reads(device: Device, groups: Scalar, group_bytes: Scalar) -> Scalar:
    """How often device memory is read where every element of a group is needed twice: 1 or 2 [1].

    A first pass finds a maximum or a sum, a second uses it. The second comes from on-chip memory where the groups the
    cores work on at a time, one each, fit the L2.
    """
    in_flight = jnp.minimum(groups, device.num_cores) * group_bytes
    return jnp.where(in_flight <= device.l2_capacity, 1.0, 2.0)


@jax.jit
def activation_cost(
    device: Device, tokens: Scalar, width: Scalar, gates: Scalar, itemsize: Scalar, efficiency: AbstractEfficiency
) -> Cost:
    """Activation of a feed-forward layer; `gates` is 1 where a second projection multiplies it (SwiGLU), else 0.

    About 8 operations an element: an exponential, a division and the products. `itemsize`: bytes of an element.
    """
    elements = tokens * width
    stream = Stream(elements * (1.0 + gates) * itemsize, elements * itemsize, 8.0 * elements)
    return stream_cost(device, stream, efficiency)


@jax.jit
def rotary_cost(
    device: Device, tokens: Scalar, heads: Scalar, head_dim: Scalar, itemsize: Scalar, efficiency: AbstractEfficiency
) -> Cost:
    """Rotary embedding of queries and keys: 6 operations per pair of elements (Su et al. 2021, arXiv 2104.09864)."""
    elements = tokens * heads * head_dim
    return stream_cost(device, Stream(elements * itemsize, elements * itemsize, 3.0 * elements), efficiency)
