"""A question about training steps as a point function: which metrics, over arguments that can be axes of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwspecs.errors import InputError
from jaxperf.core.device import Device
from jaxperf.core.metric import MetricFacts, check_metrics
from jaxperf.core.numerics import as_float, floor_div
from jaxperf.models.config import ModelConfig
from jaxperf.sweeps import Axis, axis
from jaxperf.sweeps.named import given_values, named_axes
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.layout import Layout
from jaxperf.training.layout_checks import reason_sentences
from jaxperf.training.model_build import training_model
from jaxperf.training.recompute import check_modules
from jaxperf.training.results import TrainingStep, interval_ends
from jaxperf.training.step import training_step
from jaxperf.training.study_axes import (
    DEFAULTS,
    FIELD_OF,
    FIELDS,
    HOST,
    NAMES,
    RECOMPUTED,
    SHARES,
    TASK,
    check_effects,
    checked_values,
    format_axis,
    modules_axis,
    names_axis,
)

METRICS = {
    "step_time": MetricFacts("s", "one training step of the global batch", True, "min"),
    "tokens_per_second": MetricFacts("1/s", "tokens of all devices per second", True, "max"),
    "tokens_per_second_per_device": MetricFacts("1/s", "tokens per second and device", True, "max"),
    "mfu": MetricFacts("1", "useful FLOP over the peak in the layers' format", True, "max"),
    "hfu": MetricFacts("1", "issued FLOP, recomputed ones too, over the same peak", True, "max"),
    "energy_per_token": MetricFacts("J", "thermal design power of all devices x time over tokens", True, "min"),
    "bubble_fraction": MetricFacts("1", "idle share of the busiest pipeline stage", False, "min"),
    "exposed_communication": MetricFacts("s", "communication of a step that compute does not hide", False, "min"),
    "memory": MetricFacts("B", "weights, states and activations on the fullest device", False, "min"),
    "offloaded_memory": MetricFacts("B", "what is offloaded, in the memory of the host, for one device", False, "min"),
    "memory_share": MetricFacts("1", "memory over that of the device", False, "min"),
    "num_devices": MetricFacts("1", "devices that the layout fills", False, "min"),
    "reason": MetricFacts("1", "why infeasible: bits of training.layout_checks.TrainingReason, 0: feasible", False),
}
DEFAULT_METRICS = ("step_time", "tokens_per_second_per_device", "mfu", "memory", "num_devices", "reason")


class RatedDevice(eqx.Module):
    """A device with what software reaches of it in each of F number formats: `efficiencies`, and the half-`width` of
    the logarithm of a step's 90 % interval."""

    device: Device
    efficiencies: TrainingEfficiencies
    width: Float[Array, "*batch F"]


@dataclass(frozen=True)
class TrainingStudy:
    """What to ask of the training of a model; `task` and `facts` as of a `serving.study.Study`."""

    model: ModelConfig
    metrics: tuple[str, ...] = DEFAULT_METRICS
    task: str = TASK

    def __post_init__(self) -> None:
        check_metrics(TASK, self.metrics, METRICS)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names that can be an axis."""
        return ("device", *FIELDS, "world_size", *NAMES, *SHARES, HOST, RECOMPUTED, "dtype")

    @property
    def facts(self) -> dict[str, MetricFacts]:
        """What is said of each of its metrics."""
        return {name: METRICS[name] for name in self.metrics}

    @property
    def reasons(self) -> str:
        """Whose bits the metric `reason` holds."""
        return "jaxperf.training.layout_checks.TrainingReason"

    def why_not(self, bits: int) -> list[str]:
        """What the bits of a `reason` say, in plain words."""
        return reason_sentences(bits)

    def asking(self, metrics: tuple[str, ...]) -> TrainingStudy:
        """The same question about other metrics."""
        return dataclasses.replace(self, metrics=metrics)

    def axes(self, values: Mapping[str, Any], devices: Mapping[str, RatedDevice | float]) -> list[Axis]:
        """Axes from plain values; see `sweeps.named.named_axes`. `devices`: by name, rated in the formats of `dtype`
        in the order of their first mention; where the values are only to be checked, numbers stand for them."""

        def axis_of(name: str, entries: list[Any]) -> Axis:
            if name == "device":
                return axis(name, [devices[each] for each in entries], entries)
            if name == "dtype":
                return format_axis(entries)
            if name == RECOMPUTED:
                return modules_axis(entries)
            return names_axis(name, entries) if name in NAMES else axis(name, entries)

        given, defaults = dict(given_values(values)), dict(DEFAULTS)
        if "world_size" in given:
            if "data_parallel" in given:
                raise InputError(
                    "'world_size' and 'data_parallel' are both given; one follows from the other, give one."
                )
            del defaults["data_parallel"]
        check_effects(given)
        if RECOMPUTED in given:
            modules = " ".join(checked_values(RECOMPUTED, given[RECOMPUTED])).split()
            check_modules(RECOMPUTED, self.model.name, training_model(self.model), modules)
            defaults["recompute"] = "selective"
        return named_axes(values, TASK, self.parameters, defaults, checked_values, axis_of)

    def point(self) -> Callable[..., dict[str, Array]]:
        """The pure function of one point: `device` a `RatedDevice`, `formats` and `place` of the number format,
        `modules` that are computed again, the rest scalars.
        **Returns:** the metrics, with `NAME_lower` and `NAME_upper` where they have an interval."""
        model = training_model(self.model)

        def point(
            device: RatedDevice,
            formats: Mapping[str, Array],
            place: Int[Array, ""],
            modules: Mapping[str, Array] | None = None,
            **given: Array,
        ) -> dict[str, Array]:
            efficiencies = jax.tree.map(lambda leaf: leaf[place], device.efficiencies)
            layout = Layout(**formats, **(modules or {}), **_fields(given), deduplicate=1.0)
            step = training_step(model, layout, device.device, efficiencies)
            ends = interval_ends(step.mfu, jnp.exp(device.width[place]))
            return self._with_ends(_metrics(step, layout, device.device), *ends)

        return point

    def _with_ends(self, found: Mapping[str, Array], shortest: Array, longest: Array) -> dict[str, Array]:
        """The metrics asked for; the interval of a step time is a factor either way, and so that of a rate."""
        columns = {}
        for name in self.metrics:
            columns[name] = found[name]
            if METRICS[name].interval:
                rate = METRICS[name].better == "max"
                ends = (1.0 / longest, 1.0 / shortest) if rate else (shortest, longest)
                columns |= {f"{name}_{end}": found[name] * by for end, by in zip(("lower", "upper"), ends, strict=True)}
        return columns


def _fields(given: Mapping[str, Array]) -> dict[str, Array]:
    """Fields of a `Layout` from the names of axes; the devices there are go to data parallelism."""
    fields = {FIELD_OF[name]: value for name, value in given.items() if name != "world_size"}
    if "world_size" in given:
        others = fields["tensor"] * fields["context"] * fields["pipeline"]
        data = jnp.maximum(floor_div(given["world_size"], others), 1.0)
        fields |= {"devices": given["world_size"], "data": data}
    return fields


def _metrics(step: TrainingStep, layout: Layout, device: Device) -> dict[str, Array]:
    """All of `METRICS` but their ends; times and rates are NaN where the step cannot run."""
    feasible, tokens = step.feasible, layout.global_batch * layout.sequence
    rates = {
        "tokens_per_second": step.tokens_per_second,
        "tokens_per_second_per_device": step.tokens_per_second / layout.world,
        "mfu": step.mfu,
        "hfu": step.hfu,
        # As in serving. `step.energy` is a lower bound where a device's energies are known and TDP where they are not.
        "energy_per_token": device.tdp * layout.world * step.time / tokens,
        "bubble_fraction": step.bubble_fraction,
        "exposed_communication": sum(jax.tree.leaves(step.exposed), as_float(0.0)),
    }
    return {
        "step_time": step.time,
        **{name: jnp.where(feasible, value, jnp.nan) for name, value in rates.items()},
        "memory": step.memory.total,
        "offloaded_memory": step.memory.host,
        "memory_share": step.memory.total / device.memory_capacity,
        "num_devices": layout.world,
        "reason": step.reason,
    }
