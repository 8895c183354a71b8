"""Pipeline schedules: how long stages idle and how many micro-batches they hold, selected by a traced code."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, ceil_div, floor_div
from jaxperf.training.critical_paths import (
    StageTimes,
    gpipe_time,
    interleaved_time,
    one_forward_one_backward_time,
)
from jaxperf.training.layout import SCHEDULES, Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.overlap import Passes
from jaxperf.training.products import Phases


class Stages(eqx.Module):
    """Layers of the `first`, of the `last` and of the stages between, which have the most, `middle` [1]."""

    first: Float[Array, "*batch"]
    middle: Float[Array, "*batch"]
    last: Float[Array, "*batch"]


class Elsewhere(eqx.Module):
    """Other stages, for one micro-batch: gradients of `weight`s that can be put off, and what ZeRO-3 `gathers`
    before the forward and sends behind the backward passes [s]."""

    weight: Float[Array, "*batch"]
    gathers: Passes

    @property
    def put_off(self) -> Float[Array, "*batch"]:
        """What may follow its backward pass later [s]."""
        return self.weight + self.gathers.backward

    def __add__(self, other: Elsewhere) -> Elsewhere:
        return Elsewhere(self.weight + other.weight, self.gathers + other.gathers)

    def __sub__(self, other: Elsewhere) -> Elsewhere:
        return Elsewhere(self.weight - other.weight, self.gathers - other.gathers)

    def __mul__(self, factor: Scalar) -> Elsewhere:
        return Elsewhere(self.weight * factor, self.gathers * factor)


def stage_layers(model: TrainingModel, layout: Layout) -> Stages:
    """ceil(L / p) layers a stage; what is missing to a full pipeline is left out at the two ends, the last stage first,
    because they have the head and the embedding to compute (Llama 3, arXiv:2407.21783, section 3.3.2); all of it at the
    last where that visits the head for further tokens, too; where the first rank has both, on that first. Each end
    keeps one layer: what is then still missing is left out between them, where some stage is a full one. Chunks of one
    stage may differ by a layer, so that interleaving needs no more of them."""
    full = ceil_div(model.layers, layout.pipeline)
    spare = full * layout.pipeline - model.layers
    at_both = jnp.minimum(spare, jnp.maximum(full - 2.0, 0.0))
    halved = ceil_div(spare, 2.0 * jnp.ones_like(spare))
    halved = jnp.where(model.further > 0.0, jnp.minimum(spare, full - 1.0), halved)
    at_last = jnp.where(layout.ends_together > 0.0, spare - at_both, halved)
    return Stages(
        first=jnp.maximum(full - (spare - at_last), 1.0),
        middle=full,
        last=jnp.maximum(full - at_last, 1.0),
    )


def select_schedule(code: Scalar, values: Mapping[str, Scalar]) -> Scalar:
    """The value of the schedule with that code."""
    chosen = values[SCHEDULES[0]]
    for index, name in enumerate(SCHEDULES[1:], start=1):
        chosen = jnp.where(code > index - 0.5, values[name], chosen)
    return chosen


def idle_time(
    layout: Layout, times: StageTimes, busiest: Scalar, passes: Phases, gathers: Passes, elsewhere: Elsewhere
) -> Scalar:
    """How long the busiest stage idles in a step.

    GPipe, 1F1B and interleaved: what the longest walk through the passes takes beyond the busiest stage's work
    (`critical_paths`); of even stages (p-1) (F + B + W), over v when interleaved (arXiv:2104.04473), and p - m more
    passes where the m micro-batches are fewer than the stages, for which each chunk then waits. Others: `_in_pieces`.

    **Arguments:** `times` of the stages and of the `busiest` one, with what is sent; its `passes` without the `gathers`
    of ZeRO-3 before F and behind W; what all other stages have of these, `elsewhere`; each of one micro-batch [s].
    **Returns:** idle time [s].
    """
    p, v, m = layout.pipeline, layout.interleave, layout.microbatches
    whole = passes.total + gathers.total
    share = (passes.forward + gathers.forward) / jnp.where(whole > 0.0, whole, 1.0)
    in_turn = one_forward_one_backward_time(times, p, m, share)
    played = {
        "gpipe": gpipe_time(times, p, m),
        "1f1b": in_turn,
        "interleaved": jnp.where(v > 1.0, interleaved_time(times, p, v, m, share), in_turn),
    }
    idle = {name: time - m * busiest for name, time in played.items()}
    fill = times.total - busiest - elsewhere.gathers.total
    in_pieces = _in_pieces(p, m, fill, passes, gathers, elsewhere)
    return jnp.maximum(select_schedule(layout.schedule, idle | in_pieces), 0.0)


def _in_pieces(
    p: Scalar, m: Scalar, fill: Scalar, passes: Phases, gathers: Passes, elsewhere: Elsewhere
) -> dict[str, Scalar]:
    """Idle time where W is put off into gaps, at most m - 1 of them, with `fill` what all stages but the busiest take
    [s].

    Of even stages (p-1) (F + B - W) in ZB-H1, (p-1) (F + B - 2 W) in ZB-H2 (arXiv:2401.10241); `_vee` of ZB-V;
    DualPipe (p/2 - 1) (F + max(F, B) + max(B - W, 0)), which is (F&B + B + W - 3 W) with F&B = F + B + W where B is the
    longest (DeepSeek-V3, arXiv:2412.19437, table 2). Of ZB-H1, ZB-H2 and DualPipe no step is shorter than until the
    last of the micro-batches, in DualPipe of half of them, has come back. What ZeRO-3 sends before F and behind W is
    waited for on every stage, and the latter put off like W.
    """
    before, behind = gathers.forward, gathers.backward
    there_and_back = fill - elsewhere.weight + elsewhere.gathers.forward

    def after(gaps: float) -> Scalar:
        """With that many W of each other stage put into gaps."""
        put_off = jnp.minimum(gaps * elsewhere.weight, (m - 1.0) * passes.weight)
        sent = jnp.minimum(gaps, (m - 1.0) / jnp.maximum(p - 1.0, 1.0)) * elsewhere.gathers.backward
        return there_and_back - put_off - sent

    one, of_direction = passes.total + before + behind, ceil_div(m, 2.0 * jnp.ones_like(m))
    halves, forward = jnp.maximum(0.5 * p - 1.0, 0.0), before + passes.forward
    met = forward + jnp.maximum(forward, passes.backward)
    met = met + jnp.maximum(passes.backward - passes.weight - behind, 0.0)
    coming = of_direction * (forward + passes.backward)
    returned = there_and_back + coming + passes.weight + behind - m * one
    both = forward + passes.backward
    share = forward / jnp.where(both > 0.0, both, 1.0)
    return {
        "zb-h1": after(1.0),
        "zb-h2": after(2.0),
        "zb-v": _vee(p, m, share * there_and_back, (1.0 - share) * there_and_back, elsewhere.put_off),
        "dualpipe": jnp.maximum(halves * met, returned),
    }


def _vee(p: Scalar, m: Scalar, forward: Scalar, backward: Scalar, weight: Scalar) -> Scalar:
    """Idle time of ZB-V, whose ranks have F, B and W of one stage and of the other in turn (arXiv:2401.10241, section
    6): none where all three are as long. Else the pattern waits for the longer of them, (p-1) (max(F, B) - W), (p-1)
    (B - F) / 2 or (p-1) (F - (B + W) / 2); and until it is reached, after 2 p - 1 micro-batches, for the way of the
    first one, of which each that follows saves a share.

    Its authors give the case of equal passes. Otherwise this is what their order takes when it is played (tests): exact
    for W <= F <= B from 2 p - 1 micro-batches, else within 5 %.

    **Arguments:** what all other ranks take for one micro-batch [s].
    """
    others = jnp.maximum(p - 1.0, 1.0)
    turned = jnp.maximum(0.5 * (backward - forward), forward - 0.5 * (backward + weight))
    steady = jnp.maximum(jnp.maximum(forward, backward) - weight, turned)
    first = jnp.minimum((m - 1.0) / others, 1.0) * jnp.minimum(forward + weight, 0.5 * (forward + backward + weight))
    then = jnp.clip((m - p) / others, 0.0, 1.0) * 0.5 * forward
    return jnp.maximum(steady, forward + backward - first - then)


def live_microbatches(layout: Layout) -> tuple[Scalar, Scalar, Scalar]:
    """Micro-batches whose activations the first, the second and the last stage hold at most, in units of all layers of
    a stage.

    GPipe m; 1F1B p - i on stage i; interleaved, in groups of g = p micro-batches, (g (v-1) + 2 p - 1) / v on the first,
    which is p (1 + (p-1) / (p v)), two chunks less on each that follows and 1 on the last but for the v - 1 chunks
    before it (arXiv:2205.05198, section 4.2.3), and as 1F1B, which it is, with one chunk; ZB-H1 and ZB-V p, ZB-H2
    2 p - 1 (arXiv:2401.10241), on every stage, for what a W still needs counts as if its B had not been; DualPipe
    p + 1. With those on their way in stages `behind`, but never more than there are.
    """
    p, v, m = layout.pipeline, layout.interleave, layout.microbatches
    away = ceil_div(layout.behind, layout.data * layout.microbatch)
    ones = jnp.ones_like(p)
    groups = _group(p, m) * (v - 1.0)  # chunks that all stages have before the last one

    def chunks(beyond: Scalar, alone: Scalar) -> Scalar:
        return jnp.where(v > 1.0, (groups + beyond) / v, alone)

    first = {
        "gpipe": m,
        "1f1b": p,
        "interleaved": chunks(2.0 * p - 1.0, p),
        "zb-h1": p,
        "zb-h2": 2.0 * p - 1.0,
        "zb-v": p,
        "dualpipe": p + 1.0,
    }
    second = first | {"1f1b": p - 1.0, "interleaved": chunks(2.0 * p - 3.0, p - 1.0)}
    last = first | {"1f1b": ones, "interleaved": chunks(ones, ones)}
    one, two, end = (jnp.minimum(select_schedule(layout.schedule, at) + away, m) for at in (first, second, last))
    return one, two, end


def _group(p: Scalar, m: Scalar) -> Scalar:
    """Micro-batches that pass a chunk in turn, p or more in every group, so that Megatron-Core ends
    (`microbatch_group_size_per_vp_stage`): m over the most groups that there can be, all where they are fewer. A lower
    bound where groups cannot be equal [1]."""
    return m / jnp.maximum(floor_div(m, p), 1.0)
