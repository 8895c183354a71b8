"""What a composed step asks of a device for kernels whose law of single kernels counts more: blocks, routing, tiles.

A step knows neither an engine's blocks nor a collector's routing, so that what devices sustain
(`calibration.sustained`) is told in the demands of `jaxperf.kernels` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp

from calibration.kernels import products
from calibration.kernels.asked import FULL, Shape, quantized
from calibration.kernels.convolutions import side
from calibration.kernels.formats import Formats
from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.kernels.attention import AttentionShape, decode_attention_cost
from jaxperf.kernels.elementwise import Stream, activation_cost, stream_cost
from jaxperf.kernels.gemm import linear_cost
from jaxperf.kernels.moe import (
    GroupedGemm,
    Routing,
    grouped_gemm_cost,
    rank_rows,
    routed_gemm_cost,
    touched_experts,
)
from jaxperf.kernels.roofline import matrix_peak
from jaxperf.kernels.tiling import STEP_TILES

VECTOR_ITEMSIZE = 4.0  # operands that most devices multiply on vector units [byte]


def gemm(device: Device, x: Shape, f: Formats) -> Cost:
    """One product in the tiles of a step, quantized before where its software does so."""
    # A batch shares the right-hand side, so its rows are further rows; with one each it is a bmm.
    product = linear_cost(device, products.rows(x), x["n"], x["k"], f.weights, f.activations, FULL, STEP_TILES)
    return quantized_product(device, x, f, product)


def quantized_product(device: Device, x: Shape, f: Formats, product: Cost) -> Cost:
    """A product with what it loses on vector units, and with the quantization of its rows."""
    ideal = product.flops / matrix_peak(device, f.weights)
    wide = f.weights.operand_itemsize >= VECTOR_ITEMSIZE
    # Libraries of products on vector units have smaller blocks and split reductions (`grid_z` of NeuSight's table), so
    # that they lose the root of what whole tiles do. Chosen on the kernels of devices left out: the fourth root is
    # alike, the whole is worse.
    compute = jnp.where(wide, jnp.sqrt(ideal * product.compute), product.compute)
    product = eqx.tree_at(lambda cost: cost.compute, product, compute)
    return product + quantized(device, x, products.rows(x) * x["k"], f)


def batched_gemm(device: Device, x: Shape, f: Formats) -> Cost:
    """Each matrix of the batch has its own right-hand side: the groups of a grouped GEMM."""
    gemm = GroupedGemm(x["batch"] * x["m"], x["batch"], x["n"], x["k"])
    return grouped_gemm_cost(device, gemm, f.weights, f.activations, FULL)


def decode(device: Device, x: Shape, f: Formats) -> Cost:
    """One new token a sequence over its cache."""
    shape = AttentionShape(x["heads"], x["kv_heads"], x["head_dim"], x["window"])
    return decode_attention_cost(device, shape, x["batch"], x["kv_len"], f.cache, f.activations, FULL)


def experts(device: Device, x: Shape, f: Formats) -> Cost:
    """Up, activation and down projections of the experts of one rank, each token's experts chosen at random; every
    token of the layer enters on each."""
    routing = Routing(x["experts"], x["topk"])
    local = x["experts"] / x["ep"]
    width = x["inter"] / x["tp"]
    rows = jnp.maximum(rank_rows(routing, x["tokens"], x["ep"]), 1.0)
    groups = jnp.maximum(touched_experts(routing, x["tokens"], local), 1.0)
    up = routed_gemm_cost(device, GroupedGemm(rows, groups, 2.0 * width, x["hidden"]), f.weights, f.activations, FULL)
    gate = activation_cost(device, rows, width, jnp.ones_like(rows), f.activations.itemsize, FULL)
    down = routed_gemm_cost(device, GroupedGemm(rows, groups, x["hidden"], width), f.weights, f.activations, FULL)
    # Every token's copies are written and added up again, those of other ranks' experts as zeros.
    copies = x["tokens"] * x["topk"] * x["hidden"] * f.activations.itemsize
    return up + gate + down + stream_cost(device, Stream(copies, copies), FULL)


def convolution(device: Device, x: Shape, f: Formats) -> Cost:
    """As the matrix product that it is: [batch out^2, in kernel^2] x [in kernel^2, out channels]."""
    rows, depth = x["batch"] * side(x) ** 2, x["input_channels"] * x["kernel_size"] ** 2
    return linear_cost(device, rows, x["output_channels"], depth, f.weights, f.activations, FULL)


COMPOSED: Mapping[str, Callable[[Device, Shape, Formats], Cost]] = {
    "attention_decode": decode,
    "moe": experts,
    "convolution": convolution,
    "gemm": gemm,
    "bmm": batched_gemm,
}
