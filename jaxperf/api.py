"""The Python face: steps of a model as pure functions of one point, and sweeps over them."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.cost import Limiter
from jaxperf.core.device import Device
from jaxperf.core.feasible import Reason
from jaxperf.core.formats import CACHE_FORMATS, FORMATS, NumberFormat, format_name, number_format
from jaxperf.core.numerics import as_float, one_real
from jaxperf.core.sustained import RATE_LEVELS, CalibratedDevice
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.models.config import ModelConfig, check_model, show
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.host import assumed_host
from jaxperf.models.layers import Transformer, transformer
from jaxperf.models.step import StepCost, decode_cost, prefill_cost
from jaxperf.serving.phases import ServingCost, serving_cost
from jaxperf.serving.reads import unread
from jaxperf.serving.study import Assumed, assumed_at, axis_of, check_varied, deployment_of
from jaxperf.serving.study_values import COUNTS, LENGTHS, checked_values, in_range
from jaxperf.sweeps import Sweep, axis
from jaxperf.sweeps.once import host_first

if TYPE_CHECKING:
    import xarray

OPTIONAL = ("source", "media_tokens", "outputs")
COST_FIELDS = ("time", "memory", "limiter", "reason")  # that a sweep keeps of the cost of a step
FIXED = ("level", "activations")  # arguments of a step that no axis stands for
LAYOUT_NAMES = tuple(Parallelism.__dataclass_fields__)
Step = Callable[..., StepCost]
PointCost = Callable[..., Any]


def decode_step(model: ModelConfig, launch: str = "graph") -> Step:
    """The decode step of a model as a pure, differentiable function of one point.

    **Returns:** `step(device, *, batch, context, tensor_parallel, ..., weights, kv_cache, level) -> StepCost`; see
    `deployed` for the arguments that all steps share. `context` is the tokens of a sequence, the new one included;
    `source` the tokens of an encoder that it reads by cross-attention, see `decode_cost`. Times are in seconds.
    **Raises:** `InputError` for a kind of layer that is not timed or an unknown `launch`; the step for a name, a
    format or an argument that is not known, and for what is not one number.
    """

    def cost(
        deployment: Deployment, network: Transformer, *, batch: Any = 1.0, context: Any = 2048.0, source: Any = None
    ) -> StepCost:
        return decode_cost(deployment, network, as_float(batch), as_float(context), _optional(source))

    return deployed(model, cost, launch)


def prefill_step(model: ModelConfig, launch: str = "graph") -> Step:
    """The prefill of `batch` prompts of `prompt` tokens with `prefix` cached ones each; otherwise as `decode_step`.

    `media_tokens` of each prompt come from images or sound; where it is not given these encoders stay idle. `outputs`
    positions of each prompt have logits, as where its log-probabilities are asked; the last alone where not given.
    Raises `InputError` as `decode_step`.
    """

    def cost(
        deployment: Deployment,
        network: Transformer,
        *,
        batch: Any = 1.0,
        prompt: Any = 2048.0,
        prefix: Any = 0.0,
        media_tokens: Any = None,
        outputs: Any = None,
    ) -> StepCost:
        lengths = as_float(prompt), as_float(prefix), _optional(media_tokens), _optional(outputs)
        return prefill_cost(deployment, network, as_float(batch), *lengths)

    return deployed(model, cost, launch)


def serve_step(model: ModelConfig, launch: str = "graph") -> Callable[..., ServingCost]:
    """Steady state with `batch` requests of `prompt` tokens in and `output` out; otherwise as `prefill_step`.

    **Returns:** `step(...) -> ServingCost`: TTFT and TPOT [s], tokens a second [1/s], memory [byte]. Raises
    `InputError` as `decode_step`.
    """

    def cost(
        deployment: Deployment,
        network: Transformer,
        *,
        batch: Any = 1.0,
        prompt: Any = 2048.0,
        output: Any = 256.0,
        media_tokens: Any = None,
    ) -> ServingCost:
        lengths = as_float(prompt), as_float(output), _optional(media_tokens)
        return serving_cost(deployment, network, as_float(batch), *lengths)

    return deployed(model, cost, launch)


def _optional(number: Any) -> Any:
    return None if number is None else as_float(number)


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
        check_level(level)
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
            "device": _device(device),
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


def check_level(level: str) -> None:
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


def sweep(step: PointCost, **axes: Any) -> xarray.Dataset:
    """Evaluate a step over the product of named axes: one compile, labelled result.

    **Arguments:** `step`: from `decode_step` and its like, or any function of a `Device` and scalars whose result has
    the fields below. `axes`: argument -> one value or a sequence; `device` takes names, `Device`s, or a mapping of
    names to them; `weights` and `kv_cache` take format names. `level` and `activations` are not axes.
    **Returns:** an `xarray.Dataset` with `limiter`, `reason` (0: it runs), `memory` and the times of the step, in SI
    units; attributes name the units, and what the numbers of `limiter` and the bits of `reason` mean.
    **Raises:** `InputError` for bad axes, and for one of several values that change nothing of the step's model.
    """
    if not callable(step):
        raise InputError(
            f"'step' is {show(step)}; give a step, such as jaxperf.decode_step(jaxperf.load_model('gpt2'))."
        )
    if "device" not in axes:
        raise InputError("A sweep needs a device: device='h100-sxm', a list of names or devices, or a mapping.")
    built = [_axis(name, value) for name, value in axes.items()]
    if (model := getattr(step, "model", None)) is not None:
        check_varied(model, built)
    found = Sweep(lambda **given: summary(_formats_renamed(step, given)), built).dense().to_xarray(UNITS)
    for name, flags in FLAGS.items():
        found[name].attrs |= flags
    return found


def _flags(kind: type[enum.IntEnum] | type[enum.IntFlag], values: str) -> dict[str, Any]:
    """How the CF conventions say what the numbers of a variable mean."""
    words = {name.lower(): each.value for name, each in kind.__members__.items()}
    return {values: list(words.values()), "flag_meanings": " ".join(words)}


FLAGS = {"limiter": _flags(Limiter, "flag_values"), "reason": _flags(Reason, "flag_masks")}
UNITS = {"time": "s", "ttft": "s", "tpot": "s", "tokens_per_second": "1/s", "memory": "B", "context": "1"}


def summary(cost: StepCost | ServingCost) -> dict[str, jax.Array]:
    """The scalars of a cost that a sweep keeps. Raises `InputError` for what is no cost of a step."""
    if not isinstance(cost, ServingCost) and not all(hasattr(cost, name) for name in COST_FIELDS):
        raise InputError(
            f"The step that is swept gives a value of type {type(cost).__name__}; it must have "
            f"{', '.join(COST_FIELDS)}, as the cost of jaxperf.decode_step has. jax.vmap maps any other function."
        )
    if isinstance(cost, ServingCost):
        times = {"ttft": cost.ttft, "tpot": cost.tpot, "tokens_per_second": cost.tokens_per_second}
        return {**times, "memory": cost.memory.total, "limiter": cost.decode.limiter, "reason": cost.reason}
    return {"time": cost.time, "memory": cost.memory.total, "limiter": cost.limiter, "reason": cost.reason}


def _formats_renamed(step: PointCost, given: dict[str, Any]) -> Any:
    if "cache" in given:
        given = {**given, "kv_cache": given["cache"]}
        del given["cache"]
    return step(**given)


def _axis(name: str, value: Any) -> Any:
    if name == "device":
        devices = _named_devices(value)
        return axis(name, list(devices.values()), list(devices))
    if name in ("weights", "kv_cache"):
        return axis_of(name, checked_values(name, value), {})
    values: Any = value if isinstance(value, Sequence) or np.ndim(value) else [value]
    if name in FIXED and (isinstance(value, str) or any(isinstance(each, str) for each in values)):
        raise InputError(
            f"'{name}' is fixed for a sweep and cannot be an axis; sweep a function that has it, one for each value: "
            f"lambda device, **given: step(device, **{{**given, '{name}': ...}})."
        )
    if name in (*COUNTS, *LENGTHS, "routing_skew"):
        try:
            given = np.asarray(values)
        except ValueError:
            raise InputError(f"'{name}' holds lists of different lengths; give one number or a list of them.") from None
        extremes = [given.min(), given.max()] if given.dtype.kind in "if" and given.size else given.ravel()
        for each in extremes:
            in_range(name, each)
    return axis(name, values)


def _named_devices(value: Any) -> dict[str, Device | CalibratedDevice]:
    """Name -> device, from names, devices (numbered in order) or a mapping."""
    if isinstance(value, Mapping):
        found = {str(name): _device(each) for name, each in value.items()}
    else:
        entries = list(value) if isinstance(value, list | tuple) else [value]
        found = {entry if isinstance(entry, str) else str(index): _device(entry) for index, entry in enumerate(entries)}
    if len({isinstance(each, CalibratedDevice) for each in found.values()}) > 1:
        raise InputError(
            "'device' mixes calibrated devices (names, jaxperf.load_device) with plain ones; give one kind: "
            "calibrated.replace(...) changes the facts of a calibrated one."
        )
    return found


def _device(value: Any) -> Device | CalibratedDevice:
    if isinstance(value, str):
        return load_device(value)
    if not isinstance(value, Device | CalibratedDevice):
        raise InputError(f"'device' holds a {type(value).__name__}; give names, devices or a mapping of names to them.")
    return value
