"""The time of every operation of a graph on a device, from the fitted kernel models."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxperf.report.operations import Price

if TYPE_CHECKING:
    import numpy as np

    from calibration.kernels.parameters import Parameters
    from jaxperf.models.graph import Op

MICRO = 1e-6
TIMES = {"time": "predicted_us", "lower": "lower_us", "upper": "upper_us", "roofline": "roofline_us"}
INSTEAD = {"tf32": ("tf32", "fp32", "bf16"), "fp32": ("fp32", "bf16")}
# The word by which the fit tells an operation apart within its family and format, where it needs one.
WORDS: Mapping[tuple[str, str], str] = {
    ("gemm", "fp32"): "linear",
    ("bmm", "fp32"): "bmm",
    ("convolution", "fp32"): "conv",
    ("softmax", "fp32"): "softmax",
    ("softmax", "fp16"): "softmax",
    ("norm", "fp32"): "ln",
}


UNTIMED = Price(0.0, 0.0, 0.0, 0.0, 0.0, "", "", "", "not timed")


def price(
    ops: Iterable[Op], device: str, parameters: Parameters, framework: str = "", directories: Sequence[str] = ()
) -> dict[tuple[Any, ...], Price]:
    """The price of every distinct operation on a device, by `Op.key`; NaN where no model has its format there."""
    import hwspecs

    peaks = hwspecs.load(device, directories).peak_flops
    distinct = {op.key: op for op in ops}
    families: dict[str, list[Op]] = {}
    found: dict[tuple[Any, ...], Price] = {}
    for op in distinct.values():
        if op.family == "none":
            found[op.key] = UNTIMED
        else:
            families.setdefault("elementwise" if op.family == "memory" else op.family, []).append(op)
    for family, members in families.items():
        able = [_as_multiplied(op, peaks) for op in members]
        prices = _family(family, able, device, parameters, framework, directories)
        found.update(zip((op.key for op in members), prices, strict=True))
    return found


def _as_multiplied(op: Op, peaks: Container[str]) -> Op:
    """A product in the format the device has for it: TF32 where that is asked for and there is such, else fp32, on a
    TPU bf16 (`jax.lax.Precision`)."""
    from jaxperf.models.graph_steps import DENSE

    choices = INSTEAD.get(op.dtype, ()) if op.family in DENSE else ()
    return dataclasses.replace(op, dtype=next((each for each in choices if each in peaks), op.dtype))


def _family(
    family: str,
    ops: Sequence[Op],
    device: str,
    parameters: Parameters,
    framework: str,
    directories: Sequence[str],
) -> list[Price]:
    import numpy as np

    import hwspecs
    from calibration.composition.kernel_times import framework_on, table_shape, without_limit
    from calibration.datasets.schema import KernelTable
    from calibration.kernels.predict import predict_table
    from jaxperf.models.graph_steps import DENSE

    shapes = [table_shape(op) for op in ops]
    fill = lambda text: np.full(len(ops), text, dtype=object)  # noqa: E731
    dtypes = np.array(["fp32" if op.family == "memory" else op.dtype for op in ops], dtype=object)
    words = np.array([WORDS.get((family, op.dtype), op.note.lower()) for op in ops], dtype=object)
    table = KernelTable(
        family,
        np.arange(len(ops)),
        fill(device),
        fill(framework_on(hwspecs.load(device, directories), family, framework, parameters)),
        fill(""),
        fill(""),
        dtypes,
        dtypes if family.startswith("attention") else fill(""),
        {name: np.array([shape[name] for shape in shapes]) for name in shapes[0]},
        None,
        np.zeros(len(ops), np.int64),
        {"op": words},
    )
    columns = predict_table(table, parameters, directories)
    free = predict_table(table, without_limit(parameters), directories) if family in DENSE else columns
    return [_price(columns, free["predicted_us"], row, op.dtype) for row, op in enumerate(ops)]


def _price(columns: Mapping[str, np.ndarray], unlimited: np.ndarray, row: int, dtype: str) -> Price:
    return Price(
        **{name: MICRO * float(columns[column][row]) for name, column in TIMES.items()},
        unlimited=MICRO * float(unlimited[row]),
        dtype=dtype,
        limiter=str(columns["limiter"][row]),
        tier=str(columns["tier"][row]),
        reason=str(columns["reason"][row]),
    )
