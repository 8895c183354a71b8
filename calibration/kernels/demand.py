"""What a kernel asks of each resource of a device, from the same point functions that predictions are made of.

A demand is the busy time of a resource at its datasheet rate: the cost of the kernel with every efficiency at 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.datasets.schema import KernelTable
from calibration.kernels import (
    composed,
    convolutions,
    decoding,
    experts,
    latents,
    mixed,
    products,
    quantizing,
    reductions,
    vector_products,
)
from calibration.kernels.asked import FULL, Shape, does, way
from calibration.kernels.formats import Formats, format_columns
from calibration.kernels.hardware import WARP_SHARE, Hardware
from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.formats import COMPUTE_FORMATS, NumberFormat
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.attention import AttentionShape, prefill_attention_cost
from jaxperf.kernels.elementwise import Stream, stream_cost
from jaxperf.kernels.gemm import Gemm, gemm_cost
from jaxperf.kernels.roofline import kernel_cost, matrix_peak, operand_itemsize
from jaxperf.kernels.tiling import deepest_split

CHUNK = 2**17  # rows computed at once: bounds the memory, and every table has the same compiled shape
USABLE_POWER = 0.85  # share of the TDP left to arithmetic once memory and leakage are paid; assumed
# Of one FLOP, per byte of its operands, at the H100's clock and process, everything around the multiplier included [J].
# Assumed from 0.8 pJ a 16-bit FLOP, at which 700 W sustain three quarters of the H100's peak; `Law.power` and
# `Law.power_clock` correct it.
NOMINAL_ENERGY = 0.4e-12

# How often a rotary embedding of elementary operations reads and writes an element: times the cosine (1), half of it
# negated (1/2), joined with the other half (1), times the sine (1), and the sum (two reads, one write: 1.5)
# (apply_rotary_pos_emb in Hugging Face's transformers).
ROTATED_APART = 5.0


@dataclass(frozen=True)
class Demand:
    """Busy time at the datasheet rate of the arithmetic units on the busiest core, and of the memory [s]; `power`:
    the time that the power limit alone would allow, at a nominal energy per FLOP [s]; `ideal`: useful FLOP at the peak,
    all cores busy [s]; `flops` [FLOP], `moved` [byte].
    """

    compute: np.ndarray
    memory: np.ndarray
    power: np.ndarray
    ideal: np.ndarray
    flops: np.ndarray
    moved: np.ndarray

    def take(self, rows: np.ndarray) -> Demand:
        """The rows that an index or a mask selects."""
        return Demand(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


Point = Callable[[Device, Shape, Formats], Cost]
# On the vector units.
STREAMS: frozenset[str] = frozenset(("quantize", "norm", "softmax", "embedding", "elementwise", "rope"))


def _gemm(device: Device, x: Shape, f: Formats) -> Cost:
    shape = Gemm(products.rows(x), x["n"], x["k"])
    product = gemm_cost(device, shape, f.weights, f.activations, products.tile(device, x), FULL)
    parts = deepest_split(x["k"])
    busiest = vector_products.busiest_flops(device, products.rows(x), x["n"], x["k"], parts)
    return _on_vector_units(device, product, busiest, f)


def _batched_gemm(device: Device, x: Shape, f: Formats) -> Cost:
    product = composed.batched_gemm(device, x, f)
    tiles = way(x, "batch_tiles")
    busiest = vector_products.busiest_batch_flops(device, x["m"], x["n"], x["k"], x["batch"], tiles)
    return _on_vector_units(device, product, busiest, f)


def _on_vector_units(device: Device, product: Cost, busiest: Scalar, f: Formats) -> Cost:
    """A product with the load of the busiest core that it has where it runs on vector units."""
    wide = f.weights.operand_itemsize >= composed.VECTOR_ITEMSIZE
    time = busiest * device.num_cores / matrix_peak(device, f.weights)
    return eqx.tree_at(lambda cost: cost.compute, product, jnp.where(wide, time, product.compute))


def _attention_shape(x: Shape) -> AttentionShape:
    return AttentionShape(x["heads"], x["kv_heads"], x["head_dim"], x["window"])


def _prefill(device: Device, x: Shape, f: Formats) -> Cost:
    operands, shape = prefill_operands(x, f), _attention_shape(x)
    return prefill_attention_cost(device, shape, x["batch"], x["q_len"], x["prefix"], f.cache, operands, FULL)


def prefill_operands(x: Shape, f: Formats) -> NumberFormat:
    """The format that attention over many queries multiplies in: the cache's where its kernel does so."""
    in_cache_format = does(x, "in_cache_format")
    return jax.tree.map(lambda cache, own: jnp.where(in_cache_format, cache, own), f.cache, f.weights)


def _moe(device: Device, x: Shape, f: Formats) -> Cost:
    """Both products of the experts of one rank, and what is read and written around them."""
    given = experts.work(x, f)
    busy = as_float(0.0)
    for columns, depth in experts.products(x):
        busy += experts.busiest_flops(given, columns, depth, device.num_cores)
    flops = sum((2.0 * given.rows * columns * depth for columns, depth in experts.products(x)), start=as_float(0.0))
    peak = matrix_peak(device, f.weights)
    slower = 1.0 + way(x, "by_warps") * (1.0 / WARP_SHARE - 1.0)
    return kernel_cost(
        device,
        FULL(given, device),
        compute=busy * device.num_cores / peak * slower,
        flops=flops,
        bytes_moved=experts.bytes_moved(x, given, f, device),
    )


def _quantize(device: Device, x: Shape, f: Formats) -> Cost:
    elements = x["m"] * x["k"]
    read, written = quantizing.passed(x, f.activations.itemsize, f.weights.itemsize)
    return stream_cost(device, Stream(elements * read, elements * written, quantizing.OPERATIONS * elements), FULL)


def _norm(device: Device, x: Shape, f: Formats) -> Cost:
    return _reducing("norm", device, x, f)


def _softmax(device: Device, x: Shape, f: Formats) -> Cost:
    return _reducing("softmax", device, x, f)


def _reducing(family: str, device: Device, x: Shape, f: Formats) -> Cost:
    """Each element read and written once, and what is read again (`reductions`) where the device's threads are told."""
    once, size = _row_wise(device, x, f), f.activations.itemsize
    if "resident_threads" not in x:
        return once
    more = Stream(
        read=reductions.bytes_again(family, x, size, device),
        written=jnp.zeros_like(size),
        operations=2.5 * x["rows"] * x["columns"] * reductions.again(family, x),
    )
    return once + stream_cost(device, more, FULL)


def _row_wise(device: Device, x: Shape, f: Formats) -> Cost:
    """Each element read and written once, or as often as elementary operations do (`x["composed"]`: 1, else 0)."""
    each, size = x["rows"] * x["columns"], f.activations.itemsize
    apart = does(x, "composed")
    passes = jnp.where(apart, _composed_norm(size) / (2.0 * size), jnp.ones_like(size))
    # One of those operations takes a sum over a row; the others are as light as any stream.
    return stream_cost(device, Stream(each * size * passes, each * size * passes, 5.0 * each), FULL)


def _composed_norm(size: Scalar) -> Scalar:
    """Bytes an element of an RMSNorm moves that is made of elementary operations in fp32: its square (8), the mean of
    those (4), the scaling (8), the weight (2 `size`), and there and back from `size` bytes where that is not fp32
    (LlamaRMSNorm.forward in Hugging Face's transformers)."""
    return 20.0 + 2.0 * size + jnp.where(size < 4.0, 2.0 * (4.0 + size), 0.0)


def _streamed(device: Device, x: Shape, f: Formats) -> Cost:
    """Each element read and written once; a gate of elementary operations (`x["composed"]`: 1, else 0) writes what its
    activation makes of one input, and reads it again for the product with the other."""
    read, written, size = x["elements_in"], x["elements_out"], f.activations.itemsize
    apart = does(x, "composed") & (read > written)
    again = jnp.where(apart, written, jnp.zeros_like(written))
    return stream_cost(device, Stream((read + again) * size, (written + again) * size, 4.0 * written), FULL)


def _rotated(device: Device, x: Shape, f: Formats) -> Cost:
    """Each element read and written once, or `ROTATED_APART` times (`x["composed"]`: 1, else 0)."""
    read, written, size = x["elements_in"], x["elements_out"], f.activations.itemsize
    apart = does(x, "composed")
    passes = jnp.where(apart, ROTATED_APART, jnp.ones_like(read))
    return stream_cost(device, Stream(read * size * passes, written * size * passes, 4.0 * written * passes), FULL)


def _convolution(device: Device, x: Shape, f: Formats) -> Cost:
    """By the algorithm that a library takes; each tensor read or written once, and the FLOP those of the product."""
    product = convolutions.as_product(device, x)
    inputs = x["batch"] * x["input_channels"] * x["input_size"] ** 2
    outputs = x["batch"] * x["output_channels"] * convolutions.side(x) ** 2
    filters = x["input_channels"] * x["output_channels"] * x["kernel_size"] ** 2
    return kernel_cost(
        device,
        FULL(product, device),
        compute=convolutions.chosen(device, x, f).busy * device.num_cores / matrix_peak(device, f.weights),
        flops=product.flops,
        bytes_moved=(inputs + outputs) * f.activations.itemsize + filters * f.weights.itemsize,
    )


POINTS: Mapping[str, Point] = {
    "gemm": _gemm,
    "bmm": _batched_gemm,
    "attention_prefill": _prefill,
    "attention_decode": decoding.decode,
    "attention_mixed": mixed.mixed,
    "mla_prefill": latents.prefill,
    "mla_decode": latents.decode,
    "mla_pre": latents.absorb_query,
    "mla_post": latents.absorb_output,
    "moe": _moe,
    "quantize": _quantize,
    "norm": _norm,
    "softmax": _softmax,
    "embedding": _row_wise,
    "elementwise": _streamed,
    "rope": _rotated,
    "convolution": _convolution,
}


def demand(table: KernelTable, hardware: Hardware, index: np.ndarray) -> Demand:
    """The demands of every row as a composed step has them, its shape as the table states it (`inputs.prepare` reads
    more into it).

    **Arguments:** `hardware`: devices [D]; `index` [R]: the device of each row.
    **Returns:** arrays [R] of float32; NaN where the family has no point function or the device lacks the format.
    """
    rows = len(table)
    found = np.full((6, rows), np.nan, np.float32)
    if table.family in POINTS and rows:
        names = sorted(table.shape)
        shape = np.stack([table.shape[name] for name in names]).astype(jnp.result_type(float))
        formats, which = format_columns(table)
        point = composed.COMPOSED.get(table.family, POINTS[table.family])
        chunk = min(CHUNK, 1 << (rows - 1).bit_length())
        for start in range(0, rows, chunk):
            part = np.arange(start, start + chunk).clip(max=rows - 1)  # the last row again fills the last chunk
            given = {name: column for name, column in zip(names, shape[:, part], strict=True)}
            block = _demands(table.family, point, hardware.rows(index[part]), given, _rows(formats, which[part]))
            stop = min(start + chunk, rows)
            found[:, start:stop] = np.asarray(block)[:, : stop - start]
    return Demand(*found)


def _rows(formats: Formats, which: np.ndarray) -> Formats:
    return jax.tree.map(lambda leaf: leaf[which], formats)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _demands(
    family: str, point: Point, hardware: Hardware, shape: Mapping[str, Array], formats: Formats
) -> Float[Array, "6 rows"]:
    return jnp.stack(jax.vmap(functools.partial(demands, family, point=point))(hardware, shape, formats))


def demands(family: str, hardware: Hardware, x: Shape, f: Formats, point: Point | None = None) -> tuple[Scalar, ...]:
    """The fields of `Demand` of one kernel, by the point function of its family unless another is given."""
    cost = (point or POINTS[family])(hardware.device, x, f)
    on_vector = (f.weights.compute <= COMPUTE_FORMATS.index("fp32")) | (family in STREAMS)
    each = jnp.where(on_vector, hardware.energy, hardware.matrix_energy)
    operands = prefill_operands(x, f) if family == "attention_prefill" else f.weights
    size = operand_itemsize(hardware.device, operands, f.activations)
    joule = NOMINAL_ENERGY * size * each  # narrower operands switch less
    power = cost.flops * joule / (USABLE_POWER * hardware.power)
    rate = hardware.device.vector_flops if family in STREAMS else matrix_peak(hardware.device, f.weights)
    return cost.compute, cost.memory, power, cost.flops / rate, cost.flops, cost.bytes_moved
