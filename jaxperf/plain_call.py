"""A step as a function of plain arguments: names of devices and formats, and one number each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.device import Device
from jaxperf.core.formats import CACHE_FORMATS, FORMATS, NumberFormat, format_name, number_format
from jaxperf.core.numerics import one_real
from jaxperf.core.sustained import RATE_LEVELS, CalibratedDevice
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.models.config import ModelConfig, check_model, show
from jaxperf.models.deployment import Parallelism
from jaxperf.models.host import assumed_host
from jaxperf.models.layers import transformer
from jaxperf.serving.reads import unread
from jaxperf.serving.study import Assumed, assumed_at, deployment_of
from jaxperf.sweeps.once import host_first

OPTIONAL = ("source", "media_tokens", "outputs")
LAYOUT_NAMES = tuple(Parallelism.__dataclass_fields__)
PointCost = Callable[..., Any]


def deployed(model: ModelConfig, cost: PointCost, launch: str) -> PointCost:
    """`cost` with its deployment built from plain arguments.

    **Returns:** a function of a device and, by keyword: `tensor_parallel`, `pipeline_parallel`, `expert_parallel`,
    `data_parallel` (1 each), `weights` (a format name, default that of the model's weights as in `jaxperf estimate`),
    `activations` (default those that go with the weights), `kv_cache` (default bf16), `routing_skew` (1), `level` of
    the efficiencies ("low", "nominal", "high" or "roofline"), and what `cost` itself takes. Numbers may be traced. A
    `CalibratedDevice` (`load_device`, or a name in its place) has the fitted efficiencies, a plain `Device` the assumed
    ones. It raises `InputError` for what is none of these. The first calls are evaluated on the host; one that is
    called often, or of traced numbers, is compiled. It also refuses a length, `source`, `media_tokens` or `outputs`
    that the model does not read.
    """
    check_model(model)
    network = transformer(model)  # refuses a kind of layer that is not timed
    assumed_host(launch)  # refuses an unknown mode here, not at the first call
    own = tuple(inspect.signature(cost).parameters)[2:]
    idle = {name: told for name in own if (told := unread(model, name))}
    allowed = (*LAYOUT_NAMES, *own, "weights", "activations", "kv_cache", "routing_skew", "level")

    @host_first
    @jax.jit
    def evaluate(assumed: Assumed, placed: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        return cost(deployment_of(assumed, **placed), network, **arguments)

    def step(
        device: str | Device | CalibratedDevice,
        *,
        weights: str | NumberFormat | None = None,
        activations: str | NumberFormat | None = None,
        kv_cache: str | NumberFormat = "bf16",
        level: str = "nominal",
        routing_skew: Any = 1.0,
        **given: Any,
    ) -> Any:
        _check_level(level)
        for name in given:
            if name not in (*LAYOUT_NAMES, *own):
                hint = did_you_mean(name, allowed)
                raise InputError(f"This step takes no '{name}'; allowed: device, {', '.join(allowed)}.{hint}")
            if given[name] is not None and name in idle:
                raise InputError(idle[name])
        given = {name: _scalar(name, value) for name, value in given.items()}
        routing_skew = _scalar("routing_skew", routing_skew)
        layout = {name: given.pop(name) for name in LAYOUT_NAMES if name in given}
        weights = model.weight_format if weights is None else weights
        if activations is None:
            activations = FORMATS[format_name(weights)].activations if isinstance(weights, str) else "bf16"
        placed = {
            "device": device_of(device),
            "weights": _format(weights, FORMATS),
            "activations": _format(activations, FORMATS),
            "cache": _format(kv_cache, CACHE_FORMATS),
            "routing_skew": routing_skew,
        }
        return evaluate(assumed_at(level, launch), placed | layout, given)

    step.model = model  # type: ignore[attr-defined]  # what `sweep` asks whether an axis changes anything of
    return step


def _scalar(name: str, value: Any) -> Any:
    """`one_real` of it, or None where it may be left out. Raises `InputError` for anything else."""
    found = one_real(value)
    if found is not None or (value is None and name in OPTIONAL):
        return found
    raise InputError(
        f"'{name}' is {show(value)}; a step is a function of one point, so it must be one number. jaxperf.sweep takes "
        "several, and so does jax.vmap."
    )


def _format(value: Any, allowed: Collection[str]) -> NumberFormat:
    return value if isinstance(value, NumberFormat) else number_format(format_name(value, allowed))


def _check_level(level: str) -> None:
    """Raises `InputError` unless `level` is one of `RATE_LEVELS`."""
    if level not in RATE_LEVELS:
        hint = did_you_mean(str(level), RATE_LEVELS)
        raise InputError(f"Unknown level {level!r}; allowed: {', '.join(RATE_LEVELS)}.{hint}")


def load_device(
    name: str, directories: Sequence[str | Path] = (), params: str | Path | None = None
) -> CalibratedDevice:
    """The device of that name, alias or TOML file, with what it sustains by the parameters at `params` or the shipped.

    **Raises:** `InputError` with the nearest names, or for parameters that cannot be read.
    """
    return calibration_of(hwspecs.load(name, directories), load_sustained_table(params)).calibrated


def load_devices(
    *names: str, directories: Sequence[str | Path] = (), params: str | Path | None = None
) -> tuple[CalibratedDevice, ...]:
    """Several devices in the order of their names; raises `InputError` as `load_device`."""
    table = load_sustained_table(params)
    return tuple(calibration_of(hwspecs.load(name, directories), table).calibrated for name in names)


def device_of(value: Any) -> Device | CalibratedDevice:
    """A device, itself or by its name. Raises `InputError` for what is neither."""
    if isinstance(value, str):
        return load_device(value)
    if not isinstance(value, Device | CalibratedDevice):
        raise InputError(f"'device' holds a {type(value).__name__}; give names, devices or a mapping of names to them.")
    return value
