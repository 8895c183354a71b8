"""Isolated times of operations on devices, from fitted kernel parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import numpy as np

import hwspecs
from calibration.datasets.schema import KernelTable, Read
from calibration.kernels.demand import STREAMS
from calibration.kernels.family import FittedFamily
from calibration.kernels.parameters import Parameters
from calibration.kernels.predict import predict_table
from hwspecs import DeviceSpec
from jaxperf.core.numerics import as_float
from jaxperf.models.graph import Op
from jaxperf.models.graph_steps import DENSE

MICRO = 1e-6
NINETY = 1.645  # standard deviations in half of a 90 % interval of a normal distribution
ITEMSIZE = 4.0  # plain movement is predicted as that of fp32 elements [byte]
ROW = 1024.0  # elements of a row of what has no rows of its own
EMPTY = Op("elementwise", {"elements_in": 1.0, "elements_out": 1.0, "rows": 1.0}, note="add")  # nothing but a launch
TIMES = ("predicted", "lower", "upper", "roofline")
ROCM = " rocm"  # added to the framework of kernels that stream (`framework_on`)
NO_LIMIT = -60.0  # of the logarithm of a law's energy: the power limit is as good as infinite


@dataclass(frozen=True)
class KernelTimes:
    """Times of K operations on D devices [D, K] in seconds, `unlimited` without the limit of power; `tier` [D, K], the
    word of `calibration.kernels.predict`; `empty` [D]: the time of a kernel that does nothing, 0 where there is no
    model of it."""

    predicted: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    roofline: np.ndarray
    unlimited: np.ndarray
    tier: np.ndarray
    empty: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of the logarithm that the 90 % intervals mean [log 1]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log(self.upper / self.predicted) / NINETY


def kernel_times(
    ops: Sequence[Op],
    devices: Sequence[str],
    parameters: Parameters,
    framework: str = "torch",
    directories: Sequence[str] = (),
) -> KernelTimes:
    """Times of every operation on every device, canonical names of hwspecs. NaN where there is no model of it."""
    ops = [*ops, EMPTY]
    shape = (len(devices), len(ops))
    found = {name: np.full(shape, np.nan) for name in (*TIMES, "unlimited")}
    tier = np.full(shape, "", dtype=object)
    free = without_limit(parameters)
    specs = [hwspecs.load(device, directories) for device in devices]
    kinds = [(_family(op), _unmasked(op)) for op in ops]
    for family, unmasked in dict.fromkeys(kinds):
        places = np.array([place for place, kind in enumerate(kinds) if kind == (family, unmasked)])
        own, unlimited = (by_law(each) if unmasked else each for each in (parameters, free))
        named = [framework_on(spec, family, framework, parameters) for spec in specs]
        table = _table(family, [ops[place] for place in places], devices, named)
        columns = predict_table(table, own, directories)
        clocked = predict_table(table, unlimited, directories) if family in DENSE else columns
        block = np.ix_(np.arange(len(devices)), places)
        for name in TIMES:
            found[name][block] = MICRO * columns[f"{name}_us"].reshape(len(devices), len(places))
        found["unlimited"][block] = MICRO * clocked["predicted_us"].reshape(len(devices), len(places))
        tier[block] = columns["tier"].reshape(len(devices), len(places))
    empty = np.nan_to_num(found["predicted"][:, -1])
    return KernelTimes(**{name: column[:, :-1] for name, column in found.items()}, tier=tier[:, :-1], empty=empty)


def without_limit(parameters: Parameters) -> Parameters:
    """The parameters for devices without a limit of power."""

    def free(fitted: FittedFamily) -> FittedFamily:
        model = eqx.tree_at(lambda tree: tree.law.power, fitted.model, as_float(NO_LIMIT))
        return dataclasses.replace(fitted, model=model)

    return Parameters({name: free(fitted) for name, fitted in parameters.families.items()}, parameters.card)


def by_law(parameters: Parameters) -> Parameters:
    """The parameters with attention over many queries by its law: without the learned correction, and without what
    rows of a device add to it."""
    name = "attention_prefill"
    if name not in parameters.families:
        return parameters
    fitted = parameters.families[name]
    alone = dataclasses.replace(fitted, model=fitted.model.uncorrected(), local={})
    return Parameters({**parameters.families, name: alone}, parameters.card)


def nameless(read: Read, directories: Sequence[str] = (), parameters: Parameters | None = None) -> Read:
    """The tables without the names and versions of their kernels: which one a library chooses is known only after the
    measurement, so that nobody can ask for it in a graph. Frameworks are spelled by `framework_on`."""
    registry = hwspecs.open_registry(list(directories))
    return dataclasses.replace(read, tables=tuple(_nameless(table, registry, parameters) for table in read.tables))


def _nameless(table: KernelTable, registry: hwspecs.Registry, parameters: Parameters | None) -> KernelTable:
    empty = np.full(len(table), "", dtype=object)
    bare = dataclasses.replace(table, kernel=empty, version=empty)
    if table.family not in STREAMS:
        return bare
    framework, devices = np.array(table.framework, dtype=object), np.asarray(table.device).astype(str)
    for device in np.unique(devices[devices != ""]).tolist():
        own, spec = devices == device, registry.load(device)
        framework[own] = [framework_on(spec, table.family, name, parameters) for name in framework[own]]
    return dataclasses.replace(bare, framework=framework)


def framework_on(spec: DeviceSpec, family: str, framework: str, parameters: Parameters | None = None) -> str:
    """The framework of kernels that stream with how it is built, which their share of the bandwidth depends on and
    which is known before a measurement.

    **Arguments:** `parameters`: that are to predict the kernels; those whose family knows the plain name alone, as they
    were fitted on tables that are not `nameless`, get that.
    """
    named = framework + ROCM if spec.vendor.lower() == "amd" else framework
    if parameters is None:
        return named if family in STREAMS else framework
    fitted = parameters.families.get(family)
    return named if fitted is not None and named in fitted.names.known["framework"] else framework


def _family(op: Op) -> str:
    return "elementwise" if op.family == "memory" else op.family


def _unmasked(op: Op) -> bool:
    """Whether every query sees every key, which a prefix stands for (`jaxperf.models.workloads.kernels.attention`).

    No such kernel was measured, and the correction that was learned of masks says nothing of it.
    """
    return op.shape.get("prefix", 0.0) > 0.0


def table_shape(op: Op) -> Mapping[str, float]:
    """The shape in the columns of its family's table; what moves bytes counts as an elementwise operation on fp32."""
    if op.family != "memory":
        return op.shape
    read, written = (max(op.shape[name] / ITEMSIZE, 1.0) for name in ("bytes_in", "bytes_out"))
    return {"elements_in": read, "elements_out": written, "rows": max(written / ROW, 1.0)}


def _table(family: str, ops: Sequence[Op], devices: Sequence[str], frameworks: Sequence[str]) -> KernelTable:
    """One row a device, with its framework, and operation; devices slowest."""
    rows = len(ops) * len(devices)
    shapes = [table_shape(op) for op in ops]
    empty = np.full(rows, "", dtype=object)
    text = lambda values: np.tile(np.array(values, dtype=object), len(devices))  # noqa: E731
    dtype = text(["fp32" if op.family == "memory" else op.dtype for op in ops])
    return KernelTable(
        family=family,
        row=np.arange(rows),
        device=np.repeat(np.array(devices, dtype=object), len(ops)),
        framework=np.repeat(np.array(frameworks, dtype=object), len(ops)),
        version=empty,
        kernel=empty,
        dtype=dtype,
        cache=dtype if family.startswith("attention") else empty,
        shape={name: np.tile([max(shape[name], 0.0) for shape in shapes], len(devices)) for name in shapes[0]},
        latency=None,
        flag=np.zeros(rows, np.int64),
        text={"op": text(["" if op.family == "memory" else op.note for op in ops])},
    )
