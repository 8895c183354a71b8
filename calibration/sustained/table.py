"""From fitted parameters and measured kernels to what each device sustains: the table that composed steps read.

A step of a model cannot afford the correction of every kernel at a million points; it uses three scalars a family and
device (`calibration.sustained.fit`), here fitted on the kernels that serving engines run (`calibration.sustained.rows`)
around the family's law. Measured tables repeat a kernel on a few buffers, so what the law says was found in L2 is taken
out of their transfers: the scalars hold for operands that come from device memory, as in serving.

    python -m calibration.sustained DATA... -o calibration/fitted/sustained.json [--params PARAMS]
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import data_hash
from calibration.datasets.schema import KernelTable, Read
from calibration.intervals import LEVELS_OF_TRUST, UNKNOWN, widened
from calibration.kernels.demand import NOMINAL_ENERGY, USABLE_POWER
from calibration.kernels.hardware import REFERENCE
from calibration.kernels.parameters import Parameters
from calibration.stored import write_whole
from calibration.sustained.fit import EXPOSED, Law, exposed_share, fit_scalars, step_errors, weighted_quantile, weights
from calibration.sustained.rows import SERVING, SOURCES, Rows, Wanted, serving_rows
from hwspecs.errors import InputError
from jaxperf.core.sustained_file import SCHEMA, checksum, place_of

# Families whose blocks fetch ahead while others multiply; of all others everything of the shorter shows.
OVERLAPPING = ("gemm", "moe")
SHAPES_HELD = 2  # every other shape is held out: three scalars need few rows, an interval many


def sustained(parameters: Parameters, tables: Mapping[str, KernelTable], wanted: Wanted = SERVING) -> dict[str, Any]:
    """The table of `jaxperf.core.sustained_file`, without its card.

    **Arguments:** `parameters`: whose laws to start from; `tables`: rows to learn from by family, see `gather`;
    `wanted`: which of them count.
    """
    families = {}
    for family in SOURCES:
        law = law_of(parameters, family)
        classes = {} if law is None else serving_rows(tables, family, wanted)
        if law is None or not classes:
            continue
        cells = parameters.card.get("adapted", {})
        adapted = {cell for source in SOURCES[family] for cell in cells.get(source, ())}
        asked = (family, law, adapted, wanted.least)
        entries = {form: _entry(cold(rows, parameters), *asked) for form, rows in classes.items()}
        families[family] = {"classes": entries}
    power = {"usable_share": USABLE_POWER, **REFERENCE}
    return {"schema": SCHEMA, "families": families, "power": power}


def law_of(parameters: Parameters, family: str) -> Law | None:
    """Where a family's scalars start: its law, or that of the first of its tables' families that has one."""
    fitted = next((parameters.families[name] for name in SOURCES[family] if name in parameters.families), None)
    if fitted is None:
        return None
    law = fitted.model.law
    return Law(float(law.compute), float(law.memory), float(law.floor), float(law.power))


def cold(rows: Rows, parameters: Parameters) -> Rows:
    """The rows with only those bytes that came from device memory, by the law of each row's family."""
    memory = rows.memory.copy()
    for name in np.unique(rows.source):
        if name in parameters.families:
            law, at = parameters.families[name].model.law, rows.source == name
            steep = float(np.exp(law.cache_slope)) * (rows.footprint[at] - float(law.cache_share))
            memory[at] -= np.logaddexp(0.0, -steep)
    return dataclasses.replace(rows, memory=memory)


def _entry(rows: Rows, family: str, law: Law, adapted: set[str], least: int) -> dict[str, Any]:
    """The family's scalars in one format class with the interval of generations left out, and its devices'."""
    held = held_out(rows)
    if held.all():
        held[:] = False
    learned = rows.take(np.flatnonzero(~held))
    exposed = exposed_share(learned, law) if family in OVERLAPPING else EXPOSED[0]
    fit = fit_scalars(learned, law, exposed).within_datasheet
    names, count = np.unique(rows.device, return_counts=True)
    tested = rows.take(np.flatnonzero(held))
    devices = {}
    for name in names[(count >= least) & np.isin(names, list(fit.device))]:
        mine = tested.take(np.flatnonzero(tested.device == name))
        cells = set(np.unique(rows.cell[rows.device == name]))
        devices[str(name)] = {
            **_scalars(fit.family + fit.device[name]),
            **_spread(mine, fit.log_time(mine)),
            "rows": int(np.sum(rows.device == name)),
            "stacks": len(cells),
            "tier": "adapted" if _all_adapted(cells, adapted) else "measured",
        }
    energy = NOMINAL_ENERGY * float(np.exp(fit.power))
    told = {"energy": _digits(energy), "exposed": exposed}
    return {**_scalars(fit.family), **told, **_transfer(rows, law, exposed), "devices": devices}


def held_out(rows: Rows) -> np.ndarray:
    """Which rows have a shape that is held out, the same for all devices."""
    distinct, which = np.unique(rows.shape, return_inverse=True)
    return np.array([zlib.crc32(text.encode()) % SHAPES_HELD == 0 for text in distinct])[which]


def _all_adapted(cells: set[str], adapted: set[str]) -> bool:
    devices = {name.split("/", 1)[0] for name in adapted}
    return all(cell.split("/", 1)[0] in devices for cell in cells)


def _transfer(rows: Rows, law: Law, exposed: float) -> dict[str, Any]:
    """Interval and error of devices whose whole generation was left out: means over the generations."""
    left = []
    for name in np.unique(rows.generation):
        outside = rows.take(np.flatnonzero(rows.generation != name))
        if len(outside.time):
            unseen = rows.take(np.flatnonzero(rows.generation == name))
            left.append(_spread(unseen, fit_scalars(outside, law, exposed).within_datasheet.log_time(unseen)))
    if not left:
        return {"half_width": list(UNKNOWN), "median": None, "p90": None, "generations": 1}
    mean = lambda name: _digits(float(np.mean([each[name] for each in left])))  # noqa: E731
    width = [_digits(float(np.mean([each["half_width"][at] for each in left]))) for at in range(len(LEVELS_OF_TRUST))]
    return {"half_width": width, "median": mean("median"), "p90": mean("p90"), "generations": len(left)}


def _spread(rows: Rows, predicted: np.ndarray) -> dict[str, Any]:
    """Half-widths of the 50 % and 90 % intervals [log 1], median and 90th percentile of the error [%].

    Of the sum of the kernels that a step runs together, for the error of one shape among several averages out; each
    weighs as in the fit.
    """
    if not len(rows.time):
        return {"half_width": list(UNKNOWN), "median": None, "p90": None}
    _, which = np.unique(rows.step, return_inverse=True)
    residual = step_errors(rows, predicted)
    weight = np.bincount(which, weights(rows))
    error = 100.0 * np.abs(np.expm1(residual))
    width = [weighted_quantile(np.abs(residual), weight, share) for share in LEVELS_OF_TRUST]
    return {
        "half_width": [_digits(each) for each in widened(width, residual)],
        "median": _digits(weighted_quantile(error, weight, 0.5)),
        "p90": _digits(weighted_quantile(error, weight, 0.9)),
    }


def _scalars(logarithms: np.ndarray) -> dict[str, float]:
    compute, memory = np.exp(-logarithms[:2])
    return {"compute": _digits(compute), "memory": _digits(memory), "floor": _digits(np.exp(logarithms[2]))}


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def save_sustained(
    record: Mapping[str, Any],
    parameters_sha256: str | None,
    reads: Sequence[Read],
    path: str | Path,
    command: str,
    exclude: Sequence[str] = (),
) -> Path:
    """Write a table with its card, whole or not at all.

    **Arguments:** `record`: of `sustained`, or of `calibration.sustained.own`; `path`: the file itself, or the base
    name of the parameters it goes beside; `command`: how it was made, for the card; `exclude`: devices whose rows are
    not used.
    **Returns:** the file. Raises `InputError` where it cannot be written.
    """
    files = [{"file": Path(read.path).name, "sha256": data_hash(read.path), "rows": read.rows} for read in reads]
    card = {"created": datetime.date.today().isoformat(), "command": command, "data": files}
    card |= {"parameters_sha256": parameters_sha256, "excluded": sorted(exclude), "sha256": checksum(record)}
    file = place_of(path)
    try:
        write_whole(file, (json.dumps({**card, **record}, indent=1, sort_keys=True) + "\n").encode())
    except OSError as error:
        raise InputError(f"Cannot write '{file}': {error.strerror or error}.") from None
    return file
