"""Matrix multiplication y[m, n] = x[m, k] w[k, n]: roofline with wave quantization and split-K."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.roofline import kernel_cost, matrix_peak, operand_itemsize
from jaxperf.kernels.tiling import STEP_TILES, Tile, busiest_core_flops, choose_tile, deepest_split

PARTIAL_ITEMSIZE = 4.0  # split-K partial sums are fp32 [byte]


class Gemm(eqx.Module):
    """Shape of one GEMM: `m` rows (tokens), `n` output features, `k` reduction depth, per rank.

    `resident`: share of the weights already in L2 [1]. 0, the default, streams them from device memory as serving
    does; microbenchmarks that reuse one weight are nearer 1.
    """

    m: Float[Array, "*batch"] = eqx.field(converter=as_float)
    n: Float[Array, "*batch"] = eqx.field(converter=as_float)
    k: Float[Array, "*batch"] = eqx.field(converter=as_float)
    resident: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)


def gemm_cost(
    device: Device,
    gemm: Gemm,
    weights: NumberFormat,
    activations: NumberFormat,
    tile: Tile,
    efficiency: AbstractEfficiency,
) -> Cost:
    """Time and traffic of one GEMM with a given tile.

    compute = waves * 2 tile_m tile_n k / (peak / cores) on the busiest core;
    bytes = m k operand + n k weight (1 - resident) + m n output, plus what split-K partial sums
    spill beyond L2, written and read.

    **Arguments:** `device`, `gemm`, `weights`, `activations`, `tile`: scalar leaves.
    **Returns:** `Cost` of scalars: times [s], useful FLOP, bytes of device memory.
    """
    m, n, k = gemm.m, gemm.n, gemm.k
    busiest = busiest_core_flops(device, m, n, k, as_float(1.0), tile)
    in_l2 = jnp.where(n * k * weights.itemsize <= device.l2_capacity, gemm.resident, 0.0)
    partial_sums = jnp.where(tile.split_k > 1.0, tile.split_k * m * n * PARTIAL_ITEMSIZE, 0.0)
    spilled = jnp.maximum(partial_sums - device.l2_capacity, 0.0)  # written, and read back to be added
    return kernel_cost(
        device,
        efficiency(gemm, device),
        compute=busiest * device.num_cores / matrix_peak(device, weights),
        flops=2.0 * m * n * k,
        bytes_moved=(
            m * k * operand_itemsize(device, weights, activations)
            + n * k * weights.itemsize * (1.0 - in_l2)
            + m * n * activations.itemsize
            + 2.0 * spilled
        ),
    )


@functools.partial(jax.jit, static_argnames="tiles")
def linear_cost(
    device: Device,
    m: Scalar,
    n: Scalar,
    k: Scalar,
    weights: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
    tiles: tuple[tuple[float, float], ...] = STEP_TILES,
) -> Cost:
    """A linear layer with cold weights and the tile of `tiles` that a library would choose."""
    tile = choose_tile(device, m, n, k, as_float(1.0), deepest_split(k), tiles)
    return gemm_cost(device, Gemm(m, n, k), weights, activations, tile, efficiency)
