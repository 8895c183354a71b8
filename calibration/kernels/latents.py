"""What latent attention (DeepSeek's MLA) asks of each resource of a device, by how its kernels go about it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from calibration.kernels import latent_decoding, latent_prefill, products
from calibration.kernels.asked import FULL, Shape, does, quantized, way
from calibration.kernels.formats import Formats
from calibration.kernels.latent_decoding import HEADS_APART, LATENT, ROPE
from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.elementwise import Stream, stream_cost
from jaxperf.kernels.masks import UNLIMITED, causal_pairs
from jaxperf.kernels.mla import (
    LatentShape,
    mla_absorb_output_cost,
    mla_absorb_query_cost,
    mla_decode_cost,
    mla_prefill_cost,
)
from jaxperf.kernels.roofline import kernel_cost, matrix_peak
from jaxperf.kernels.tiling import busiest_core_flops

# DeepSeek's MLA: widths of a head's unrotated query and of its value (arXiv:2405.04434).
NOPE, VALUE = 128.0, 128.0
ABSORBING = {"mla_pre": (LATENT, NOPE), "mla_post": (VALUE, LATENT)}  # columns and depth of a head's product
LATENT_WAYS = ("converted", "undivided", "by_heads")


def _latent(x: Shape) -> LatentShape:
    return LatentShape(x["heads"], NOPE, ROPE, VALUE, LATENT)


def prefill(device: Device, x: Shape, f: Formats) -> Cost:
    """Of the last `q_len` of `kv_len` tokens; those before them are cached."""
    prefix = x["kv_len"] - x["q_len"]
    narrow = does(x, "in_cache_format")
    own = jax.tree.map(lambda cache, wide: jnp.where(narrow, cache, wide), f.cache, f.weights)
    expanded = mla_prefill_cost(device, _latent(x), x["batch"], x["q_len"], prefix, own, FULL)
    operands = x["batch"] * x["heads"] * (x["q_len"] * (NOPE + ROPE) + x["kv_len"] * (NOPE + ROPE + VALUE))
    narrowing = stream_cost(device, Stream(operands * f.activations.itemsize, operands * f.cache.itemsize), FULL)
    expanded = expanded + as_float(does(x, "quantized")) * narrowing
    pairs = x["batch"] * x["heads"] * causal_pairs(x["q_len"], prefix, as_float(UNLIMITED))
    elements = x["batch"] * (x["kv_len"] * (LATENT + ROPE) + x["q_len"] * x["heads"] * (2.0 * LATENT + ROPE))
    busiest = latent_prefill.products(x, device.num_cores)
    absorbed = kernel_cost(
        device,
        FULL(_latent(x), device),
        compute=busiest * device.num_cores / matrix_peak(device, f.weights),
        flops=2.0 * (2.0 * LATENT + ROPE) * pairs,
        bytes_moved=elements * f.activations.itemsize,
    )
    return jax.tree.map(lambda one, other: jnp.where(latent_prefill.absorbed(x), one, other), absorbed, expanded)


def decode(device: Device, x: Shape, f: Formats) -> Cost:
    """Each sequence read once for all heads, unless the kernel does otherwise (`calibration.datasets.caches`).

    A narrow cache is read as it is, or `converted`: first written anew in the queries' format. `by_heads`: each 16
    heads are a sequence of their own. `undivided`: two blocks a sequence, and 16 bits.
    """
    converted, undivided, by_heads = (does(x, name) for name in LATENT_WAYS)
    narrow = f.cache.itemsize < f.activations.itemsize
    anew = narrow & converted
    read = jax.tree.map(lambda wide, own: jnp.where(anew, wide, own), f.activations, f.cache)
    latents = x["batch"] * x["kv_len"] * (LATENT + ROPE)
    rewritten = stream_cost(device, Stream(latents * f.cache.itemsize, latents * f.activations.itemsize), FULL)
    groups = jnp.where(by_heads, ceil_div(x["heads"], as_float(HEADS_APART)), 1.0)
    shape = _latent({"heads": x["heads"] / groups})
    divided = mla_decode_cost(device, shape, x["batch"] * groups, x["kv_len"], read, f.weights, FULL)
    idle = latent_decoding.idle(x["batch"] * groups, shape.heads, x["kv_len"], device.num_cores)
    stretched = divided.bytes_moved * idle / device.memory_bandwidth
    divided = eqx.tree_at(lambda cost: cost.memory, divided, stretched)
    others = groups - latent_decoding.times_read(x, device.num_cores)  # find it in L2
    less = 1.0 - others * latents * read.itemsize / divided.bytes_moved
    spared = (divided.memory * less, divided.bytes_moved * less)
    divided = eqx.tree_at(lambda cost: (cost.memory, cost.bytes_moved), divided, spared)
    divided = divided + as_float(anew) * rewritten
    whole = _undivided(device, x, f)
    return jax.tree.map(lambda one, other: jnp.where(undivided, one, other), whole, divided)


def _undivided(device: Device, x: Shape, f: Formats) -> Cost:
    """Absorbed attention by a kernel for prefill: two blocks read all latents of a sequence for its 64 heads, one after
    the other, and blocks beside them take them from L2."""
    pairs = x["heads"] * x["batch"] * x["kv_len"]
    elements = x["batch"] * (x["kv_len"] * (LATENT + ROPE) + x["heads"] * (2.0 * LATENT + ROPE))
    busiest = latent_decoding.undivided_products(x, device.num_cores)
    return kernel_cost(
        device,
        FULL(_latent(x), device),
        compute=busiest * device.num_cores / matrix_peak(device, f.weights),
        flops=2.0 * (2.0 * LATENT + ROPE) * pairs,
        bytes_moved=elements * f.activations.itemsize,
    )


def absorb_query(device: Device, x: Shape, f: Formats) -> Cost:
    tokens = x["batch"] * jnp.maximum(x["q_len"], 1.0)
    cost = mla_absorb_query_cost(device, _latent(x), tokens, f.weights, f.activations, FULL)
    return _tiled(device, absorbing("mla_pre", x), f, cost)


def absorb_output(device: Device, x: Shape, f: Formats) -> Cost:
    tokens = x["batch"] * jnp.maximum(x["q_len"], 1.0)
    cost = mla_absorb_output_cost(device, _latent(x), tokens, f.weights, f.activations, FULL)
    return _tiled(device, absorbing("mla_post", x), f, cost)


def absorbing(family: str, x: Shape) -> Shape:
    """The product of each head that absorbs a projection, as `products` take it: no reduction is long enough to be
    divided, and tiles are small where large ones would leave cores idle."""
    tokens = x["batch"] * jnp.maximum(x["q_len"], 1.0)
    one = jnp.ones_like(tokens)
    columns, depth = ABSORBING[family]
    ways = {"unsplit": one, "small_tiles": one, "quantized": way(x, "quantized")}
    return {"batch": one, "m": tokens, "n": columns * one, "k": depth * one, "groups": x["heads"]} | ways


def narrowed(family: str, x: Shape, f: Formats) -> Scalar:
    """Bytes of the left-hand side that are written in fewer bits before the product and read by it [byte]."""
    own = absorbing(family, x)
    return own["quantized"] * own["groups"] * own["m"] * own["k"] * f.weights.itemsize


def _tiled(device: Device, own: Shape, f: Formats, cost: Cost) -> Cost:
    cut = products.tile(device, own)
    busiest = busiest_core_flops(device, own["m"], own["n"], own["k"], own["groups"], cut)
    cost = eqx.tree_at(lambda tree: tree.compute, cost, busiest * device.num_cores / matrix_peak(device, f.weights))
    return cost + quantized(device, own, own["groups"] * own["m"] * own["k"], f)
