"""Which pipeline stage is busiest, and what the others add."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar
from jaxperf.training.compute import Ends
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.schedules import stage_layers


class BusiestStage(eqx.Module):
    """The stage that takes longest: how many `layers` it has, and whether the `embedding` and the `head` (0 or 1)."""

    layers: Float[Array, "*batch"]
    embedding: Float[Array, "*batch"]
    head: Float[Array, "*batch"]

    def tables(self, model: TrainingModel) -> Scalar:
        """Token tables it stores: one for both ends where they are on one stage and tied [1]."""
        table, head = self.embedding * model.table, self.head * model.head
        return table + head * (1.0 - table * model.tied)

    def time(self, layer: Scalar, ends: Ends) -> Scalar:
        """One micro-batch [s]; `layer`: of one layer [s]."""
        return self.layers * layer + self.embedding * ends.embedding + self.head * ends.head


def busiest_stage(model: TrainingModel, layout: Layout, layer: Scalar, ends: Ends) -> BusiestStage:
    """The longest of the first stage with the embedding, the last with the head, and those between."""
    stages = stage_layers(model, layout)
    single = jnp.where(layout.pipeline <= 1.0, 1.0, 0.0)
    between = jnp.where(layout.pipeline > 2.0, stages.middle, 0.0)
    zero = jnp.zeros_like(single)
    candidates = (
        BusiestStage(stages.first, 1.0 - zero, single),
        BusiestStage(stages.last, single, 1.0 - zero),
        BusiestStage(between, zero, zero),
    )
    best = candidates[0]
    for stage in candidates[1:]:
        longer = stage.time(layer, ends) > best.time(layer, ends)
        best = BusiestStage(
            jnp.where(longer, stage.layers, best.layers),
            jnp.where(longer, stage.embedding, best.embedding),
            jnp.where(longer, stage.head, best.head),
        )
    return best
