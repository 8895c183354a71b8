"""Predict every row of a table: time, interval, plain roofline, what limits it, and where the number comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.datasets.schema import KernelTable, Read
from calibration.fit import FittedFamily, rows_of
from calibration.inputs import Prepared, prepare
from calibration.intervals import UNKNOWN
from calibration.model import Inputs, KernelModel
from calibration.parameters import Parameters
from jaxperf.core.numerics import as_float

CHUNK = 2**16  # rows at once: features and hidden layers stay near the processor
MICRO = 1e6
LIMITERS = np.array(["compute", "memory", "latency"], dtype=object)


@dataclass(frozen=True)
class Predicted:
    """`columns` for all rows of the file, in its order, and `summary`: what a reader should know, one line each."""

    columns: dict[str, np.ndarray]
    summary: list[str]


def predict(read: Read, parameters: Parameters, directories: Sequence[str] = ()) -> Predicted:
    """Predict all rows of a table that was read.

    **Returns:** columns `predicted_us`, `lower_us`, `upper_us` (90 % interval), `roofline_us` [us], `limiter`, `tier`
    ("measured", "adapted", "transfer", "roofline", or "" without a prediction) and `reason`, all [rows of the file].
    """
    numbers = {name: np.full(read.rows, np.nan) for name in ("predicted_us", "lower_us", "upper_us", "roofline_us")}
    texts = {name: np.full(read.rows, "", dtype=object) for name in ("limiter", "tier", "reason")}
    texts["reason"][:] = "the row could not be read"
    for table in read.tables:
        found = predict_table(table, parameters, directories)
        for name, column in found.items():
            (numbers if name in numbers else texts)[name][table.row] = column
    return Predicted(numbers | texts, _summary(read, texts))


def predict_table(table: KernelTable, parameters: Parameters, directories: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The columns of one table, [rows of the table]."""
    rows = len(table)
    found: dict[str, np.ndarray] = {
        name: np.full(rows, np.nan) for name in ("predicted_us", "lower_us", "upper_us", "roofline_us")
    }
    found |= {name: np.full(rows, "", dtype=object) for name in ("limiter", "tier", "reason")}
    known = np.flatnonzero(table.device != "")
    found["reason"][table.device == ""] = "the device is unknown or has no specification"
    if not len(known):
        return found
    data = prepare(table.take(known), directories)
    fitted = parameters.families.get(table.family)
    columns = _roofline(data) if fitted is None else _fitted(fitted, data, parameters)
    usable = data.usable
    for name, column in columns.items():
        found[name][known[usable]] = column[usable]
    found["reason"][known[~usable]] = f"no model of {table.family} in this format on this device"
    return found


def _roofline(data: Prepared) -> dict[str, np.ndarray]:
    """Without parameters of the family: the plain roofline, a lower bound rather than an estimate."""
    time = data.roofline * MICRO
    bound = np.where(data.demand.compute > data.demand.memory, 0, 1)
    rows = len(time)
    return {
        "predicted_us": time,
        "lower_us": time,
        "upper_us": time * np.exp(UNKNOWN[1]),
        "roofline_us": time,
        "limiter": LIMITERS[bound],
        "tier": np.full(rows, "roofline", dtype=object),
        "reason": np.full(rows, f"no fitted parameters of {data.table.family}", dtype=object),
    }


def _fitted(fitted: FittedFamily, data: Prepared, parameters: Parameters) -> dict[str, np.ndarray]:
    x = data.inputs(fitted.names)
    log_time, excess, limiter = _evaluate(fitted.model, x)
    cell = np.asarray(x.levels["cell"])
    seen = cell < len(fitted.names.known["cell"])
    width = fitted.spread.half_width(data.spelled["cell"], seen, excess)
    tier = np.where(seen, "measured", "transfer").astype(object)
    adapted = set(parameters.card.get("adapted", {}).get(fitted.family, ()))
    if adapted:
        tier[np.isin(data.spelled["cell"].astype(str), list(adapted))] = "adapted"
    return {
        "predicted_us": np.exp(log_time) * MICRO,
        "lower_us": np.exp(log_time - width) * MICRO,
        "upper_us": np.exp(log_time + width) * MICRO,
        "roofline_us": data.roofline * MICRO,
        "limiter": LIMITERS[limiter],
        "tier": tier,
        "reason": _reasons(fitted, data, x, excess),
    }


def _reasons(fitted: FittedFamily, data: Prepared, x: Inputs, excess: np.ndarray) -> np.ndarray:
    """What is not measured about a row: its device, its software stack, or its shape; "" where all is."""
    known = fitted.names.known
    unseen = {
        level: np.asarray(x.levels[level]) >= len(known[level]) for level in ("device", "framework", "stack", "format")
    }
    reason = np.full(len(data.table), "", dtype=object)
    for part, text in (
        (data.table.dtype == "", "no known number format: bf16 assumed"),
        (excess > 1.0, "shape outside what was measured"),
        (unseen["stack"], "this kernel and version never measured"),
        (unseen["framework"], "framework never measured: generic"),
        (unseen["format"], "format never measured: generic"),
        (unseen["device"], "device never measured"),
        (data.table.shape.get("prefix", np.zeros(len(data.table))) > 0, "cached prefix: extrapolated"),
    ):
        reason[part] = np.where(reason[part] == "", text, reason[part] + "; " + text)
    return reason


def _evaluate(model: KernelModel, x: Inputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logarithm of the time, excess and limiter of all rows, in chunks of one compiled shape."""
    rows = len(x.compute)
    out = np.empty((3, rows), np.float32)
    chunk = min(CHUNK, 1 << (rows - 1).bit_length())
    for start in range(0, rows, chunk):
        part = np.arange(start, start + chunk).clip(max=rows - 1)
        stop = min(start + chunk, rows)
        out[:, start:stop] = np.asarray(_chunk(model, rows_of(x, part)))[:, : stop - start]
    return out[0].astype(np.float64), out[1].astype(np.float64), out[2].astype(np.int64)


@eqx.filter_jit
def _chunk(model: KernelModel, x: Inputs) -> Float[Array, "3 R"]:
    def row(x: Inputs) -> Float[Array, " 3"]:
        longest = jnp.argmax(jnp.stack(model.law.parts(x)))
        return jnp.stack([model(x), model.correction.excess(x), as_float(longest)])

    return jax.vmap(row, out_axes=1)(x)


def _summary(read: Read, texts: dict[str, np.ndarray]) -> list[str]:
    lines = []
    for table in read.tables:
        tiers = Counter(texts["tier"][table.row])
        told = ", ".join(f"{count:,} {tier or 'without a prediction'}" for tier, count in sorted(tiers.items()))
        lines.append(f"{table.family}: {told}")
    reasons = Counter(reason for reason in texts["reason"] if reason)
    return lines + [f"{count:,} rows: {reason}" for reason, count in reasons.most_common(10)]
