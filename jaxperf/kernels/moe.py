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
    """Expected experts of a rank that receive any of `tokens`: E_local (1 - (1 - k / E)^T) under uniform routing."""
    share = jnp.clip(routing.chosen / routing.experts, 0.0, 1.0 - 1e-6)
    return local_experts * -jnp.expm1(tokens * jnp.log1p(-share))


def busiest_rank(routing: Routing, tokens: Scalar, ranks: Scalar) -> Scalar:
    """Load of the busiest expert-parallel rank over the mean, at least 1 and at most the number of ranks.

    Multinomial routing of T tokens: 1 + sqrt(2 ln(R) (1 - 1/R) R / (T k)), the expected maximum of R Gaussian loads
    (reference: extreme value of R normals, sqrt(2 ln R)); times the user's skew.
    """
    spread = 2.0 * jnp.log(ranks) * (1.0 - 1.0 / ranks) * ranks / (tokens * routing.chosen)
    return jnp.minimum((1.0 + safe_sqrt(spread)) * routing.skew, ranks)


def rank_rows(routing: Routing, tokens: Scalar, ranks: Scalar) -> Scalar:
    """Token copies that the busiest of `ranks` ranks multiplies [1]."""
    return tokens * routing.chosen / ranks * busiest_rank(routing, tokens, ranks)


@functools.partial(jax.jit, static_argnames="schedule")
def grouped_gemm_cost(
    device: Device,
    gemm: GroupedGemm,
    weights: NumberFormat,
    activations: NumberFormat,
    efficiency: AbstractEfficiency,
    sharpness: Scalar | None = None,
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
        bytes_moved=gemm.rows * gemm.k * operand_itemsize(device, weights, activations)
        + gemm.groups * gemm.n * gemm.k * weights.itemsize
        + gemm.rows * gemm.n * activations.itemsize
        + 2.0 * spilled,
        sharpness=sharpness,
    )
