"""One decode grid as both contenders take it: a jaxperf `Sweep`, and broadcastable arrays for the NumPy twin."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import numpy_decode as twin
from jaxperf.core.device import Device, device_from_spec
from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS, NumberFormat
from jaxperf.core.metric import column_units
from jaxperf.io.fleet import select_devices
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import Mlp, ModelConfig
from jaxperf.serving.study import Study
from jaxperf.sweeps import Axis, Sweep, linspace, powers

METRICS = ("tpot", "tokens_per_second", "memory", "reason")
MODEL = "llama-3.1-70b"  # Llama-3-70B, trained for the contexts of the grid
CACHE = "bf16"
LARGE = "all(memory >= 40 GB, memory_bandwidth >= 600 GB/s)"
FULL = {
    "tensor_parallel": (1, 2, 4, 8),
    "batch": powers(1, 512),
    "context": linspace(512, 131072, 256),
    "weights": ("bf16", "fp8", "int4"),
}
# The context last: it is the longest axis, which suits broadcasting (and costs jaxperf nothing).
ORDER = ("device", "tensor_parallel", "batch", "weights", "context")


@dataclass(frozen=True)
class Grid:
    """A product of devices and plain axis values; `order` is the order of the axes in the results."""

    model: ModelConfig
    devices: Mapping[str, Device]
    values: Mapping[str, Sequence[Any]]
    order: tuple[str, ...] = ORDER
    launch: str = "graph"

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(len(self.devices) if name == "device" else len(self.values[name]) for name in self.order)

    def sweep(self, metrics: Sequence[str] = METRICS, nominal: bool = True, **options: Any) -> Sweep:
        """The same grid as a jaxperf sweep of the task "decode", without the interval ends if `nominal`."""
        study = self._study(metrics)
        names = metrics if nominal else tuple(column_units(study.facts))
        return Sweep(only(study.point(), names), self._axes(study), **options)

    def results_alone(self, metrics: Sequence[str] = METRICS, **options: Any) -> Sweep:
        """A sweep of the same axes to results of the same types, each for one operation a point."""
        return Sweep(only(one_operation_each, metrics), self._axes(self._study(METRICS)), **options)

    def _study(self, metrics: Sequence[str]) -> Study:
        return Study(self.model, "decode", tuple(metrics), self.launch)

    def _axes(self, study: Study) -> list[Axis]:
        given = {name: list(self.devices) if name == "device" else self.values[name] for name in self.order}
        return study.axes(given, self.devices)


def only(point: Any, names: Sequence[str]) -> Any:
    """The point function with some of its metrics; what nobody asks for is never computed."""

    def selected(**given: Any) -> dict[str, Any]:
        metrics = point(**given)
        return {name: metrics[name] for name in names}

    return selected


def one_operation_each(
    device: Device, tensor_parallel: jax.Array, batch: jax.Array, context: jax.Array, weights: NumberFormat, **_: Any
) -> dict[str, jax.Array]:
    """Results named and typed as `METRICS`; all but the last operation of each are over four of the five axes."""
    rest = device.memory_bandwidth * tensor_parallel * batch * weights.itemsize
    reason = (rest > context).astype(jnp.int32)
    return dict(zip(METRICS, (rest + context, rest * context, rest - context, reason), strict=True))


def large_devices() -> dict[str, Device]:
    """The shipped devices that a 70 B model is asked about, by name."""
    return {name: device_from_spec(spec) for name, spec in select_devices(LARGE).items()}


def full_grid() -> Grid:
    """Those devices and more than a million points."""
    return Grid(load_model(MODEL), large_devices(), FULL)


@dataclass(frozen=True)
class TwinInputs:
    """Arguments of `numpy_decode.decode_step` for one grid."""

    model: twin.Model
    device: twin.Device
    formats: twin.Formats
    assumed: twin.Assumptions
    tensor_parallel: np.ndarray
    batch: np.ndarray
    context: np.ndarray

    def evaluate(self, metrics: Sequence[str] = METRICS) -> dict[str, np.ndarray]:
        """The metrics of every point, each over the axes that it depends on."""
        found = twin.decode_step(**self.__dict__)
        if "tokens_per_second" in metrics:
            found["tokens_per_second"] = self.batch / found["tpot"]
        return {name: found[name] for name in metrics}

    def rows(self, start: int, stop: int, axis: int = 0) -> TwinInputs:
        """The inputs of some of the devices."""
        cut = {name: np.take(value, range(start, stop), axis) for name, value in self.device.__dict__.items()}
        return replace(self, device=twin.Device(**cut))


def twin_inputs(grid: Grid, dtype: Any = np.float64) -> TwinInputs:
    """The twin's arrays for a grid, each with its own axes only."""
    rank = len(grid.order)

    def place(values: Any, *names: str) -> np.ndarray:
        shape = [1] * rank
        for length, name in zip(np.shape(values), names, strict=True):
            shape[grid.order.index(name)] = length
        return np.asarray(values, dtype).reshape(shape)

    facts = [FORMATS[name] for name in grid.values["weights"]]
    partners = [FORMATS[each.activations] for each in facts]
    if len(set(partners)) == 1:  # what a person would see: the activations do not depend on the weights
        partners = partners[:1]
    stacked = {
        name: np.stack([np.asarray(getattr(device, name)) for device in grid.devices.values()])
        for name in Device.__dataclass_fields__
    }
    by_format = [COMPUTE_FORMATS.index(each.compute) for each in facts]
    by_partner = [COMPUTE_FORMATS.index(each.compute) for each in partners]
    scalars = set(twin.Device.__dataclass_fields__) - {"peak_weights", "native", "peak_activations"}
    device = twin.Device(
        peak_weights=place(stacked["peak_flops"][:, by_format], "device", "weights"),
        native=place(stacked["native"][:, by_format], "device", "weights"),
        peak_activations=place(stacked["peak_flops"][:, by_partner], "device", "weights"),
        **{name: place(stacked[name], "device") for name in scalars},
    )
    formats = twin.Formats(
        weight=place([each.itemsize for each in facts], "weights"),
        operand=place([each.operand_itemsize for each in facts], "weights"),
        activation=place([each.itemsize for each in partners], "weights"),
        cache=place(FORMATS[CACHE].itemsize),
    )
    numbers = {name: place(grid.values[name], name) for name in ("tensor_parallel", "batch", "context")}
    return TwinInputs(twin_model(grid.model), device, formats, twin_assumptions(grid.launch), **numbers)


def twin_model(config: ModelConfig) -> twin.Model:
    """The widths of a model whose layers are all alike, rotary and dense."""
    (layer,) = set(config.layers)
    assert isinstance(layer.ffn, Mlp) and layer.mixer.rotary and layer.mixer.window is None
    return twin.Model(
        hidden=config.hidden,
        layers=len(config.layers),
        heads=layer.mixer.heads,
        kv_heads=layer.mixer.kv_heads,
        head_dim=layer.mixer.head_dim,
        intermediate=layer.ffn.intermediate,
        gates=int(layer.ffn.gated),
        vocabulary=config.vocabulary,
        tables=1 if config.tied_embeddings else 2,
        max_context=config.max_context or 2**62,
    )


def twin_assumptions(launch: str) -> twin.Assumptions:
    """The shipped nominal assumptions, read from their files."""

    def table(package: str, name: str) -> dict[str, Any]:
        return tomllib.loads(resources.files(package).joinpath(name).read_text())

    shares, host = table("jaxperf.core", "assumed_efficiencies.toml"), table("jaxperf.models", "assumed_host.toml")

    def pair(family: str) -> tuple[float, float]:
        return shares[family]["compute"]["nominal"], shares[family]["memory"]["nominal"]

    return twin.Assumptions(
        gemm=pair("gemm"),
        attention=pair("attention_decode"),
        stream=pair("elementwise"),
        link=shares["link"]["bandwidth"]["nominal"],
        launch_interval=host[launch]["launch_interval"]["nominal"],
        step_overhead=host[launch]["step_overhead"]["nominal"],
    )
