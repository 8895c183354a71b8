"""What a training step is made of."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxperf.core.numerics import Scalar
from jaxperf.training.exposure import Communication
from jaxperf.training.memory import StageMemory


class Compute(eqx.Module):
    """Compute of one step on one rank of the busiest stage, by kind [s]; `host`: what launching adds to it;
    `optimizer` of the device, `host_optimizer` of what is offloaded, with its copies that show."""

    gemm: Float[Array, "*batch"]
    experts: Float[Array, "*batch"]
    attention: Float[Array, "*batch"]
    vector: Float[Array, "*batch"]
    ends: Float[Array, "*batch"]
    recompute: Float[Array, "*batch"]
    optimizer: Float[Array, "*batch"]
    host_optimizer: Float[Array, "*batch"]
    host: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """All kinds [s]."""
        products = self.gemm + self.experts + self.attention + self.vector
        return products + self.ends + self.recompute + self.updates + self.host

    @property
    def updates(self) -> Float[Array, "*batch"]:
        """The optimizer on the device and on the host [s]."""
        return self.optimizer + self.host_optimizer


def interval_ends(mfu: Scalar, factor: Scalar) -> tuple[Scalar, Scalar]:
    """The shortest and the longest time of an interval, over the time itself, whose logarithm it has `factor` on either
    side: no end is below the useful work at the peak, as no step is [1]."""
    return jnp.maximum(1.0 / factor, mfu), factor


class TrainingStep(eqx.Module):
    """What one step costs.

    `time`: of the step, NaN where infeasible; `unchecked_time`: the same formula whether or not it is feasible [s].
    It is the sum of `compute`, `exposed` communication, `idle` time of the pipeline and `straggling`: what is waited
    for the slowest rank [s].
    `communication`: all messages, hidden ones too [s]; `bubble_fraction` = idle / time; `mfu`, `hfu`: useful and
    issued FLOP over the peak in the layers' format [1]; `flops`: useful, over all devices [FLOP]; `memory`: of the
    fullest stage [byte]; `tokens_per_second` over all devices; `energy` over all devices [J]; `reason`: bits of
    `TrainingReason`, 0 where feasible.
    """

    time: Float[Array, "*batch"]
    unchecked_time: Float[Array, "*batch"]
    compute: Compute
    exposed: Communication
    communication: Communication
    idle: Float[Array, "*batch"]
    straggling: Float[Array, "*batch"]
    bubble_fraction: Float[Array, "*batch"]
    mfu: Float[Array, "*batch"]
    hfu: Float[Array, "*batch"]
    flops: Float[Array, "*batch"]
    memory: StageMemory
    tokens_per_second: Float[Array, "*batch"]
    energy: Float[Array, "*batch"]
    reason: Int[Array, "*batch"]

    @property
    def feasible(self) -> Bool[Array, "*batch"]:
        """Whether the step can run."""
        return self.reason == 0
