"""Dimensionless features of a kernel on a device: what the learned correction of the physical fit sees.

Each is a logarithm or a flag, and all but the sizes of the shape itself are ratios of a demand to a limit, so that
they mean the same on a device never measured. Every function is of one kernel: scalars in, scalars out.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from calibration.datasets.schema import FAMILIES
from calibration.kernels import decoding, latent_decoding
from calibration.kernels.asked import Shape
from calibration.kernels.convolutions import side
from calibration.kernels.demand import Demand
from calibration.kernels.hardware import REFERENCE_CLOCK, Hardware
from calibration.kernels.latents import ABSORBING
from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides, next_power_of_two

LAUNCH = 3e-6  # the scale against which a kernel is short [s]
REDUCING: frozenset[str] = frozenset(("norm", "softmax"))  # take a sum over a row before they scale it
TILES = ((256.0, 128.0), (128.0, 128.0), (64.0, 64.0))
QUERY_BLOCK = 128.0
LONGEST_WAVE = 5.0  # a kernel of a few small blocks leaves all but e^-5 of the cores idle, and less is not told apart
LEAST = 1e-30
PREFILLS = ("attention_prefill", "mla_prefill")
MATRICES = ("gemm", "bmm", "convolution", "mla_pre", "mla_post")


def features(family: str, x: Shape, demand: Demand, hardware: Hardware, skewed: Scalar) -> dict[str, Scalar]:
    """The features of one kernel by name, in the order in which parameters store them.

    **Arguments:** `x`: the shape by the names of `FAMILIES[family]`; `demand`, `hardware`: scalar leaves; `skewed`: 1
    where a few experts of a mixture get most tokens, else 0.
    """
    return _general(demand, hardware) | _sizes(family, x) | _family(family, x, hardware, skewed)


def _general(demand: Demand, hardware: Hardware) -> dict[str, Scalar]:
    """Ratios of the demands, as differences of their logarithms: XLA computes a logarithm once, a ratio anew each."""
    compute, memory, power = (_log2(time) for time in (demand.compute, demand.memory, demand.power))
    return {
        "compute over memory": compute - memory,
        "bytes over L2": _log2(demand.moved) - jnp.log2(hardware.device.l2_capacity),
        "duration over launch": jnp.maximum(compute, memory) - math.log2(LAUNCH),
        "power over compute": power + 2.0 * jnp.log2(hardware.design_clock / REFERENCE_CLOCK) - compute,
        "power over compute at one clock": power - compute,
    }


def _sizes(family: str, x: Shape) -> dict[str, Scalar]:
    """Every column of the shape, in the order of the schema."""
    return {f"log2 {column.name}": _size(x[column.name]) for column in FAMILIES[family] if column.name in x}


def _size(value: Scalar) -> Scalar:
    return jnp.log2(jnp.where(value == 0.0, 1.0, value))


def _family(family: str, x: Shape, hardware: Hardware, skewed: Scalar) -> dict[str, Scalar]:
    cores = hardware.device.num_cores
    if family in MATRICES:
        return _tiles(*matrix_shape(family, x), hardware)
    if family == "moe":
        rows = jnp.maximum(x["tokens"] * x["topk"] / x["experts"], 1.0)
        wave = _tiles(rows, x["experts"] / x["ep"], 2.0 * x["inter"] / x["tp"], x["hidden"], hardware)
        return wave | {"rows per expert": jnp.log2(rows), "skewed": skewed}
    if family in PREFILLS:
        blocks = blocks_of(x["q_len"], QUERY_BLOCK) * x["heads"] * x["batch"]
        queries = x["heads"] / x.get("kv_heads", x["heads"])
        return _per_core("query blocks", blocks, cores) | {"queries per key head": jnp.log2(queries)}
    if family in ("attention_decode", "mla_decode"):
        kv_heads = x.get("kv_heads", jnp.ones_like(x["heads"]))
        found = _per_core("key groups", x["batch"] * kv_heads, cores) | {
            "queries per key head": jnp.log2(x["heads"] / kv_heads),
            "windowed": as_float(x.get("window", jnp.zeros_like(kv_heads)) > 0.0),
        }
        launched = decoding if family == "attention_decode" else latent_decoding
        return found | launched.launch_features(x, cores)
    return {}


def matrix_shape(family: str, x: Shape) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """rows, batch, columns, depth of the product."""
    if family == "convolution":
        rows = x["batch"] * side(x) ** 2
        return rows, jnp.ones_like(rows), x["output_channels"], x["input_channels"] * x["kernel_size"] ** 2
    if "heads" in x:
        rows = x["batch"] * jnp.maximum(x["q_len"], 1.0)
        columns, depth = (jnp.full_like(rows, width) for width in ABSORBING[family])
        return rows, x["heads"], columns, depth
    if family == "gemm":  # the batch shares its right-hand side
        return x["batch"] * x["m"], jnp.ones_like(x["m"]), x["n"], x["k"]
    return x["m"], x["batch"], x["n"], x["k"]


def _tiles(m: Scalar, batch: Scalar, n: Scalar, k: Scalar, hardware: Hardware) -> dict[str, Scalar]:
    cache = hardware.device.l2_capacity
    found: dict[str, Scalar] = {}
    for height, width in TILES:
        rows = jnp.minimum(height, jnp.maximum(16.0, next_power_of_two(m)))
        tiles = ceil_div(m, rows) * blocks_of(n, width) * batch
        found |= _per_core(f"tiles {height:.0f}x{width:.0f}", tiles, hardware.device.num_cores)
    return found | {
        "left over L2": jnp.log2(m * k / cache),
        "right over L2": jnp.log2(n * k * batch / cache),
        "rows not of 8": 1.0 - as_float(divides(jnp.full_like(m, 8.0), m)),
        "rows not of 64": 1.0 - as_float(divides(jnp.full_like(m, 64.0), m)),
        "few rows": as_float(m <= 16.0),
    }


def _per_core(name: str, blocks: Scalar, cores: Scalar) -> dict[str, Scalar]:
    last = jnp.log(ceil_div(blocks, cores) * cores / blocks)
    return {
        f"{name} per core": jnp.log2(blocks / cores),
        f"{name} last wave": jnp.clip(last, 0.0, LONGEST_WAVE),
    }


def blocks_of(length: Scalar, block: float) -> Scalar:
    return ceil_div(length, jnp.full_like(length, block))


def _log2(demand: Scalar | np.ndarray) -> Scalar:
    return jnp.log2(jnp.maximum(as_float(demand), LEAST))
