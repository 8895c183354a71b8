"""One training step of a model in a layout on a device: time by kind, memory, utilization, energy.

A pipeline stage works through its micro-batches one after the other; what its communication cannot hide behind compute
adds to each; the other stages' work is waited for once, less what the schedule fills in; then come its gradients and
its optimizer. The step ends with the stage that ends last.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.roofline import partial_overlap
from jaxperf.training.communication import layout_groups
from jaxperf.training.compute import Ends, LayerCompute, ends_compute, layer_compute
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.energy import step_energy
from jaxperf.training.exposure import (
    Both,
    Communication,
    DataExchange,
    LayerExchange,
    data_exchange,
    layer_exchanges,
    offload_copies,
    pipeline_sends,
)
from jaxperf.training.flops import step_flops
from jaxperf.training.layout import Layout
from jaxperf.training.layout_checks import layout_reasons
from jaxperf.training.memory import kept_activations, stage_memory, stage_parameters
from jaxperf.training.model import TrainingModel
from jaxperf.training.optimizer import optimizer_time
from jaxperf.training.products import sustained_rates
from jaxperf.training.results import Compute, TrainingStep
from jaxperf.training.schedules import idle_time
from jaxperf.training.stages import Stage, of_longest, rank_stages, stage_times
from jaxperf.training.stragglers import straggling_time

HOST_SHOWS = 0.25  # of the shorter of launching and computing a layer, squared: 12 % more than the longer at most


class _Layer(eqx.Module):
    """The average layer and one micro-batch: passes with what shows of their messages, `alone` forward and backward
    without it, and recomputation [s]."""

    forward: Float[Array, "*batch"]
    backward: Float[Array, "*batch"]
    weight: Float[Array, "*batch"]
    alone: tuple[Float[Array, "*batch"], Float[Array, "*batch"]]
    recompute: Float[Array, "*batch"]
    host: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """The whole layer [s]."""
        return self.forward + self.backward + self.weight + self.host


class _Work(eqx.Module):
    """What a stage does in a step: its `time` from the first micro-batch to the last parameter, of which it computes
    `parts`, is `idle` and waits for the slowest of its kind (`straggling`); what it sends [s]."""

    stage: Stage
    time: Float[Array, "*batch"]
    parts: Compute
    idle: Float[Array, "*batch"]
    straggling: Float[Array, "*batch"]
    sends: Both
    offload: Both
    data: DataExchange


def training_step(
    model: TrainingModel, layout: Layout, device: Device, efficiencies: TrainingEfficiencies
) -> TrainingStep:
    """Time, memory and utilization of one training step.

    t = max(m t_stage + idle + straggling + exposed(data) + optimizer) + overhead, the longest of all stages; t_stage:
    its layers, ends and what shows of their communication (Narayanan et al. 2021, arXiv:2104.04473; Isaev et al. 2023,
    Calculon).

    **Arguments:** scalar leaves each; batching is the caller's `vmap`.
    **Returns:** `TrainingStep` of scalars. Infeasible layouts have `time` NaN and their `reason`, no error.
    """
    rates = sustained_rates(device, layout, efficiencies)
    groups = layout_groups(device, layout, efficiencies)
    compute = layer_compute(model, layout, rates, efficiencies.imbalance)
    ends = ends_compute(model, layout, rates)
    exchanges = layer_exchanges(model, layout, groups, compute, efficiencies)
    layer = _layer(layout, compute, exchanges, _overhead(model, layout, efficiencies), efficiencies.host_layer)
    m = layout.microbatches

    def work(stage: Stage) -> _Work:
        forward, backward = (stage.layers * each for each in layer.alone)
        sends = pipeline_sends(model, layout, groups, forward + backward, efficiencies)
        kept = stage.layers * kept_activations(model, layout, efficiencies.imbalance)
        offload = offload_copies(kept, forward, backward, layout, efficiencies)
        own = stage_parameters(model, layout, stage.layers, stage.tables(model))
        data = data_exchange(own, layout, groups, stage.layers, forward, backward, efficiencies)
        waits = sends.exposed + offload.exposed + layout.interleave * efficiencies.stage_overhead
        one = stage.time(layer.total, ends) + waits
        idle = _idle(model, layout, layer, ends, stage, one, waits, data)
        optimizer = optimizer_time(own, layout, rates.memory)
        parts = _compute_parts(compute, layer, ends, stage, m, optimizer, layout, efficiencies)
        straggling = straggling_time(parts.total - optimizer + idle, layout.world, efficiencies.rank_spread)
        time = m * one + idle + straggling + data.exposed + optimizer
        return _Work(stage, time, parts, idle, straggling, sends, offload, data)

    works = [work(stage) for stage in rank_stages(model, layout)]
    # Where all end together, as without gradients to send, the one that computes longest is told.
    works.insert(0, of_longest([each.stage.time(layer.total, ends) for each in works], works))
    longest = of_longest([jnp.where(each.stage.layers > 0.0, each.time, 0.0) for each in works], works)
    stage, sends, offload, data = longest.stage, longest.sends, longest.offload, longest.data
    time = longest.time + efficiencies.step_overhead
    exposed = _by_kind(exchanges, stage.layers * m, m, sends.exposed, offload.exposed, data.exposed, shown=True)
    sent = _by_kind(exchanges, stage.layers * m, m, sends.total, offload.total, data.total, shown=False)
    return _answer(
        model, layout, device, efficiencies, time, (longest.idle, longest.straggling), longest.parts, exposed, sent
    )


def _layer(
    layout: Layout,
    compute: LayerCompute,
    exchanges: dict[str, LayerExchange],
    overhead: Scalar,
    launching: Scalar,
) -> _Layer:
    """The passes with their waits; the host launches ahead unless it takes longer (`launching`)."""
    whole = compute.total
    full = layout.recomputed_share * whole.forward
    again = jnp.where(layout.recompute > 1.5, full, 0.0)
    again = again + jnp.where(layout.recompute == 1.0, layout.recomputed_share * compute.attention.forward, 0.0)
    forward = whole.forward + sum(each.forward for each in exchanges.values())
    backward = whole.backward + again + sum(each.backward for each in exchanges.values())
    device_time = forward + backward + whole.weight
    elapsed = partial_overlap(device_time, launching, as_float(HOST_SHOWS))
    elapsed = jnp.where(launching > 0.0, elapsed, device_time)
    alone = (whole.forward, whole.backward + again + whole.weight)
    return _Layer(forward, backward, whole.weight, alone, again, elapsed - device_time + overhead)


def _overhead(model: TrainingModel, layout: Layout, efficiencies: TrainingEfficiencies) -> Scalar:
    """Added to the average layer and micro-batch [s]."""
    experts = jnp.where(model.topk > 0.0, model.moe_layers / model.layers * model.experts / layout.expert, 0.0)
    return efficiencies.layer_overhead + experts * efficiencies.expert_overhead


def _idle(
    model: TrainingModel,
    layout: Layout,
    layer: _Layer,
    ends: Ends,
    stage: Stage,
    one: Scalar,
    waits: Scalar,
    data: DataExchange,
) -> Scalar:
    """Idle time of a stage: while it waits for the others, as the schedule fills it."""
    gathers = data.forward + data.backward
    times = stage_times(model, layout, layer.total, ends, waits + gathers)
    passes = tuple(stage.layers * each for each in (layer.forward, layer.backward, layer.weight))
    idle = idle_time(layout, times, one + gathers, passes, (data.forward, data.backward))
    return jnp.where(layout.pipeline > 1.0, idle, 0.0)


def _compute_parts(
    compute: LayerCompute,
    layer: _Layer,
    ends: Ends,
    stage: Stage,
    microbatches: Scalar,
    optimizer: Scalar,
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
        optimizer=optimizer,
        host=layers * layer.host + scheduling,
    )


def _by_kind(
    exchanges: dict[str, LayerExchange],
    layers: Scalar,
    microbatches: Scalar,
    sends: Scalar,
    offload: Scalar,
    data: Scalar,
    shown: bool,
) -> Communication:
    kinds = {name: layers * (each.forward + each.backward if shown else each.total) for name, each in exchanges.items()}
    return Communication(**kinds, pipeline=microbatches * sends, data=data, offload=microbatches * offload)


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
    idle, straggling = waits
    useful, issued = step_flops(model, layout)
    peak = device.peak_flops[layout.compute_format] * layout.world
    memory = stage_memory(model, layout, efficiencies.imbalance, efficiencies.reserved_memory)
    reason = layout_reasons(model, layout, device, memory.total)
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
