"""A question about one model as a point function: which task, which metrics, over arguments that can become axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.device import Device
from jaxperf.core.efficiency import LEVELS, Efficiencies, assumed_efficiencies
from jaxperf.core.feasible import sentences
from jaxperf.core.formats import CACHE_FORMATS, FORMATS, NumberFormat, format_name, number_format
from jaxperf.core.metric import MetricFacts, check_metrics
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.core.sustained import RATE_LEVELS, ROOFLINE, CalibratedDevice, sustained_efficiencies
from jaxperf.models.config import ModelConfig
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.host import Host, assumed_host
from jaxperf.models.layers import transformer
from jaxperf.serving.metrics import METRICS, TASK_LENGTHS, TASK_METRICS, TASKS, Metrics, with_intervals
from jaxperf.serving.reads import crosses, makes_tokens, own_tokens, unread
from jaxperf.serving.study_values import COUNTS, LENGTHS, MEDIA, checked_values
from jaxperf.sweeps import Axis, axis, stack
from jaxperf.sweeps.named import given_values, named_axes


@dataclass(frozen=True)
class Study:
    """What to ask of a model: `task` is "decode", "prefill" or "serve"; `launch` is "graph" or "eager"."""

    model: ModelConfig
    task: str
    metrics: tuple[str, ...]
    launch: str = "graph"

    def __post_init__(self) -> None:
        check_task(self.task)
        check_has_task(self.model, self.task)
        check_metrics(self.task, self.metrics, TASK_METRICS[self.task])
        assumed_host(self.launch)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names that can be an axis of this study."""
        given = makes_tokens(self.model) and (self.task != "decode" or crosses(self.model))
        media = (MEDIA,) if given else ()  # a decode step has them in its context, unless it reads them beside it
        return ("device", *COUNTS, *self.lengths, *media, "weights", "kv_cache", "routing_skew")

    @property
    def lengths(self) -> tuple[str, ...]:
        """The lengths of its task; none of a model that reads tokens of its own."""
        return () if own_tokens(self.model) else TASK_LENGTHS[self.task]

    @property
    def facts(self) -> dict[str, MetricFacts]:
        """What is said of each of its metrics."""
        return {name: METRICS[name] for name in self.metrics}

    @property
    def reasons(self) -> str:
        """Whose bits the metric `reason` holds."""
        return "jaxperf.core.feasible.Reason"

    def why_not(self, bits: int) -> list[str]:
        """What the bits of a `reason` say, in plain words."""
        return sentences(bits)

    def asking(self, metrics: tuple[str, ...]) -> Study:
        """The same question about other metrics."""
        return dataclasses.replace(self, metrics=metrics)

    def at_level(self, level: str) -> Callable[..., Metrics]:
        """The pure function of one point at `level` of what is fitted or assumed: one of `RATE_LEVELS`.

        Its arguments are the study's parameters: `device` and formats as Modules, everything else as scalars; what is
        not given among counts and skew is 1. A plain `Device` has the assumed efficiencies.
        **Returns:** the study's metrics.
        """

        def point(**given: Any) -> Metrics:
            return self._metrics(assumed_at(level, self.launch), given)

        return point

    def point(self) -> Callable[..., Metrics]:
        """`at_level("nominal")`, with `NAME_lower` and `NAME_upper` beside each metric that has an interval."""
        every = jax.jit(self._metrics)  # traced once, as its levels are numbers

        def point(**given: Any) -> Metrics:
            found = {level: every(assumed_at(level, self.launch), given) for level in LEVELS}
            # JAX sorts mappings by key.
            return with_intervals({level: {name: each[name] for name in self.metrics} for level, each in found.items()})

        return point

    def _metrics(self, assumed: Assumed, given: Mapping[str, Any]) -> Metrics:
        """The metrics of one point, whose parameters are `given`."""
        rest: dict[str, Any] = {name: as_float(1.0) for name in (*COUNTS, "routing_skew")} | dict(given)
        batch = rest.pop("batch")
        rest = {name: as_float(1.0) for name in TASK_LENGTHS[self.task] if name not in self.lengths} | rest  # not read
        lengths = {name: rest.pop(name) for name in (*TASK_LENGTHS[self.task], MEDIA) if name in rest}
        found = TASKS[self.task](deployment_of(assumed, **rest), transformer(self.model), batch, **lengths)
        return {name: found[name] for name in self.metrics}

    def axes(self, values: Mapping[str, Any], devices: Mapping[str, Device | CalibratedDevice]) -> list[Axis]:
        """Axes from plain values, in the order given; what is not named gets one value, its default, at the end.

        **Arguments:** `values`: parameter -> a number, a name, or a sequence of them; a mapping of several parameters
        is a zip axis. `devices`: name -> device, the values of `device` in that order, calibrated all or none.
        **Raises:** `InputError` for an unknown parameter, one that the model does not read, or a value out of range.
        """
        self._check_lengths(values)
        defaults = {name: LENGTHS[name] for name in self.lengths}
        defaults |= {"weights": self.model.weight_format, "kv_cache": "bf16"}
        axes = named_axes(
            values,
            self.task,
            self.parameters,
            defaults,
            checked_values,
            lambda name, each: axis_of(name, each, devices),
        )
        check_varied(self.model, axes)
        return axes

    def _check_lengths(self, values: Mapping[str, Any]) -> None:
        """Raises `InputError` for a length of the task in a question about a model that has its own."""
        for name, _ in given_values(values):
            if name in TASK_LENGTHS[self.task] and (told := unread(self.model, name)):
                raise InputError(told)


def check_varied(model: ModelConfig, axes: Sequence[Axis]) -> None:
    """Raises `InputError` for an axis whose rows would all be alike; one value may be given for any model."""
    for each in axes:
        told = [unread(model, name) for name in each.labels]  # several of a zip axis
        if each.size > 1 and all(told):
            raise InputError(told[0])


def axis_of(name: str, values: Sequence[Any], devices: Mapping[str, Device | CalibratedDevice]) -> Axis:
    """The axis of one parameter from checked values; those of `device` are names in `devices`, or None for all."""
    if name == "device":
        names = list(devices) if list(values) == [None] else list(values)
        return axis(name, [devices[each] for each in names], names)
    if name == "weights":
        return weights_axis(values)
    if name == "kv_cache":
        return axis(name, [number_format(value) for value in values], values, argument="cache")
    return axis(name, values)


def default_metrics(task: str) -> tuple[str, ...]:
    """What a sweep of `task` reports where the user names no metrics. Raises `InputError` for an unknown task."""
    check_task(task)
    wanted = ("ttft", "tpot", "tokens_per_second", "memory", "limiter", "reason")
    return tuple(name for name in wanted if name in TASK_METRICS[task])


def check_task(task: str, allowed: Collection[str] = TASKS) -> None:
    """Raises `InputError` unless `task` is one of those allowed."""
    if task not in allowed:
        raise InputError(f"Unknown task '{task}'; allowed: {', '.join(allowed)}.{did_you_mean(task, allowed)}")


def check_has_task(model: ModelConfig, task: str) -> None:
    """Raises `InputError` where a model that is nothing but encoders is asked for more than its prefill."""
    if not model.layers and task != "prefill":
        raise InputError(
            f"{model.name} is an encoder: it generates no tokens, so it has no decode. Its prefill is timed by a sweep "
            "of task prefill."
        )


class Assumed(NamedTuple):
    """What a deployment assumes where nothing is fitted: host costs, links, and all efficiencies of a plain `Device`.
    `level`: index into `RATE_LEVELS` of what is fitted."""

    efficiencies: Efficiencies
    host: Host
    level: Int[Array, ""]


def assumed_at(level: str, launch: str) -> Assumed:
    """The shipped assumptions at a level of `RATE_LEVELS` for a launch mode; at the roofline they are the fast end."""
    fast = LEVELS[-1] if level == ROOFLINE else level
    index = jnp.asarray(RATE_LEVELS.index(level), jnp.int32)
    return Assumed(assumed_efficiencies(fast), assumed_host(launch, fast), index)


def deployment_of(
    assumed: Assumed,
    *,
    device: Device | CalibratedDevice,
    weights: NumberFormat,
    activations: NumberFormat,
    cache: NumberFormat,
    routing_skew: Scalar | float = 1.0,
    **layout: Scalar,
) -> Deployment:
    """The deployment of one point: with the fitted efficiencies of a `CalibratedDevice`, else the assumed ones."""
    efficiencies = assumed.efficiencies
    if isinstance(device, CalibratedDevice):
        link, sustained = efficiencies.link, device.sustained
        efficiencies = sustained_efficiencies(sustained, assumed.level, link, weights, activations)
        device = device.device
    return Deployment(
        device=device,
        layout=Parallelism(**layout),
        weights=weights,
        activations=activations,
        cache=cache,
        efficiencies=efficiencies,
        host=assumed.host,
        routing_skew=routing_skew,
    )


def formats_of(weights: str, kv_cache: str) -> dict[str, NumberFormat]:
    """The three format arguments of a point function from two names; activations follow from the weights."""
    return {
        "weights": number_format(weights),
        "activations": number_format(FORMATS[format_name(weights)].activations),
        "cache": number_format(format_name(kv_cache, CACHE_FORMATS)),
    }


def weights_axis(names: Sequence[str]) -> Axis:
    """Weight formats, each with the activations that go with it.

    Activations are an argument of their own: attention depends on them alone, so a sweep over weight formats does
    not repeat it.
    """
    formats = [formats_of(name, "bf16") for name in names]
    arguments = {key: stack(key, [each[key] for each in formats]) for key in ("weights", "activations")}
    return Axis("weights", arguments, {"weights": np.array(names)})
