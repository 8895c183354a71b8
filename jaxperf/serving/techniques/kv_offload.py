"""The cache of keys and values in host memory: prefixes that are found there, and sequences that do not fit on device.

What is on the host comes over its link layer by layer, while the layers before are worked on (CachedAttention, USENIX
ATC 2024; FlexGen, ICML 2023). With L equal layers that is a pipeline of two stages,

    t = (t_load + t_work) / L + (L - 1) / L max(t_load, t_work)

between the longer one and their sum. A prefix that is found costs no FLOP of the linear layers, but is read.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, floor_div
from jaxperf.models.memory import MemoryUse


class OffloadedCache(eqx.Module):
    """`hits`: share of a prompt whose cache is found [1], at most all but one token; `from_host`: share of these that
    comes from the host, not from device memory [1]; `share` of the cache of running sequences that is on the host [1];
    `host_bandwidth`: host to device, one way and device [byte/s]; `hidden`: loading runs beside the layers before
    (structure), else they wait for it."""

    hits: Float[Array, ""] = eqx.field(converter=as_float)
    from_host: Float[Array, ""] = eqx.field(converter=as_float)
    share: Float[Array, ""] = eqx.field(converter=as_float)
    host_bandwidth: Float[Array, ""] = eqx.field(converter=as_float)
    hidden: bool = eqx.field(static=True, default=True)


def hit_tokens(offload: OffloadedCache, prompt: Scalar) -> Scalar:
    """Whole tokens of a prompt that are not worked on again: all but one at most [1]."""
    return jnp.minimum(floor_div(offload.hits * prompt, as_float(1.0)), prompt - 1.0)


def layered_time(work: Scalar, load: Scalar, layers: Scalar, hidden: bool) -> Scalar:
    """The time of `work` that needs what `load` brings, layer by layer, or after it where not `hidden` [s]."""
    if not hidden:
        return work + load
    return jnp.maximum(work, load) + jnp.minimum(work, load) / layers


def load_time(offload: OffloadedCache, cached: Scalar) -> Scalar:
    """`cached` bytes over the host's link [s]."""
    return cached / offload.host_bandwidth


def resident(memory: MemoryUse, offload: OffloadedCache) -> MemoryUse:
    """The memory that is left on the device."""
    return dataclasses.replace(memory, kv_cache=memory.kv_cache * (1.0 - offload.share))
