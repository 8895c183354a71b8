"""From tables of measured kernels to `Parameters`: every family fitted, its trust in transfer and its intervals.

For each family, each hardware generation is held out in turn: that chooses how much of the learned correction an unseen
device gets, and gives the transfer interval. Then all devices are fitted on nine tenths of the shapes; the last tenth
gives the intervals of measured cells. A table so small that all its shapes are of that tenth is fitted whole.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import equinox as eqx
import numpy as np

import hwspecs
from calibration.datasets import data_hash
from calibration.datasets.schema import KernelTable, Read
from calibration.datasets.text import Column
from calibration.intervals import Spread, held_out_widths, measured_widths
from calibration.kernels.card import UNSEEN_SHAPES
from calibration.kernels.demand import POINTS
from calibration.kernels.family import FittedFamily
from calibration.kernels.fit import DEFAULT, Settings, fit, log_times
from calibration.kernels.held_out import constants, error_rows, held_of_fit, shape_hash
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.parameters import Parameters
from calibration.kernels.regimes import regime, regimes
from calibration.kernels.transfer import SALT, transfer
from jaxperf.core.numerics import as_float

# The folds only choose a share and an interval: a smaller fit tells the same.
FOLD = {"steps": 1200, "law_steps": 400, "law_rows": 15_000, "rows_per_cell": 1000}
MOST_HELD = 400_000  # rows prepared for the intervals
NO_ROW = "No usable row of a known family and device with a latency in the data."
Progress = Callable[[str], None]
Fitted = Iterable[tuple[str, "Calibrated"]]  # families by name, in whatever order they are ready


def calibrate(
    reads: Sequence[Read],
    exclude: Sequence[str] = (),
    settings: Settings = DEFAULT,
    progress: Progress = lambda _: None,
    families: Sequence[str] = (),
    directories: Sequence[str] = (),
    kept: Callable[[Parameters, Sequence[str]], None] = lambda parameters, left: None,
    apart: Callable[[Mapping[str, KernelTable]], Fitted] | None = None,
) -> Parameters:
    """Fit every family of the tables.

    **Arguments:** `exclude`: devices whose rows are not used; `families`: only these, if any; `directories`: of
    the user's own devices; `kept`: is given what there is after every family, and the families of tables that are left;
    `apart`: fits the families of these tables elsewhere, instead of here one by one.
    **Returns:** `Parameters` with a card. Raises `InputError` where no row can be fitted.
    """
    excluded = {hwspecs.resolve(name).name for name in exclude}
    tables = gather(reads, excluded)
    wanted = {name: each for name, each in tables.items() if not families or {name, each.family} & set(families)}
    card = _card(reads, tables, excluded, settings)
    fitted: dict[str, Calibrated] = {}
    parameters = None
    for name, one in apart(wanted) if apart else _one_by_one(wanted, settings, progress, directories):
        fitted[name] = one
        errors = [row for each in sorted(fitted) for row in fitted[each].card_rows]
        parameters = Parameters({each: fitted[each].family for each in sorted(fitted)}, {**card, "errors": errors})
        kept(parameters, sorted({table.family for each, table in wanted.items() if each not in fitted}))
    if parameters is None:
        raise hwspecs.InputError(NO_ROW)
    return parameters


def _one_by_one(
    tables: Mapping[str, KernelTable], settings: Settings, progress: Progress, directories: Sequence[str]
) -> Fitted:
    for family, table in tables.items():
        data = prepare(table, directories)
        data = data.take(np.flatnonzero(data.usable))
        if len(data.table):
            yield family, calibrate_family(data, settings, progress, directories)


def _card(
    reads: Sequence[Read], tables: Mapping[str, KernelTable], excluded: Collection[str | None], settings: Settings
) -> dict[str, Any]:
    """What a card states of a fit, but for its errors."""
    return {
        "created": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in ("jax", "numpy", "optax", "equinox")}
        | {"python": platform.python_version()},
        "data": [
            {"file": re.split(r"[/\\]", read.path)[-1], "sha256": data_hash(read.path), "rows": read.rows}
            for read in reads
        ],
        "devices": sorted({name for table in tables.values() for name in np.unique(table.device.astype(str))}),
        "excluded": sorted(name for name in excluded if name),
        "settings": dataclasses.asdict(settings),
    }


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A fitted family and the rows of its error table."""

    family: FittedFamily
    card_rows: list[dict[str, Any]]


def gather(reads: Sequence[Read], excluded: Collection[str | None] = ()) -> dict[str, KernelTable]:
    """The rows fit to learn from, by model (`regimes`), of all files: known device, a latency, no flag."""
    found: dict[str, list[KernelTable]] = {}
    for read in reads:
        for table in read.tables:
            if table.family not in POINTS or table.latency is None:
                continue
            good = (table.flag == 0) & (table.device != "") & np.isfinite(table.latency) & (table.latency > 0)
            good &= ~np.isin(table.device.astype(str), [name for name in excluded if name])
            learned = table.take(np.flatnonzero(good))
            for name, rows in regimes(learned):
                if len(rows):
                    found.setdefault(name, []).append(learned.take(rows))
    return {family: joined(tables) for family, tables in sorted(found.items())}


def not_gpus(reads: Sequence[Read]) -> list[str]:
    """Devices of the tables that the law of many cores and small blocks does not describe; they only adapt it."""
    devices = {name for read in reads for table in read.tables for name in set(table.device.tolist()) if name}
    return sorted(name for name in devices if hwspecs.load(name).kind != "gpu")


def joined(tables: Sequence[KernelTable]) -> KernelTable:
    """Tables of one family, one after the other; of the text columns only op, distribution, split."""
    if len(tables) == 1:
        return tables[0]
    kept = ("op", "distribution", "split")

    def text(table: KernelTable, name: str) -> Column:
        return table.text.get(name, np.full(len(table), "", dtype=object))

    columns = {
        name: np.concatenate([getattr(table, name) for table in tables])
        for name in ("row", "device", "framework", "version", "kernel", "dtype", "cache", "latency", "flag")
    }
    return KernelTable(
        family=tables[0].family,
        shape={name: np.concatenate([table.shape[name] for table in tables]) for name in tables[0].shape},
        text={name: np.concatenate([text(table, name) for table in tables]) for name in kept},
        **columns,
    )


def calibrate_family(
    data: Prepared, settings: Settings, progress: Progress, directories: Sequence[str] = ()
) -> Calibrated:
    """Fit one family, with its share and its intervals."""
    family, held = regime(data.table), held_of_fit(data.table)
    unseen = transfer(data, of_a_fold(settings), progress, directories)
    learned = data.take(np.flatnonzero(~held))
    fitted = fit(learned, settings, progress)
    model = eqx.tree_at(lambda tree: tree.correction.share, fitted.model, as_float(unseen.share))
    spread, rows = unseen.spread, unseen.rows
    if held.any():
        tested = data.take(np.flatnonzero(held)[:: max(1, int(held.sum()) // MOST_HELD)])
        residual = log_times(fitted, tested) - np.log(tested.table.measured)
        spread = measured_spread(tested, residual, unseen.spread)
        width = _width_of_others(tested, residual, spread)
        rows = rows + error_rows(tested, residual, width, constants(learned, tested), UNSEEN_SHAPES)
    progress(f"{family}: {len(data.table):,} rows")
    return Calibrated(dataclasses.replace(fitted, model=model, spread=spread), rows)


def of_a_fold(settings: Settings) -> Settings:
    """The same fit, smaller."""
    return dataclasses.replace(settings, **{name: min(getattr(settings, name), most) for name, most in FOLD.items()})


def measured_spread(data: Prepared, residual: np.ndarray, unseen: Spread) -> Spread:
    """The intervals of measured cells by their residuals on what was held out; `unseen`: other devices'."""
    cells = measured_widths(residual, np.asarray(data.spelled["cell"]), np.asarray(data.spelled["device"]))
    return dataclasses.replace(unseen, cells=cells, measured=held_out_widths(residual))


def _width_of_others(data: Prepared, residual: np.ndarray, spread: Spread) -> np.ndarray:
    """Half-widths of the 90 % intervals [R], each half of the shapes tested with what the other half gives."""
    halves = shape_hash(data.table, SALT) % np.uint64(2)
    width = np.empty(len(residual))
    for half in (0, 1):
        other = np.flatnonzero(halves != half)
        of_other = measured_spread(data.take(other), residual[other], spread)
        at = np.flatnonzero(halves == half)
        spelled = {level: np.asarray(column)[at] for level, column in data.spelled.items()}
        width[at] = of_other.half_width(spelled, np.ones(len(at), bool), np.zeros(len(at)))
    return width
