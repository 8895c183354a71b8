"""What a pipeline stage sends beside its compute, and the passes of a micro-batch that are left of it."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar
from jaxperf.training.communication import Groups
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.exposure import Both, DataExchange, data_exchange, offload_copies, pipeline_sends
from jaxperf.training.layout import Layout
from jaxperf.training.memory import StageParameters
from jaxperf.training.overlap import Passes
from jaxperf.training.products import Phases
from jaxperf.training.schedules import Elsewhere
from jaxperf.training.stages import Stage


class LayerWork(eqx.Module):
    """The average layer and one micro-batch: `passes` with what shows of their messages and their `waits` for the host,
    what of them is `free` of messages, recomputation, and an `overhead` besides [s]; activations `kept` [byte]."""

    passes: Phases
    free: Passes
    recompute: Float[Array, "*batch"]
    waits: Float[Array, "*batch"]
    overhead: Float[Array, "*batch"]
    kept: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """The whole layer [s]."""
        return self.passes.total + self.overhead


class StageMessages(eqx.Module):
    """Of one micro-batch, and of a step among the data-parallel ranks; `passes` of the layers with what shows of their
    messages and of these, but for `data` [s].

    A gradient of weights that hides messages goes with them, in `passes.backward`: only the rest can be put off.
    """

    sends: Both
    offload: Both
    data: DataExchange
    passes: Phases

    @property
    def waits(self) -> Passes:
        """What every micro-batch waits for, without the weights of ZeRO-3 [s]."""
        return self.sends.exposed + self.offload.exposed

    @property
    def part(self) -> Elsewhere:
        """What its idle time asks of a stage."""
        return Elsewhere(self.passes.weight, self.data.gathers)


def stage_messages(
    layout: Layout,
    groups: Groups,
    stage: Stage,
    own: StageParameters,
    layer: LayerWork,
    send: Scalar,
    efficiencies: TrainingEfficiencies,
) -> StageMessages:
    """One kind after the other beside what the kinds before it left of the compute.

    **Arguments:** `own`: parameters of the stage [1]; `send`: of a micro-batch to the next stage [s].
    """
    passes, free = layer.passes * stage.layers, layer.free * stage.layers
    sends, free = pipeline_sends(send, free, layout, efficiencies)
    offload, free = offload_copies(stage.layers * layer.kept, free, layout, efficiencies)
    data = data_exchange(own, layout, groups, stage.layers, free, efficiencies)
    waits, later = sends.exposed + offload.exposed, jnp.minimum(passes.weight, free.backward)
    backward = passes.backward + waits.backward + passes.weight - later
    return StageMessages(sends, offload, data, Phases(passes.forward + waits.forward, backward, later))


def rank_sums(ranks: Sequence[StageMessages], pipeline: Scalar) -> Elsewhere:
    """Over all ranks of a pipeline, of whose `ranks` are the first, the average one between and the last."""
    first, between, last = (rank.part for rank in ranks)
    return first + between * jnp.maximum(pipeline - 2.0, 0.0) + last
