"""Grouped GEMM of a mixture-of-experts layer: the experts actually touched, and the rank with the most work."""

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
from jaxperf.core.numerics import Scalar, as_float, ceil_div, safe_sqrt
from jaxperf.kernels.roofline import kernel_cost, matrix_peak, operand_itemsize
from jaxperf.kernels.schedules import Schedule, scheduled_work
from jaxperf.kernels.tiling import SMALLEST_ROWS

TALLEST = 128.0  # rows, and columns, of a library's largest tile of experts
ROW_TOLERANCE = 0.01  # an expectation of 32.0000001 rows is 32 rows, not 33 in a tile of 64


class Routing(eqx.Module):
    """How tokens meet experts: `experts` in the layer, `chosen` per token, `skew` >= 1 multiplies the busiest rank.

    `skew` 1 is uniform routing; the imbalance that chance alone causes is always included.
    """

    experts: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float)
    skew: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)


class GroupedGemm(eqx.Module):
    """One projection of all experts on a rank: `rows` in all, `groups` touched experts, each [n, k]."""

    rows: Float[Array, "*batch"]
    groups: Float[Array, "*batch"]
    n: Float[Array, "*batch"]
    k: Float[Array, "*batch"]


def touched_experts(routing: Routing, tokens: Scalar, local_experts: Scalar) -> Scalar:
    """Expected experts of a rank that get any of `tokens`: E_local (1 - (1 - k / E)^T) under uniform routing [1]."""
    share = jnp.clip(routing.chosen / routing.experts, 0.0, 1.0 - 1e-6)
    return local_experts * -jnp.expm1(tokens * jnp.log1p(-share))


def busiest_rank(routing: Routing, tokens: Scalar, ranks: Scalar) -> Scalar:
    """Load of the busiest expert-parallel rank over the mean, at least 1 and at most the number of ranks [1].

    Multinomial routing of T tokens: 1 + sqrt(2 ln(R) (1 - 1/R) R / (T k)), the expected maximum of R Gaussian loads
    (reference: extreme value of R normals, sqrt(2 ln R)); times the user's skew.
    """
    spread = 2.0 * jnp.log(ranks) * (1.0 - 1.0 / ranks) * ranks / (tokens * routing.chosen)
    return jnp.minimum((1.0 + safe_sqrt(spread)) * routing.skew, ranks)


def rank_rows(routing: Routing, tokens: Scalar, ranks: Scalar) -> Scalar:
    """Token copies that the busiest of `ranks` ranks multiplies [1]."""
    return tokens * routing.chosen / ranks * busiest_rank(routing, tokens, ranks)


def routed_tiles(rows_each: Scalar) -> tuple[Scalar, Scalar]:
    """Height of a tile [row], and how many of them an expert's rows take in the mean [1], for experts of `rows_each`
    rows in the mean whom chance gives more or fewer.

    Libraries take a tile as tall as the rows that they expect, 16 to 128 (vLLM's and TensorRT-LLM's configurations of
    fused experts). Of random rows the last tile is half full: E[ceil(X / h)] = E[X] / h + 1/2 where X is spread over
    more than a tile, and one where it is less. Whole tiles of the mean would make stairs that no measured kernel has.
    """
    height = jnp.clip(rows_each, SMALLEST_ROWS, TALLEST)
    return height, jnp.maximum(rows_each / height + 0.5, 1.0)


@jax.jit
def routed_gemm_cost(
    device: Device, gemm: GroupedGemm, weights: NumberFormat, activations: NumberFormat, efficiency: AbstractEfficiency
) -> Cost:
    """All touched experts of a rank in one launch, their rows as chance has it: `grouped_gemm_cost` of uneven groups.

    **Returns:** `Cost` of scalars; `flops` counts useful rows only, tile padding appears in the time.
    """
    height, each = routed_tiles(jnp.maximum(gemm.rows / gemm.groups, 1.0))
    tiles = gemm.groups * each * ceil_div(gemm.n, as_float(TALLEST))
    busiest = jnp.maximum(tiles / device.num_cores, 1.0) * 2.0 * height * TALLEST * gemm.k
    return kernel_cost(
        device,
        efficiency(gemm, device),
        compute=busiest / matrix_peak(device, weights) * device.num_cores,
        flops=2.0 * gemm.rows * gemm.n * gemm.k,
        bytes_moved=_moved(device, gemm, weights, activations),
    )


def _moved(device: Device, gemm: GroupedGemm, weights: NumberFormat, activations: NumberFormat) -> Scalar:
    """Rows in, the weights of the touched experts once, and rows out [byte]."""
    rows_in = gemm.rows * gemm.k * operand_itemsize(device, weights, activations)
    return rows_in + gemm.groups * gemm.n * gemm.k * weights.itemsize + gemm.rows * gemm.n * activations.itemsize


@functools.partial(jax.jit, static_argnames="schedule")
def grouped_gemm_cost(
    device: Device,
    gemm: GroupedGemm,
    weights: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
    schedule: Schedule = "data-parallel",
) -> Cost:
    """All touched experts of a rank in one launch: each group has its own tiles, all tiles share the cores.

    Rows are spread evenly over the touched experts; weights of touched experts are read once, cold.

    **Arguments:** `schedule`: see `jaxperf.kernels.schedules`, structure; today's libraries hand out whole tiles.
    **Returns:** `Cost` of scalars; `flops` counts useful rows only, tile padding appears in the time.
    """
    rows_each = jnp.maximum(gemm.rows / gemm.groups, 1.0)
    whole_rows = ceil_div(jnp.maximum(rows_each - ROW_TOLERANCE, 1.0), as_float(1.0))
    work = scheduled_work(schedule, device, whole_rows, gemm.n, gemm.k, gemm.groups)
    spilled = jnp.maximum(work.partial_sums - device.l2_capacity, 0.0)
    per_core = work.busiest / matrix_peak(device, weights) + work.additions / device.vector_flops
    return kernel_cost(
        device,
        efficiency(gemm, device),
        compute=per_core * device.num_cores,
        flops=2.0 * gemm.rows * gemm.n * gemm.k,
        bytes_moved=_moved(device, gemm, weights, activations) + 2.0 * spilled,
    )
