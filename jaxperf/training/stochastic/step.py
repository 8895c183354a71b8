"""A training step and chance: who waits for whom in it, how long it then takes, what a run keeps of its time."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.training.checkpoint import Goodput, goodput
from jaxperf.training.failures import Failures, cluster_mtbf, spares_for
from jaxperf.training.layout import Layout
from jaxperf.training.stochastic.cluster import Synchronization, Variation, step_distribution
from jaxperf.training.stochastic.grid import moments, quantile

SEGMENTS = 4.0  # times a layer synchronizes its group in one micro-batch: after each block, forward and backward
LOWER, UPPER = 0.05, 0.95
SPARE_CONFIDENCE = 0.99


class Outlook(eqx.Module):
    """The step time [s]: `nominal`, `mean`, and its 5, 50 and 95 % quantiles over steps and clusters; `mtbf` of the
    cluster [s]; `kept`: what of a run's time is lasting work; `spares` [devices] that keep the cluster whole with a
    probability of 99 %."""

    nominal: Float[Array, ""]
    mean: Float[Array, ""]
    lower: Float[Array, ""]
    median: Float[Array, ""]
    upper: Float[Array, ""]
    mtbf: Float[Array, ""]
    kept: Goodput
    spares: Float[Array, ""]


def synchronization(layers: Scalar, layout: Layout, terms: Mapping[str, Scalar]) -> Synchronization:
    """Who waits for whom in a step of this layout.

    Tensor and context ranks wait for each other in every layer, and so do the ranks that exchange tokens for experts or
    gather weights (ZeRO-3); what is left of a stage's ranks meets once a step. The step's own `straggling` is left out:
    its distribution takes the place of that mean.

    **Arguments:** `layers` of the model [1]; `terms`: the metrics of a `TrainingStep` by dotted name [s].
    """
    m, p = layout.microbatches, layout.pipeline
    compute = sum(value for name, value in terms.items() if name.startswith("compute."))
    inside = sum(value for name, value in terms.items() if name.startswith("exposed.")) - terms["exposed.data"]
    busy = (compute - terms["compute.optimizer"] - terms["compute.host_optimizer"]) / m
    behind = jnp.maximum(p - 1.0, 1.0)
    bubble = jnp.where(p > 1.0, terms["idle"] / (behind * (busy + inside / m)), 0.0)
    sharded = jnp.where(layout.zero > 2.5, layout.tensor * layout.shard, 1.0)
    members = jnp.maximum(jnp.maximum(layout.tensor * layout.context, layout.expert * layout.expert_tensor), sharded)
    known = busy * (m + bubble * (p - 1.0)) + inside + terms["exposed.data"] + terms["straggling"]
    return Synchronization(
        busy=busy,
        microbatches=m,
        stages=p,
        bubble=bubble,
        members=members,
        segments=SEGMENTS * layers / p,
        replicas=layout.stage_ranks / members,
        network=inside,
        reduction=terms["communication.data"],
        cover=terms["communication.data"] - terms["exposed.data"],
        rest=terms["time"] - known,
    )


@jax.jit
def outlook(step: Synchronization, variation: Variation, failures: Failures, save: Scalar) -> Outlook:
    """How a step of this kind spreads, and what failures leave of a run.

    **Arguments:** `save`: how long a checkpoint stops the run [s].
    """
    times = step_distribution(step, variation)
    lower, median, upper = quantile(times, as_float((LOWER, 0.5, UPPER)))
    devices = step.members * step.replicas * step.stages
    mtbf = cluster_mtbf(failures, devices)
    return Outlook(
        nominal=step.nominal,
        mean=moments(times)[0],
        lower=lower,
        median=median,
        upper=upper,
        mtbf=mtbf,
        kept=goodput(save, mtbf, failures.restart),
        spares=spares_for(failures, devices, as_float(SPARE_CONFIDENCE)),
    )
