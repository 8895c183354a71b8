"""Kernels whose power our harness metered, against the power law: no fit has seen them.

`calibration/measured/power` holds them (`jaxperf measure --meter`). Each ran back to back: its units are busy for their
share of the time of a call there, `sustained_us`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import hwspecs
from calibration.datasets import read_table
from calibration.datasets.files import read_pieces
from calibration.datasets.schema import KernelTable
from calibration.figures import figures
from calibration.kernels.inputs import prepare
from calibration.power.evaluate import CONSTANT, OURS, TDP
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.core.efficiency import FAMILIES, LEVELS
from jaxperf.core.formats import COMPUTE_FORMATS
from jaxperf.core.numerics import as_float
from jaxperf.core.sustained import CLASSES, MATRIX_FAMILIES, format_class
from jaxperf.core.sustained_file import STREAMED, SustainedTable, calibration_of
from jaxperf.serving.techniques.power import PowerLaw, Work, drawn, power_at

FOLDER = Path(__file__).parents[1] / "measured" / "power"
ENERGIES = "energies"
WHO = (OURS, CONSTANT, TDP, ENERGIES)
ALIKE = MappingProxyType({"bmm": "gemm"})  # family -> the one whose sustained rates it has
MICRO = 1e-6


class Metered(NamedTuple):
    """Kernels of one family and device [N]: `watts` that were drawn, and by who says it."""

    device: DeviceSpec
    family: str
    watts: np.ndarray
    said: dict[str, np.ndarray]


def metered_errors(
    law: PowerLaw, rates: SustainedTable, constant: float, paths: list[Path] | None = None
) -> list[dict[str, Any]]:
    """Error rows of every device and family, and of all families of a device: median watts drawn, and of each of `WHO`
    the median, mean and 90th percentile of the error [1].

    **Arguments:** `constant`: share of the TDP that the runs behind the law drew, in their median [1]; `paths`: tables
    of `jaxperf measure --meter` (default: ours).
    **Raises:** `InputError` for a table without the columns of a meter.
    """
    found = [each for path in paths or sorted(FOLDER.glob("*.parquet")) for each in _tables(path, law, rates, constant)]
    groups: dict[tuple[str, str], list[Metered]] = {}
    for each in found:
        groups.setdefault((each.device.name, each.family), []).append(each)
    for each in found:
        groups.setdefault((each.device.name, "all"), []).append(each)
    return [_errors(device, family, parts) for (device, family), parts in groups.items()]


def _errors(device: str, family: str, parts: list[Metered]) -> dict[str, Any]:
    watts = np.concatenate([each.watts for each in parts])
    row: dict[str, Any] = {"device": device, "family": family, "rows": len(watts), "watts": float(np.median(watts))}
    for who in WHO:
        told = figures(np.log(np.concatenate([each.said[who] for each in parts]) / watts))
        row |= {f"{who}_{name}": told[name] for name in ("median", "mean", "p90")}
    return row


def _tables(path: Path, law: PowerLaw, rates: SustainedTable, constant: float) -> Iterator[Metered]:
    """The families of one file, each with its rows whose power was metered; a run is of one device."""
    pieces = list(read_pieces(path))
    watts, times = (_column(path, pieces, name) for name in ("power_w", "sustained_us"))
    for table in read_table(path).tables:
        kept = np.flatnonzero(np.isfinite(watts[table.row]))
        if len(kept):
            some = table.take(kept)
            yield _said(some, watts[some.row], MICRO * times[some.row], law, rates, constant)


def _column(path: Path, pieces: list[pa.Table], name: str) -> np.ndarray:
    """One column of a file, NaN where it is empty. Raises `InputError` where there is none of that name."""
    if name not in pieces[0].column_names:
        raise InputError(f"{path}: the column '{name}' is missing; jaxperf measure --meter writes it.")
    cells = [value for piece in pieces for value in piece[name].to_pylist()]
    return np.array([np.nan if value in (None, "") else float(value) for value in cells])


def _said(
    table: KernelTable, watts: np.ndarray, time: np.ndarray, law: PowerLaw, rates: SustainedTable, constant: float
) -> Metered:
    spec = hwspecs.load(str(table.device[0]))
    device = calibration_of(spec, rates).calibrated
    family = ALIKE.get(table.family, table.family if table.family in FAMILIES else STREAMED)
    own = device.sustained.rates[family]
    formats = table.dtype.astype(str) if family in MATRIX_FAMILIES else ["bf16"] * len(table)
    classes = [CLASSES.index(format_class(name)) for name in formats]
    shares = [np.asarray(leaf)[LEVELS.index("nominal"), classes] for leaf in (own.compute, own.memory)]
    demand = prepare(table).demand
    busy = [np.minimum(each / share, time) for each, share in zip((demand.ideal, demand.memory), shares, strict=True)]
    work = Work(*map(as_float, (time, *busy, demand.moved)))
    per_flop = np.asarray(device.energy_per_flop)[[COMPUTE_FORMATS.index(name) for name in table.dtype.astype(str)]]
    spent = demand.flops * per_flop + demand.moved * float(device.energy_per_byte)
    said = {
        OURS: np.asarray(power_at(drawn(device.device, law, work), as_float(1.0), work.time)),
        CONSTANT: np.full(len(time), constant * spec.tdp.si),
        TDP: np.full(len(time), spec.tdp.si),
        ENERGIES: float(device.idle_power) + spent / time,
    }
    return Metered(spec, table.family, watts, said)
