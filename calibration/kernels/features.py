"""Dimensionless features of a kernel on a device: what the learned correction of the physical fit sees.

Each is a logarithm or a flag, and all but the sizes of the shape itself are ratios of a demand to a limit, so that
they mean the same on a device never measured. Every function is of one kernel: scalars in, scalars out.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from calibration.datasets.schema import FAMILIES
from calibration.kernels import experts
from calibration.kernels.asked import Shape
from calibration.kernels.demand import STREAMS, Demand
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import REFERENCE_CLOCK, Hardware
from calibration.kernels.latents import LATENT, ROPE, ROWS, undivided_waves
from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides, floor_div, next_power_of_two

LAUNCH = 3e-6  # the scale against which a kernel is short [s]
CORE_BYTES_PER_CYCLE = 64.0  # what a core takes from L2 in one cycle; the same on every NVIDIA core since Volta
FLOPS_PER_THREAD = 2.0  # of an issued instruction at best: a fused multiply-add
# Weights of 4 bits that a core unpacks in a cycle. Set with the tables of experts in sight: Marlin's and Triton's
# kernels
# read such weights at 2.2 TB/s on the H100 and the H200 alike, so not as fast as memory gives them: 18 a core and
# cycle.
UNPACKED = 30.0
SHARED_BYTES_PER_CYCLE = 128.0  # what a core takes from shared memory (CUDA C++ programming guide: 32 banks of 4 bytes)
WARP_ROWS = 16.0  # of a warp's matrix instruction (mma.m16n8k16)
LARGEST_GROUP = 32.0  # query heads of one key head that TensorRT-LLM's kernel for grouped queries takes
REDUCING: frozenset[str] = frozenset(("norm", "softmax"))  # take a sum over a row before they scale it
TILES = ((256.0, 128.0), (128.0, 128.0), (64.0, 64.0))
QUERY_BLOCK = 128.0
QUERY_ROWS = 16.0  # query heads of one key head that a decode block takes together
LONGEST_WAVE = 5.0  # a kernel of a few small blocks leaves all but e^-5 of the cores idle, and less is not told apart
LEAST = 1e-30
MATRICES = ("gemm", "bmm", "convolution", "mla_pre", "mla_post")
LATENT_WIDTHS = (512.0, 128.0)  # columns and depth of the product that absorbs a projection of DeepSeek's MLA


def features(family: str, x: Shape, demand: Demand, hardware: Hardware, skewed: Scalar) -> dict[str, Scalar]:
    """The features of one kernel by name, in the order in which parameters store them.

    **Arguments:** `x`: the shape by the names of `FAMILIES[family]`; `demand`, `hardware`: scalar leaves; `skewed`: 1
    where a few experts of a mixture get most tokens, else 0.
    """
    return _general(demand, hardware) | _sizes(family, x) | _family(family, x, hardware, skewed)


def waves(family: str, x: Shape, hardware: Hardware, formats: Formats | None = None) -> Scalar:
    """Blocks that the busiest core works through one after the other [1], of grouped products the steps of their
    reductions; 0 for a kernel that is only a stream."""
    height, width = TILES[1]
    if family in MATRICES:
        m, batch, n, _ = _matrix(family, x)
        blocks = _blocks(m, height) * _blocks(n, width) * batch + x.get("quantized", 0.0) * m * batch
    elif family == "moe" and formats is not None:
        return experts.steps(x, experts.load(x), formats, hardware.device.num_cores) * hardware.many_cores
    elif family in ("attention_prefill", "mla_prefill"):
        blocks = _blocks(x["q_len"], QUERY_BLOCK) * x["heads"] * x["batch"]
    elif family in ("attention_decode", "mla_decode"):
        kv_heads = x.get("kv_heads", jnp.ones_like(x["heads"]))
        blocks = x["batch"] * kv_heads * _blocks(x["heads"] / kv_heads, QUERY_ROWS)
    elif family == "attention_mixed":
        blocks = (_blocks(x["prefill_q"], QUERY_BLOCK) + x["n_decode"]) * x["heads"]
    else:
        return jnp.zeros_like(hardware.many_cores)
    return ceil_div(blocks, hardware.device.num_cores) * hardware.many_cores


def on_chip_time(family: str, x: Shape, demand: Demand, hardware: Hardware, formats: Formats) -> Scalar:
    """Time for all cores of a GPU together to take the kernel's bytes from L2 [s]; 0 on another kind of device."""
    rate = CORE_BYTES_PER_CYCLE * hardware.device.num_cores * hardware.clock
    if family == "moe":
        return experts.bytes_from_l2(x, experts.load(x), formats) / rate * hardware.many_cores
    return as_float(demand.moved) * _times_read(family, x) / rate * hardware.many_cores


def _times_read(family: str, x: Shape) -> Scalar:
    """How often the cores read what is cached: once, or for each query head of a large group (`x["apart"]`: 1)."""
    if family != "attention_decode" or "apart" not in x:
        return as_float(1.0)
    queries = x["heads"] / x["kv_heads"]
    return jnp.where((x["apart"] > 0.0) & (queries > LARGEST_GROUP), queries, jnp.ones_like(queries))


def core_time(family: str, x: Shape, demand: Demand, hardware: Hardware, formats: Formats) -> Scalar:
    """Busy time of the busiest core [s]: of its arithmetic; of a stream on a GPU, of issuing instructions.

    Such a kernel computes addresses, converts and waits more than it multiplies: how many bytes a core moves in a cycle
    is a property of the software, and differs little between cores with more or fewer fp32 units.
    """
    if family == "mla_decode" and "undivided" in x:
        return as_float(demand.compute) + x["undivided"] * _through_shared_memory(x, hardware)
    if family == "moe":
        weights = experts.unpacked(x, experts.load(x), formats, hardware.device.num_cores)
        return as_float(demand.compute) + weights / (UNPACKED * hardware.clock) * hardware.many_cores
    if family not in STREAMS:
        return as_float(demand.compute)
    rate = FLOPS_PER_THREAD * hardware.issued * hardware.device.num_cores * hardware.clock
    issuing = as_float(demand.flops) / rate
    return jnp.where(hardware.many_cores > 0.0, issuing, as_float(demand.compute))


def _through_shared_memory(x: Shape, hardware: Hardware) -> Scalar:
    """Time for the busiest core to take its latents from shared memory, where one block on a core hides nothing [s].

    Each warp owns 16 rows of the products and loads the whole latent for the first product and its values for the
    second.
    """
    loaded = ROWS / WARP_ROWS * (2.0 * LATENT + ROPE) * 2.0
    keys = undivided_waves(x, hardware.device.num_cores) * x["kv_len"]
    return keys * loaded / (SHARED_BYTES_PER_CYCLE * hardware.clock)


def _general(demand: Demand, hardware: Hardware) -> dict[str, Scalar]:
    """Ratios of the demands, as differences of their logarithms: XLA computes a logarithm once, a ratio anew each."""
    compute, memory, power = (_log2(time) for time in (demand.compute, demand.memory, demand.power))
    return {
        "compute over memory": compute - memory,
        "bytes over L2": _log2(demand.moved) - jnp.log2(hardware.device.l2_capacity),
        "duration over launch": jnp.maximum(compute, memory) - math.log2(LAUNCH),
        "power over compute": power + 2.0 * jnp.log2(hardware.clock / REFERENCE_CLOCK) - compute,
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
        return _tiles(*_matrix(family, x), hardware)
    if family == "moe":
        rows = jnp.maximum(x["tokens"] * x["topk"] / x["experts"], 1.0)
        wave = _tiles(rows, x["experts"] / x["ep"], 2.0 * x["inter"] / x["tp"], x["hidden"], hardware)
        return wave | {"rows per expert": jnp.log2(rows), "skewed": skewed}
    if family in ("attention_prefill", "mla_prefill"):
        blocks = _blocks(x["q_len"], QUERY_BLOCK) * x["heads"] * x["batch"]
        queries = x["heads"] / x.get("kv_heads", x["heads"])
        return _per_core("query blocks", blocks, cores) | {"queries per key head": jnp.log2(queries)}
    if family in ("attention_decode", "mla_decode"):
        kv_heads = x.get("kv_heads", jnp.ones_like(x["heads"]))
        return _per_core("key groups", x["batch"] * kv_heads, cores) | {
            "queries per key head": jnp.log2(x["heads"] / kv_heads),
            "windowed": as_float(x.get("window", jnp.zeros_like(kv_heads)) > 0.0),
        }
    return {}


def _matrix(family: str, x: Shape) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """rows, batch, columns, depth of the product."""
    if family == "convolution":
        side = floor_div(x["input_size"] + 2.0 * x["padding"] - x["kernel_size"], x["stride"]) + 1.0
        rows = x["batch"] * side**2
        return rows, jnp.ones_like(rows), x["output_channels"], x["input_channels"] * x["kernel_size"] ** 2
    if "heads" in x:
        rows = x["batch"] * jnp.maximum(x["q_len"], 1.0)
        columns, depth = (jnp.full_like(rows, width) for width in LATENT_WIDTHS)
        return rows, x["heads"], columns, depth
    if family == "gemm":  # the batch shares its right-hand side
        return x["batch"] * x["m"], jnp.ones_like(x["m"]), x["n"], x["k"]
    return x["m"], x["batch"], x["n"], x["k"]


def _tiles(m: Scalar, batch: Scalar, n: Scalar, k: Scalar, hardware: Hardware) -> dict[str, Scalar]:
    cache = hardware.device.l2_capacity
    found: dict[str, Scalar] = {}
    for height, width in TILES:
        rows = jnp.minimum(height, jnp.maximum(16.0, next_power_of_two(m)))
        tiles = ceil_div(m, rows) * _blocks(n, width) * batch
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


def _blocks(length: Scalar, block: float) -> Scalar:
    return ceil_div(length, jnp.full_like(length, block))


def _log2(demand: Scalar | np.ndarray) -> Scalar:
    return jnp.log2(jnp.maximum(as_float(demand), LEAST))
