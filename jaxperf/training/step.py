"""One training step of a model in a layout on a device: time by kind, memory, utilization, energy.

A pipeline stage works through its micro-batches one after the other; what its communication cannot hide behind compute
adds to each; the other stages' work is waited for once, less what the schedule fills in; then come its gradients and
its optimizer. The step ends with the stage that ends last.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.roofline import partial_overlap
from jaxperf.training.communication import layout_groups, stage_send
from jaxperf.training.compute import Ends, LayerCompute, ends_compute, layer_compute
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.energy import step_energy
from jaxperf.training.exposure import (
    Communication,
    LayerExchange,
    layer_exchanges,
)
from jaxperf.training.flops import step_flops
from jaxperf.training.layout import Layout
from jaxperf.training.layout_checks import layout_reasons
from jaxperf.training.memory import StageParameters, kept_activations, stage_memory, stage_parameters
from jaxperf.training.model import TrainingModel
from jaxperf.training.optimizer import OptimizerStep, optimizer_step
from jaxperf.training.overlap import Passes
from jaxperf.training.products import Phases, sustained_rates
from jaxperf.training.recompute import computed_again
from jaxperf.training.results import Compute, TrainingStep
from jaxperf.training.schedules import idle_time
from jaxperf.training.stage_messages import LayerWork, StageMessages, rank_sums, stage_messages
from jaxperf.training.stages import Stage, average_between, of_longest, rank_stages, stage_times
from jaxperf.training.stragglers import straggling_time

FORWARD_LAUNCHES = 1.0 / 3.0  # of a layer's kernels: the backward pass has two for each of the forward one
HOST_SHOWS = 0.25  # of the shorter of launching and computing a layer, squared: 12 % more than the longer at most


class _Work(eqx.Module):
    """What a stage does in a step: its `time` from the first micro-batch to the last parameter, of which it computes
    `parts`, is `idle` and waits for the slowest of its kind (`straggling`); what it sends [s]."""

    stage: Stage
    time: Float[Array, "*batch"]
    parts: Compute
    idle: Float[Array, "*batch"]
    straggling: Float[Array, "*batch"]
    sent: StageMessages


def training_step(
    model: TrainingModel, layout: Layout, device: Device, efficiencies: TrainingEfficiencies
) -> TrainingStep:
    """Time, memory and utilization of one training step.

    t = max(m t_stage + idle + straggling + exposed(data) + optimizer) + overhead, the longest of all stages; t_stage:
    its layers, ends and what shows of their communication (Narayanan et al. 2021, arXiv:2104.04473; Isaev et al. 2023,
    Calculon). No step is shorter than its useful work at the peak.

    **Arguments:** scalar leaves each; batching is the caller's `vmap`.
    **Returns:** `TrainingStep` of scalars. Infeasible layouts have `time` NaN and their `reason`, no error.
    """
    rates = sustained_rates(device, layout, efficiencies)
    groups = layout_groups(device, layout, efficiencies)
    compute = layer_compute(model, layout, rates, efficiencies.imbalance)
    ends = ends_compute(model, layout, rates)
    exchanges, free, held = layer_exchanges(model, layout, groups, compute, efficiencies)
    kept = kept_activations(model, layout, efficiencies.imbalance)
    overhead = _overhead(model, layout, efficiencies)
    layer = _layer(layout, compute, exchanges, free, held, kept, overhead, efficiencies.host_layer)
    send = stage_send(model, layout, groups)
    m = layout.microbatches

    stages = rank_stages(model, layout)
    average = average_between(model, layout, stages)
    owned = [stage_parameters(model, layout, stage.layers, stage.tables(model)) for stage in (*stages, average)]
    *messages, usual = (
        stage_messages(layout, groups, stage, own, layer, send, efficiencies)
        for stage, own in zip((*stages, average), owned, strict=True)
    )
    ranks = messages[0], usual, messages[-1]
    everywhere = rank_sums(ranks, layout.pipeline)
    scheduling = layout.interleave * efficiencies.stage_overhead
    waiting = [each.waits.total + each.data.gathers.total + scheduling for each in ranks]
    times = stage_times(model, layout, layer.total, ends, waiting)

    def work(stage: Stage, own: StageParameters, sent: StageMessages) -> _Work:
        one, gathers = stage.time(layer.total, ends) + sent.waits.total + scheduling, sent.data.gathers
        idle = idle_time(layout, times, one + gathers.total, sent.passes, gathers, everywhere - sent.part)
        idle = jnp.where(layout.pipeline > 1.0, idle, 0.0)
        optimizer = optimizer_step(own, layout, rates.memory, efficiencies)
        parts = _compute_parts(compute, layer, ends, stage, m, optimizer, layout, efficiencies)
        straggling = straggling_time(parts.total - parts.updates + idle, layout.world, efficiencies.rank_spread)
        time = m * one + idle + straggling + sent.data.exposed + parts.updates
        return _Work(stage, time, parts, idle, straggling, sent)

    works = [work(*each) for each in zip(stages, owned, messages, strict=False)]
    # Where all end together, as without gradients to send, the one that computes longest is told.
    works.insert(0, of_longest([each.stage.time(layer.total, ends) for each in works], works))
    longest = of_longest([jnp.where(each.stage.layers > 0.0, each.time, 0.0) for each in works], works)
    stage, sent = longest.stage, longest.sent
    time = longest.time + efficiencies.step_overhead
    exposed, messages = _communication(exchanges, stage.layers * m, m, sent)
    waits = longest.idle, longest.straggling
    return _answer(model, layout, device, efficiencies, time, waits, longest.parts, exposed, messages)


def _layer(
    layout: Layout,
    compute: LayerCompute,
    exchanges: dict[str, LayerExchange],
    free: Passes,
    held: Scalar,
    kept: Scalar,
    overhead: Scalar,
    launching: Scalar,
) -> LayerWork:
    """The passes with their waits; the host launches ahead unless it takes longer (`launching`)."""
    whole = compute.total
    again = computed_again(layout).whole * whole.forward + compute.again
    forward = whole.forward + sum(each.forward for each in exchanges.values())
    backward = whole.backward + again + sum(each.backward for each in exchanges.values())
    gradients = backward + whole.weight
    waits = Passes(
        _host_idle(forward, FORWARD_LAUNCHES * launching), _host_idle(gradients, (1.0 - FORWARD_LAUNCHES) * launching)
    )
    slower = 1.0 + waits.backward / jnp.where(gradients > 0.0, gradients, 1.0)
    passes = Phases(forward + waits.forward, slower * (backward + held), slower * (whole.weight - held))
    return LayerWork(passes, free + waits, again, waits.total, overhead, kept)


def _host_idle(work: Scalar, launching: Scalar) -> Scalar:
    """How long a device of that much `work` in a pass waits for the host that launches it [s]."""
    elapsed = partial_overlap(work, launching, as_float(HOST_SHOWS))
    return jnp.where(launching > 0.0, elapsed - work, 0.0)


def _overhead(model: TrainingModel, layout: Layout, efficiencies: TrainingEfficiencies) -> Scalar:
    """Added to the average layer and micro-batch [s]."""
    experts = jnp.where(model.topk > 0.0, model.moe_layers / model.layers * model.experts / layout.expert, 0.0)
    return efficiencies.layer_overhead + experts * efficiencies.expert_overhead


def _compute_parts(
    compute: LayerCompute,
    layer: LayerWork,
    ends: Ends,
    stage: Stage,
    microbatches: Scalar,
    optimizer: OptimizerStep,
    layout: Layout,
    efficiencies: TrainingEfficiencies,
) -> Compute:
    layers = stage.layers * microbatches
    scheduling = microbatches * layout.interleave * efficiencies.stage_overhead + efficiencies.step_overhead
    return Compute(
        gemm=layers * compute.gemm.total,
        experts=layers * compute.experts.total,
        attention=layers * compute.attention.total,
        vector=layers * compute.vector.total,
        ends=microbatches * (stage.embedding * ends.embedding + stage.head * ends.head),
        recompute=layers * layer.recompute,
        optimizer=optimizer.on_device,
        host_optimizer=optimizer.on_host + optimizer.exposed,
        host=layers * (layer.waits + layer.overhead) + scheduling,
    )


def _communication(
    exchanges: dict[str, LayerExchange], layers: Scalar, microbatches: Scalar, sent: StageMessages
) -> tuple[Communication, Communication]:
    """Of a step by kind: what shows, and all of it."""
    sends, offload = (microbatches * each.exposed.total for each in (sent.sends, sent.offload))
    shown = {name: layers * (each.forward + each.backward) for name, each in exchanges.items()}
    exposed = Communication(**shown, pipeline=sends, data=sent.data.exposed, offload=offload)
    sends, offload = (microbatches * each.total for each in (sent.sends, sent.offload))
    totals = {name: layers * each.total for name, each in exchanges.items()}
    return exposed, Communication(**totals, pipeline=sends, data=sent.data.total, offload=offload)


def _answer(
    model: TrainingModel,
    layout: Layout,
    device: Device,
    efficiencies: TrainingEfficiencies,
    time: Scalar,
    waits: tuple[Scalar, Scalar],
    compute: Compute,
    exposed: Communication,
    sent: Communication,
) -> TrainingStep:
    useful, issued = step_flops(model, layout)
    peak = device.peak_flops[layout.compute_format] * layout.world
    # Shares fitted above 1 stand for steps of their like; no step is shorter than its useful work at the peak.
    longer = jnp.where(peak > 0.0, jnp.maximum(useful / jnp.where(peak > 0.0, peak * time, 1.0), 1.0), 1.0)
    time, (idle, straggling), compute, exposed, sent = jax.tree.map(
        lambda part: longer * part, (time, waits, compute, exposed, sent)
    )
    memory = stage_memory(model, layout, efficiencies.imbalance, efficiencies.reserved_memory)
    reason = layout_reasons(model, layout, device, memory.total, memory.host)
    checked = jnp.where(reason == 0, time, jnp.nan)
    streamed = (compute.vector + compute.optimizer) * efficiencies.stream
    return TrainingStep(
        time=checked,
        unchecked_time=time,
        compute=compute,
        exposed=exposed,
        communication=sent,
        idle=idle,
        straggling=straggling,
        bubble_fraction=idle / time,
        mfu=useful / (peak * time),
        hfu=issued / (peak * time),
        flops=useful,
        memory=memory,
        tokens_per_second=layout.global_batch * layout.sequence / time,
        energy=step_energy(device, layout, issued, streamed, time),
        reason=reason,
    )
