"""Strided batched matrix multiplication: many equal products in one launch, their tiles sharing the waves."""

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
from jaxperf.core.numerics import as_float
from jaxperf.kernels.roofline import kernel_cost, matrix_peak, operand_itemsize
from jaxperf.kernels.schedules import Schedule, scheduled_work
from jaxperf.kernels.tiling import STEP_TILES


class BatchedGemm(eqx.Module):
    """`batch` products y[m, n] = x[m, k] w[k, n], no operand shared between them."""

    batch: Float[Array, "*batch"] = eqx.field(converter=as_float)
    m: Float[Array, "*batch"] = eqx.field(converter=as_float)
    n: Float[Array, "*batch"] = eqx.field(converter=as_float)
    k: Float[Array, "*batch"] = eqx.field(converter=as_float)


@functools.partial(jax.jit, static_argnames="schedule")
def batched_gemm_cost(
    device: Device,
    gemm: BatchedGemm,
    weights: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
    schedule: Schedule = "split-k",
) -> Cost:
    """All products of the batch in one launch: tiles = batch x ceil(m / tile_m) x ceil(n / tile_n) share the cores.

    compute = busiest core / (peak / cores) + additions of partial sums / (vector peak / cores);
    bytes = batch (m k operand + n k weight + m n output) + 2 x what partial sums spill beyond L2.

    **Arguments:** `weights`: format of w, `activations`: of y and of x where the device must leave it unquantized;
    `schedule`: see `jaxperf.kernels.schedules`, structure.
    **Returns:** `Cost` of scalars.
    """
    batch, m, n, k = gemm.batch, gemm.m, gemm.n, gemm.k
    work = scheduled_work(schedule, device, m, n, k, batch, STEP_TILES)
    spilled = jnp.maximum(work.partial_sums - device.l2_capacity, 0.0)  # written, and read back to be added
    per_core = work.busiest / matrix_peak(device, weights) + work.additions / device.vector_flops
    return kernel_cost(
        device,
        efficiency(gemm, device),
        compute=per_core * device.num_cores,
        flops=2.0 * batch * m * n * k,
        bytes_moved=batch
        * (
            m * k * operand_itemsize(device, weights, activations)
            + n * k * weights.itemsize
            + m * n * activations.itemsize
        )
        + 2.0 * spilled,
    )
