"""How many blocks of KV cache a device holds beside the weights, as vLLM finds it out when it starts."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float, floor_div
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import activation_bytes, kv_cache_bytes, weight_bytes

GIGABYTE = 1e9


class CacheMemory(NamedTuple):
    """`blocks` that fit, the bytes of one of them on each device, and in a sentence where the number is from."""

    blocks: int
    block_bytes: float
    note: str


def cache_memory(
    deployment: Deployment, model: Transformer, block_size: int, step_tokens: int, utilization: float
) -> CacheMemory:
    """Blocks on the fullest device: floor((u C - weights - activations) / bytes of a block), with capacity C.

    A block holds `block_size` tokens of all layers of the stage. What a sequence keeps besides, whatever its length,
    is left out.

    **Arguments:** `step_tokens`: the most one step computes [1]; `utilization` u: the share of the memory that the
    engine takes (vLLM's `gpu_memory_utilization`) [1].
    **Raises:** `InputError` where nothing is left for a block, or the model caches nothing.
    """
    tokens, one = as_float(step_tokens), as_float(1.0)
    states = kv_cache_bytes(deployment, model, one, as_float(0.0))
    block = kv_cache_bytes(deployment, model, one, as_float(block_size)) - states
    weights = weight_bytes(deployment, model)
    activations = activation_bytes(deployment, model, tokens, tokens)
    left = deployment.device.memory_capacity * utilization - weights - activations
    if not block > 0.0:
        raise InputError("the model keeps no keys and values, so num_blocks cannot be counted; state it.")
    blocks = int(floor_div(jnp.maximum(left, 0.0), block))
    gigabytes = [float(each) / GIGABYTE for each in (deployment.device.memory_capacity, weights, activations)]
    words = "{:.4g} GB of memory, {:.4g} GB of weights, {:.3g} GB of activations".format(*gigabytes)
    if not blocks:
        raise InputError(f"no memory is left for a block of KV cache: {words}, {utilization:g} of the memory used.")
    return CacheMemory(
        blocks, float(block), f"num_blocks is {blocks:,}, of {words}, {utilization:g} of the memory used"
    )
