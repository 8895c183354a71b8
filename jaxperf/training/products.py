"""Matrix products of training: forward, gradient of the input, gradient of the weight, on one device."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.layout import Layout

TILE = 128.0 * 128.0  # outputs of the tile of tuned libraries
HALF_TILE = 64.0  # rows that a ragged last tile wastes on average


class Rates(eqx.Module):
    """What one device sustains: `matrix` in the layers' format, `plain` in that of the head, `grouped` of experts,
    `attention` core and its backward pass, `scan` [FLOP/s]; `memory` [byte/s]; `wave`: outputs idle in the last wave
    [1]; `ramp`: depth a tile's start is worth [1]."""

    matrix: Float[Array, "*batch"]
    plain: Float[Array, "*batch"]
    grouped: Float[Array, "*batch"]
    attention: Float[Array, "*batch"]
    attention_backward: Float[Array, "*batch"]
    scan: Float[Array, "*batch"]
    memory: Float[Array, "*batch"]
    wave: Float[Array, "*batch"]
    ramp: Float[Array, "*batch"]


def sustained_rates(device: Device, layout: Layout, efficiencies: TrainingEfficiencies) -> Rates:
    """Datasheet rates times their shares."""
    peak, plain = device.peak_flops[layout.compute_format], device.peak_flops[layout.plain_format]
    matrix = peak * efficiencies.gemm
    return Rates(
        matrix=matrix,
        plain=plain * efficiencies.plain_gemm,
        grouped=matrix * efficiencies.grouped_gemm,
        attention=plain * efficiencies.attention,
        attention_backward=plain * efficiencies.attention_backward,
        scan=device.vector_flops * efficiencies.scan,
        memory=device.memory_bandwidth * efficiencies.stream,
        wave=efficiencies.wave_loss * device.num_cores * TILE,
        ramp=efficiencies.depth_ramp,
    )


class Phases(eqx.Module):
    """Time of the forward pass, of the gradients of the inputs and of those of the weights [s]."""

    forward: Float[Array, "*batch"]
    backward: Float[Array, "*batch"]
    weight: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """All three [s]."""
        return self.forward + self.backward + self.weight

    def __add__(self, other: Phases) -> Phases:
        return jax.tree.map(jnp.add, self, other)

    def __mul__(self, factor: Scalar) -> Phases:
        return jax.tree.map(lambda leaf: leaf * factor, self)

    __rmul__ = __mul__


def product_time(
    rates: Rates, rate: Scalar, m: Scalar, n: Scalar, k: Scalar, groups: Scalar, itemsizes: tuple[Scalar, ...]
) -> Scalar:
    """Roofline of `groups` products y[m, n] = x[m, k] w[k, n] in one launch.

    t = max(2 (groups m n + w) (k + k0) / rate, groups (b_x m k + b_w k n + b_y m n) / bandwidth): the outputs idle in
    the last wave are w on average, and each tile starts and ends with k0 steps of its reduction. It is the expectation
    of `kernels.gemm` over alignments, smooth, so that layouts rank by more than where they land on a wave.

    **Arguments:** `rate` [FLOP/s]; `itemsizes` of x, w and y [byte].
    **Returns:** time [s]; of a block that is not there it means nothing.
    """
    x, w, y = itemsizes
    outputs = groups * m * n
    compute = 2.0 * (outputs + rates.wave) * (k + rates.ramp) / rate
    memory = (groups * k * (x * m + w * n) + y * outputs) / rates.memory
    return jnp.maximum(compute, memory)


def linear_phases(
    rates: Rates,
    rate: Scalar,
    m: Scalar,
    n: Scalar,
    k: Scalar,
    layout: Layout,
    *,
    operand: Scalar,
    groups: Scalar,
) -> Phases:
    """The three products of a linear layer: y = x w, dx = dy w^T, dw = x^T dy (added to an fp32 gradient).

    **Arguments:** `m` rows, `n` outputs, `k` inputs [1]; `operand`: bytes of a multiplied element [byte].
    """
    outputs = layout.activation_bytes
    forward = product_time(rates, rate, m, n, k, groups, (operand, operand, outputs))
    backward = product_time(rates, rate, m, k, n, groups, (operand, operand, outputs))
    weight = product_time(rates, rate, k, n, m, groups, (operand, operand, 2.0 * layout.gradient_bytes))
    return Phases(forward, backward, weight * (1.0 - layout.frozen))


def block_phases(
    rates: Rates,
    rate: Scalar,
    rows: Scalar,
    hidden: Scalar,
    weights: Scalar,
    width: Scalar,
    split: Scalar,
    layout: Layout,
    groups: Scalar,
) -> Phases:
    """A block of two linear layers, hidden to (weights / hidden - width) and width to hidden, split over `split` ranks.

    Exact in its FLOP: 2 rows weights / split forward. With `weights` 0 there is no block and no time.
    """
    inner = jnp.maximum(weights / jnp.maximum(hidden, 1.0) - width, 0.0)
    operand = layout.operand_bytes
    into = linear_phases(rates, rate, rows, inner / split, hidden, layout, operand=operand, groups=groups)
    out = linear_phases(rates, rate, rows, hidden, width / split, layout, operand=operand, groups=groups)
    return jax.tree.map(lambda time: jnp.where(weights > 0.0, time, 0.0), into + out)
