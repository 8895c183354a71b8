"""What the ranks of a pipeline have of the model, and which of them takes longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar
from jaxperf.training.compute import Ends
from jaxperf.training.critical_paths import StageTimes
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.schedules import stage_layers

Tree = TypeVar("Tree")
ROUNDING = 1e-5  # of times in 32 bits, after some hundred operations


class Stage(eqx.Module):
    """What a rank has of the model in its average stage: how many `layers`, and whether the `embedding` and the `head`:
    0, 1, or 0.5 where one of its two stages has it (DualPipe)."""

    layers: Float[Array, "*batch"]
    embedding: Float[Array, "*batch"]
    head: Float[Array, "*batch"]

    def tables(self, model: TrainingModel) -> Scalar:
        """Token tables of that stage: one for both ends where they are in one and tied, else a tied head is a copy, as
        in DualPipe. What predicts further tokens reads the table beside the head, and its projections count here in
        the size of a table [1]."""
        reads = jnp.minimum(self.embedding + jnp.where(model.further > 0.0, self.head, 0.0), 1.0)
        table, head = reads * model.table, self.head * model.head
        tables = table + head - model.tied * jnp.maximum(table + head - 1.0, 0.0)
        return tables + self.head * model.further_weights / jnp.maximum(model.embedding, 1.0)

    def time(self, layer: Scalar, ends: Ends) -> Scalar:
        """One micro-batch [s]; `layer`: of one layer [s]."""
        return self.layers * layer + self.embedding * ends.embedding + self.head * ends.head


def rank_stages(model: TrainingModel, layout: Layout) -> tuple[Stage, Stage, Stage]:
    """Of the first rank, of those between, which have no layers where there are two ranks or one, and of the last.

    In DualPipe a rank has the stage of its own place and that of its place from the other end, each for half of the
    micro-batches (arXiv:2412.19437, section 3.2.1): the mean of both.
    """
    stages = stage_layers(model, layout)
    together = layout.ends_together
    between = jnp.where(layout.pipeline > 2.0, stages.middle, 0.0)
    one, none = jnp.ones_like(together), jnp.zeros_like(together)
    alone = jnp.where(layout.pipeline <= 1.0, one, none)  # the last rank, too, which has both ends
    first, last = Stage(stages.first, one, together), Stage(stages.last, alone, 1.0 - together + alone)
    return _mean(layout, first, last), Stage(between, none, none), _mean(layout, last, first)


def average_between(model: TrainingModel, layout: Layout, stages: Sequence[Stage]) -> Stage:
    """The mean of the stages between the ends, some of which may lack a layer of a full one."""
    first, between, last = stages
    layers = (model.layers - first.layers - last.layers) / jnp.maximum(layout.pipeline - 2.0, 1.0)
    return Stage(jnp.where(layout.pipeline > 2.0, layers, 0.0), between.embedding, between.head)


def _mean(layout: Layout, own: Stage, opposite: Stage) -> Stage:
    """Of the stages that a rank holds."""
    return jax.tree.map(lambda one, other: (one + (layout.copies - 1.0) * other) / layout.copies, own, opposite)


def of_longest(times: Sequence[Scalar], values: Sequence[Tree]) -> Tree:
    """What belongs to the longest of `times`; to the first of those that differ by rounding alone."""
    longest, chosen = times[0], values[0]
    for time, value in zip(times[1:], values[1:], strict=True):
        longer = time > longest * (1.0 + ROUNDING)
        chosen = jax.tree.map(lambda mine, its, longer=longer: jnp.where(longer, its, mine), chosen, value)
        longest = jnp.where(longer, time, longest)
    return chosen


def stage_times(model: TrainingModel, layout: Layout, layer: Scalar, ends: Ends, waits: Sequence[Scalar]) -> StageTimes:
    """What the stages of a pipeline take for one micro-batch.

    Layers that an end lacks are missing in its outermost chunk as far as that has them, as in Llama 3 and in what
    Megatron-Core does to account for embedding and loss, and waits that the other stages do not have, as for the table
    that ZeRO-3 gathers, are of that chunk too; the others have chunks of one length.

    **Arguments:** `layer`: of one layer [s]; `waits` of the first stage, of those between and of the last [s].
    """
    stages = stage_layers(model, layout)
    on_first, between, on_last = waits
    between = jnp.where(layout.pipeline > 2.0, between, on_first)  # two stages have chunks between their ends
    full = stages.middle * layer
    chunk = full / layout.interleave

    def end(layers: Scalar, table: Scalar, waits: Scalar) -> tuple[Scalar, Scalar]:
        outermost = jnp.maximum(chunk - (full - layers * layer), 0.0) + table
        others = between - between / layout.interleave
        return layers * layer + waits + table, outermost + jnp.maximum(waits - others, 0.0)

    first, first_chunk = end(stages.first, ends.embedding, on_first)
    last, last_chunk = end(stages.last, ends.head, on_last)
    passed = on_first + (layout.pipeline - 2.0) * between + on_last
    return StageTimes(
        total=model.layers * layer + ends.embedding + ends.head + passed,
        first=first,
        between=full + between,
        last=last,
        first_chunk=first_chunk,
        last_chunk=last_chunk,
    )
