"""Kernels that many blocks launch, on the device, in the formats and at the efficiencies of a deployment."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxperf.core.cost import Cost
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.elementwise import Stream, activation_cost, rotary_cost, stream_cost
from jaxperf.kernels.gather import kv_write_cost
from jaxperf.kernels.gemm import linear_cost
from jaxperf.kernels.normalization import residual_norm_cost
from jaxperf.models.block_formats import PLAIN
from jaxperf.models.deployment import Deployment
from jaxperf.network.collectives import all_reduce_cost
from jaxperf.network.link import Fabric


def in_format(at: Deployment, name: str) -> Deployment:
    """The deployment with weights in the format of this name, or unquantized where it is `PLAIN`."""
    if name != PLAIN:
        return dataclasses.replace(at, weights=number_format(name))
    efficiencies = dataclasses.replace(at.efficiencies, gemm=at.efficiencies.plain_gemm)
    return dataclasses.replace(at, weights=at.activations, efficiencies=efficiencies)


def linear(at: Deployment, tokens: Scalar, columns: Scalar, depth: Scalar) -> Cost:
    """A projection with weights in the weight format."""
    return linear_cost(at.device, tokens, columns, depth, at.weights, at.activations, at.efficiencies.gemm)


def plain_linear(at: Deployment, tokens: Scalar, columns: Scalar, depth: Scalar) -> Cost:
    """A projection that quantization leaves alone: weights in the format of the activations."""
    return linear_cost(at.device, tokens, columns, depth, at.activations, at.activations, at.efficiencies.plain_gemm)


def norm(at: Deployment, tokens: Scalar, width: Scalar) -> Cost:
    """Norm of `width` elements a token, with the residual addition fused into it."""
    return residual_norm_cost(at.device, tokens, width, at.activations.itemsize, at.efficiencies.elementwise)


def activation(at: Deployment, tokens: Scalar, width: Scalar, gates: Scalar) -> Cost:
    """Activation function, times a second operand where `gates` is 1."""
    return activation_cost(at.device, tokens, width, gates, at.activations.itemsize, at.efficiencies.elementwise)


def rotary(at: Deployment, tokens: Scalar, heads: Scalar, head_dim: Scalar) -> Cost:
    """Rotary embedding of `heads` queries and keys."""
    return rotary_cost(at.device, tokens, heads, head_dim, at.activations.itemsize, at.efficiencies.elementwise)


def cache_write(at: Deployment, tokens: Scalar, elements: Scalar) -> Cost:
    """`elements` a token from activations to the cache, in its format."""
    stream, itemsize = at.efficiencies.elementwise, at.activations.itemsize
    return kv_write_cost(at.device, tokens, as_float(0.5), elements, itemsize, at.cache, stream)  # a key and a value


def reduce(at: Deployment, tokens: Scalar, width: Scalar) -> Cost:
    """All-reduce of `width` elements a token over the tensor-parallel ranks."""
    return all_reduce_cost(flagged(at, at.tensor_fabric), tokens * width * at.activations.itemsize)


def flagged(at: Deployment, fabric: Fabric) -> Fabric:
    """The fabric of a group whose kernels find each other by flags in the peers' memory: each phase of a collective
    starts, waits for flags before it reads and for others when all have read (vLLM, csrc/custom_all_reduce.cuh). Rings
    of a torus are part of a compiled program.

    All-reduces of vLLM, SGLang and TensorRT-LLM in a replayed graph take 3.5 to 5.5 us of 16 KB on eight H100, whose
    links add 0.85 us, and 13 to 17 us of 256 KB to 1 MB, in two phases.
    """
    waits = jnp.where(fabric.ring_steps > 0.0, 0.0, at.device.launch_latency + fabric.local_latency)
    return dataclasses.replace(fabric, local_latency=fabric.local_latency + waits)


def add(at: Deployment, tokens: Scalar, width: Scalar) -> Cost:
    """Sum (or product) of two tensors of `width` elements a token."""
    elements, itemsize = tokens * width, at.activations.itemsize
    return stream_cost(
        at.device, Stream(2.0 * elements * itemsize, elements * itemsize, elements), at.efficiencies.elementwise
    )


def gate(at: Deployment, tokens: Scalar, width: Scalar) -> Cost:
    """A tensor times an activation function of another, `width` elements a token."""
    return activation(at, tokens, width, as_float(1.0))


def plain_norm(at: Deployment, tokens: Scalar, width: Scalar) -> Cost:
    """Norm of `width` elements a token without a residual: one stream read, one written, about 4 operations each."""
    elements, itemsize = tokens * width, at.activations.itemsize
    stream = Stream(elements * itemsize, elements * itemsize, 4.0 * elements)
    return stream_cost(at.device, stream, at.efficiencies.elementwise)


def gated_norm(at: Deployment, tokens: Scalar, width: Scalar) -> Cost:
    """Norm of a tensor times an activation of another, `width` elements a token: two streams read, one written."""
    elements, itemsize = tokens * width, at.activations.itemsize
    stream = Stream(2.0 * elements * itemsize, elements * itemsize, 12.0 * elements)
    return stream_cost(at.device, stream, at.efficiencies.elementwise)
