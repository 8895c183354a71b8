"""From tables of measured kernels to `Parameters`: every family fitted, its trust in transfer and its intervals.

For each family, each hardware generation is held out in turn: that chooses how much of the learned correction an unseen
device gets, and gives the transfer interval. Then all devices are fitted on nine tenths of the shapes; the last tenth
gives the intervals of measured cells.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
import re
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from typing import Any

import equinox as eqx
import jax
import numpy as np

import hwspecs
from calibration.datasets import data_hash
from calibration.datasets.schema import KernelTable, Read
from calibration.datasets.text import Column
from calibration.demand import POINTS
from calibration.fit import DEFAULT, FittedFamily, Settings, fit, log_times, sample
from calibration.inputs import Prepared, prepare
from calibration.intervals import Spread, by_cell, pooled, quantiles
from calibration.parameters import Parameters
from calibration.regimes import regime, regimes
from jaxperf.core.numerics import as_float

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# The folds only choose a share and an interval: a smaller fit tells the same.
FOLD = {"steps": 1200, "law_steps": 400, "law_rows": 15_000, "rows_per_cell": 1000}
HELD_SHAPES = 10  # one shape of ten is held out
MOST_HELD = 400_000  # rows prepared for the intervals
Progress = Callable[[str], None]


def calibrate(
    reads: Sequence[Read],
    exclude: Sequence[str] = (),
    settings: Settings = DEFAULT,
    progress: Progress = lambda _: None,
    families: Sequence[str] = (),
    directories: Sequence[str] = (),
) -> Parameters:
    """Fit every family of the tables.

    **Arguments:** `exclude`: devices whose rows are not used; `families`: only these, if any; `directories`: of
    the user's own devices.
    **Returns:** `Parameters` with a card. Raises `InputError` where no row can be fitted.
    """
    excluded = {hwspecs.resolve(name).name for name in exclude}
    tables = gather(reads, excluded)
    fitted, errors = {}, []
    for family, table in tables.items():
        if families and not {family, table.family} & set(families):
            continue
        data = prepare(table, directories)
        data = data.take(np.flatnonzero(data.usable))
        if len(data.table):
            fitted[family] = calibrate_family(data, settings, progress, directories)
            errors += fitted[family].card_rows
    if not fitted:
        raise hwspecs.InputError("No usable row of a known family and device with a latency in the data.")
    card = {
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
        "errors": errors,
    }
    return Parameters({name: each.family for name, each in fitted.items()}, card)


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A fitted family and the rows of its error table."""

    family: FittedFamily
    card_rows: list[dict[str, Any]]


def gather(reads: Sequence[Read], excluded: Collection[str | None] = ()) -> dict[str, KernelTable]:
    """The rows fit to learn from, by model (`calibration.regimes`), of all files: known device, a latency, no flag."""
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
    family, held = regime(data.table), held_shapes(data.table)
    fold = dataclasses.replace(settings, **{name: min(getattr(settings, name), most) for name, most in FOLD.items()})
    share, transfer, rows = _transfer(
        data.take(sample(data.spelled["cell"], 2 * fold.rows_per_cell, 1)), fold, progress, directories
    )
    fitted = fit(data.take(np.flatnonzero(~held)), settings, progress)
    model = eqx.tree_at(lambda tree: tree.correction.share, fitted.model, as_float(share))
    spread = Spread(transfer=transfer)
    if held.any():
        tested = data.take(np.flatnonzero(held)[:: max(1, int(held.sum()) // MOST_HELD)])
        residual = _residual(fitted, tested)
        cells = tested.spelled["cell"]
        spread = Spread(by_cell(residual, cells), quantiles(residual), transfer)
        rows += _errors(tested, residual, "unseen shapes")
    progress(f"{family}: {len(data.table):,} rows")
    return Calibrated(dataclasses.replace(fitted, model=model, spread=spread), rows)


def held_shapes(table: KernelTable, salt: int = 0) -> np.ndarray:
    """Which rows have a shape that is held out: by a hash of the shape, the same for all devices and frameworks.

    Another `salt` holds out other shapes.
    """
    mixed = np.full(len(table), salt, np.uint64)
    for name in sorted(table.shape):
        bits = np.ascontiguousarray(table.shape[name], np.float64).view(np.uint64)
        mixed = (mixed ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed % np.uint64(HELD_SHAPES) == 0


def generation(device: str, directories: Sequence[str] = ()) -> str:
    """The hardware generation of a device: the family name of its architecture, such as "ampere" or "cdna"."""
    architecture = hwspecs.load(device, directories).architecture
    found = re.match(r"[a-z]+", architecture)
    return found.group() if found else architecture


def generations(table: KernelTable, directories: Sequence[str] = ()) -> np.ndarray:
    """The generation of every row's device."""
    distinct, which = np.unique(table.device.astype(str), return_inverse=True)
    return np.array([generation(name, directories) for name in distinct])[which]


def _transfer(
    data: Prepared, fold: Settings, progress: Progress, directories: Sequence[str]
) -> tuple[float, tuple[float, float], list[dict[str, Any]]]:
    """(share of the correction for an unseen device, transfer interval, error rows), by held-out generations."""
    born = generations(data.table, directories)
    folds = [(name, np.flatnonzero(born == name), np.flatnonzero(born != name)) for name in np.unique(born)]
    tried = []
    for name, inside, outside in folds:
        if not len(outside):
            continue
        fitted = fit(data.take(outside), fold)
        unseen = data.take(inside)
        x, y = unseen.inputs(fitted.names, fitted.features), np.log(unseen.table.measured)
        law = np.asarray(jax.vmap(fitted.model.law)(x))
        whole = np.asarray(jax.vmap(fitted.model.correction)(x))
        tried.append((unseen, law - y, whole))
        progress(f"{regime(data.table)}: without {name}")
    if not tried:
        return 0.0, Spread().transfer, []
    # The correction is bounded by a tanh of its share-free argument: scaling it is exact for `share`.
    cost = [np.mean([np.median(np.abs(law + share * whole)) for _, law, whole in tried]) for share in SHARES]
    share = SHARES[int(np.argmin(cost))]
    left = [law + share * whole for _, law, whole in tried]
    rows = [
        row
        for (unseen, _, _), each in zip(tried, left, strict=True)
        for row in _errors(unseen, each, "unseen generation")
    ]
    return share, pooled(left), rows


def _residual(fitted: FittedFamily, data: Prepared) -> np.ndarray:
    return log_times(fitted, data) - np.log(data.table.measured)


def _errors(data: Prepared, residual: np.ndarray, split: str) -> list[dict[str, Any]]:
    """Error rows of the card: one a device and format."""
    error = np.abs(np.expm1(residual))
    roof = np.abs(data.roofline / data.table.measured - 1.0)
    rows = []
    devices, formats = data.table.device.astype(str), data.table.dtype.astype(str)
    for device in np.unique(devices):
        for form in np.unique(formats[devices == device]):
            at = (devices == device) & (formats == form)
            rows.append(
                {
                    "family": regime(data.table),
                    "format": str(form),
                    "device": str(device),
                    "split": split,
                    "rows": int(at.sum()),
                    "median": round(100 * float(np.median(error[at])), 2),
                    "mean": round(100 * float(error[at].mean()), 2),
                    "p90": round(100 * float(np.quantile(error[at], 0.9)), 2),
                    "roofline_median": round(100 * float(np.median(roof[at])), 2),
                }
            )
    return rows
