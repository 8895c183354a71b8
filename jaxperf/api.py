"""The Python face: steps of a model as pure functions of one point, and sweeps over them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwspecs.errors import InputError
from jaxperf.core.cost import Limiter
from jaxperf.core.device import Device
from jaxperf.core.feasible import Reason
from jaxperf.core.numerics import as_float, as_optional_float
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.models.config import ModelConfig, show
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.step import StepCost, decode_cost, prefill_cost
from jaxperf.plain_call import PointCost, deployed, device_of, load_device, load_devices
from jaxperf.serving.phases import ServingCost, serving_cost
from jaxperf.serving.study import axis_of, check_varied
from jaxperf.serving.study_values import COUNTS, LENGTHS, checked_values, in_range
from jaxperf.sweeps import Sweep, axis

if TYPE_CHECKING:
    import xarray

__all__ = ["decode_step", "load_device", "load_devices", "prefill_step", "serve_step", "sweep"]

COST_FIELDS = ("time", "memory", "limiter", "reason")  # that a sweep keeps of the cost of a step
FIXED = ("level", "activations")  # arguments of a step that no axis stands for
Step = Callable[..., StepCost]


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
        return decode_cost(deployment, network, as_float(batch), as_float(context), as_optional_float(source))

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
        lengths = as_float(prompt), as_float(prefix), as_optional_float(media_tokens), as_optional_float(outputs)
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
        lengths = as_float(prompt), as_float(output), as_optional_float(media_tokens)
        return serving_cost(deployment, network, as_float(batch), *lengths)

    return deployed(model, cost, launch)


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
        found = {str(name): device_of(each) for name, each in value.items()}
    else:
        entries = list(value) if isinstance(value, list | tuple) else [value]
        found = {each if isinstance(each, str) else str(place): device_of(each) for place, each in enumerate(entries)}
    if len({isinstance(each, CalibratedDevice) for each in found.values()}) > 1:
        raise InputError(
            "'device' mixes calibrated devices (names, jaxperf.load_device) with plain ones; give one kind: "
            "calibrated.replace(...) changes the facts of a calibrated one."
        )
    return found
