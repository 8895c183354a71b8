"""Devices, models and deployments made by hand for tests of the model layers; numbers as on vendors' data sheets."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxperf.core.compiler_options import STRAIGHT, UNOPTIMIZED
from jaxperf.core.device import Device
from jaxperf.core.efficiency import Efficiencies, assumed_efficiencies
from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS, number_format
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.host import assumed_host
from jaxperf.models.layers import Transformer, transformer
from jaxperf.models.step import StepCost, decode_cost, prefill_cost

Tree = TypeVar("Tree")

PEAK_ORDER = "fp64 fp32 tf32 bf16 fp16 fp8 int8 fp4 int4"
assert tuple(PEAK_ORDER.split()) == COMPUTE_FORMATS

H100 = Device(
    peak_flops=[67e12, 67e12, 494.7e12, 989.4e12, 989.4e12, 1978.9e12, 1978.9e12, 989.4e12, 989.4e12],
    native=[1, 1, 1, 1, 1, 1, 1, 0, 0],
    vector_flops=67e12,
    memory_bandwidth=3.35e12,
    memory_capacity=80e9,
    num_cores=132,
    l2_capacity=50 * 2**20,
    launch_latency=3e-6,
    tdp=700,
    link_bandwidth=450e9,
    link_latency=3e-6,
    node_size=8,
    mesh=0,
    torus_dimensions=0,
    network_bandwidth=50e9,
    network_latency=8e-6,
)
A100 = H100.replace(
    peak_flops=[19.5e12, 19.5e12, 156e12, 312e12, 312e12, 312e12, 624e12, 312e12, 312e12],
    native=[1, 1, 1, 1, 1, 0, 1, 0, 0],
    vector_flops=19.5e12,
    memory_bandwidth=2.039e12,
    num_cores=108,
    l2_capacity=40 * 2**20,
    tdp=400,
    link_bandwidth=300e9,
    network_bandwidth=25e9,
)
MI300X = H100.replace(  # eight devices, each wired to every other one
    peak_flops=[163.4e12, 163.4e12, 653.7e12, 1307.4e12, 1307.4e12, 2614.9e12, 2614.9e12, 1307.4e12, 1307.4e12],
    vector_flops=163.4e12,
    memory_bandwidth=5.3e12,
    memory_capacity=192e9,
    num_cores=304,
    l2_capacity=256 * 2**20,
    tdp=750,
    link_bandwidth=448e9,
    mesh=1,
)
TPU_V5P = H100.replace(  # a chip of a 3D torus, two cores
    peak_flops=[1e12, 5e12, 5e12, 459e12, 459e12, 459e12, 918e12, 459e12, 459e12],
    native=[0, 1, 0, 1, 0, 0, 1, 0, 0],
    vector_flops=5e12,
    memory_bandwidth=2.765e12,
    memory_capacity=95e9,
    num_cores=2,
    l2_capacity=128 * 2**20,
    tdp=500,
    link_bandwidth=300e9,
    link_latency=1e-6,
    node_size=4096,
    torus_dimensions=3,
    network_bandwidth=25e9,
)
DEVICES = {"h100": H100, "a100": A100, "mi300x": MI300X, "tpu-v5p": TPU_V5P}
# Compiler options: a large gradient compiles in half the time that it takes without fusion.
QUICK = {"xla_disable_hlo_passes": "cpu_multi_output_fusion", **UNOPTIMIZED, **STRAIGHT}
RATES = ("peak_flops", "vector_flops", "memory_bandwidth", "link_bandwidth", "network_bandwidth")
LATENCIES = ("launch_latency", "link_latency", "network_latency")


def peak_index(name: str) -> int:
    """Position of an arithmetic in `Device.peak_flops`."""
    return COMPUTE_FORMATS.index(name)


def faster(device: Device, factor: float) -> Device:
    """The device in a world whose clocks all run `factor` times as fast."""
    rates = {name: getattr(device, name) * factor for name in RATES}
    return device.replace(**rates, **{name: getattr(device, name) / factor for name in LATENCIES})


@functools.cache
def efficiencies(level: str = "nominal") -> Efficiencies:
    """The shipped assumptions, read once."""
    return assumed_efficiencies(level)


@functools.cache
def model(name: str) -> Transformer:
    """The arrays of a shipped model."""
    return transformer(load_model(name))


def deployment(
    device: Device = H100,
    *,
    tensor: float = 1,
    pipeline: float = 1,
    expert: float = 1,
    data: float = 1,
    weights: str = "bf16",
    cache: str = "bf16",
    level: str = "nominal",
    launch: str = "graph",
    skew: float = 1,
) -> Deployment:
    """A deployment from plain values."""
    return Deployment(
        device=device,
        layout=Parallelism(tensor, pipeline, expert, data),
        weights=number_format(weights),
        activations=number_format(FORMATS[weights].activations),
        cache=number_format(cache),
        efficiencies=efficiencies(level),
        host=assumed_host(launch, level),
        routing_skew=skew,
    )


def close(got: Any, want: Any, tolerance: float = 1e-12) -> bool:
    """Whether all leaves agree within a relative tolerance; NaN agrees with NaN."""
    got_leaves, want_leaves = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got_leaves) == len(want_leaves)
    return all(
        np.allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=0.0, equal_nan=True)
        for a, b in zip(got_leaves, want_leaves, strict=True)
    )


def single(tree: Tree) -> Tree:
    """The tree with its floats in single precision."""

    def cast(leaf: Array) -> Array:
        array = np.asarray(leaf)
        return jnp.asarray(array.astype(np.float32) if array.dtype == np.float64 else array)

    return jax.tree.map(cast, tree)


decode = jax.jit(decode_cost)  # compiled once a session per kind of model, whichever test comes first
prefill = jax.jit(prefill_cost)


def decode_step(at: Deployment, transformer: Transformer, batch: float, context: float) -> StepCost:
    """`decode_cost`, compiled, at plain numbers."""
    return decode(at, transformer, as_float(batch), as_float(context))


def prefill_step(at: Deployment, transformer: Transformer, batch: float, prompt: float, prefix: float = 0) -> StepCost:
    """`prefill_cost`, compiled, at plain numbers."""
    return prefill(at, transformer, as_float(batch), as_float(prompt), as_float(prefix))
