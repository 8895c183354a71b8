"""The whole evaluation of the kernel level, by one command: what is unseen is held out, and everything is refitted.

Splits: "unseen generation" and "unseen device" leave out every row of one, and of all its relatives or only itself;
"200 rows" adapts that generation's fit with 200 rows of the device, drawn by shape; "10 %" fits again with a tenth of
the device's shapes. The share of the correction an unseen device gets and all widths are chosen inside the remaining
devices. Beside ours stand the plain roofline and a constant: the median ratio to it on
the rows that the split adds to the fit (the other devices, or the 200 rows or the tenth of this one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.adapt import adapt_family
from calibration.calibrate import calibrate_family, gather
from calibration.datasets.schema import Read
from calibration.family import FittedFamily
from calibration.fit import Settings, sample
from calibration.held_out import generations, held_shapes
from calibration.inputs import Prepared, prepare
from calibration.local import stated
from calibration.transfer import MOST_SCORED, SALT, few_rows

SPLITS = ("unseen generation", "unseen device", "200 rows", "10 %")
EVALUATION = Settings(steps=3000, rows_per_cell=2000)


@dataclass(frozen=True)
class Cell:
    """Errors of one family, format and device under one split, in percent of the measured time; `coverage90`: share of
    rows inside the 90 % interval [%]; `half_width`: its median half-width [%]."""

    family: str
    format: str
    split: str
    device: str
    rows: int
    median: float
    mean: float
    p90: float
    roofline_median: float
    roofline_mean: float
    constant_median: float
    constant_mean: float
    coverage90: float
    half_width: float


def evaluate(
    reads: Sequence[Read],
    families: Sequence[str] | None = None,
    settings: Settings = EVALUATION,
    progress: Callable[[str], None] = lambda _: None,
    splits: Sequence[str] = SPLITS,
) -> Iterator[list[Cell]]:
    """The cells of every split, one family after the other as they are finished; none without a usable row."""
    for family, table in gather(reads).items():
        if families and not {family, table.family} & set(families):
            continue
        data = prepare(table)
        data = data.take(np.flatnonzero(data.usable))
        data = data.take(sample(data.spelled["cell"], MOST_SCORED, 2))
        yield _family(data, settings, progress, splits)


def pooled(cells: Sequence[Cell], split: str) -> tuple[float, int]:
    """Unweighted mean over (family, device) of the medians [%], and how many there are."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.split == split:
            groups.setdefault((cell.family, cell.device), []).append(cell)
    medians = [np.average([c.median for c in group], weights=[c.rows for c in group]) for group in groups.values()]
    return (float(np.mean(medians)) if medians else float("nan")), len(medians)


def _family(data: Prepared, settings: Settings, progress: Callable[[str], None], splits: Sequence[str]) -> list[Cell]:
    born, devices = generations(data.table), data.table.device.astype(str)
    found: list[Cell] = []
    for name in np.unique(born):
        rest = np.flatnonzero(born != name)
        inside = np.unique(devices[born == name])
        if not len(rest):
            progress(f"{data.table.family}: only {name}; no generation to learn from")
            continue
        fitted = _fit(data.take(rest), settings, progress)
        for device in inside:
            target = data.take(np.flatnonzero(devices == device))
            if "unseen generation" in splits:
                found += _score(fitted, target, "unseen generation", data.take(rest))
            if "200 rows" in splits:
                few, left = few_rows(target)
                found += _score(adapt_family(fitted, few), left, "200 rows", few)
    for device in np.unique(devices):
        rest, target = data.take(np.flatnonzero(devices != device)), data.take(np.flatnonzero(devices == device))
        if len(rest.table) and "unseen device" in splits:
            found += _score(_fit(rest, settings, progress), target, "unseen device", rest)
        if "10 %" in splits:
            tenth = held_shapes(target.table, SALT)
            both = np.r_[np.flatnonzero(devices != device), np.flatnonzero(devices == device)[tenth]]
            fitted = _fit(data.take(np.sort(both)), settings, progress)
            found += _score(fitted, target.take(np.flatnonzero(~tenth)), "10 %", target.take(np.flatnonzero(tenth)))
    return found


def _fit(data: Prepared, settings: Settings, progress: Callable[[str], None]) -> FittedFamily:
    return calibrate_family(data, settings, progress).family


def _score(fitted: FittedFamily, target: Prepared, split: str, sources: Prepared) -> list[Cell]:
    """Errors by format."""
    log_time, width = stated(fitted, target)
    residual = log_time - np.log(target.table.measured)
    constant = np.median(sources.table.measured / sources.roofline) if len(sources.table) else np.nan
    errors = {
        "": np.abs(np.expm1(residual)),
        "roofline_": np.abs(target.roofline / target.table.measured - 1),
        "constant_": np.abs(constant * target.roofline / target.table.measured - 1),
    }
    cells = []
    formats = target.table.dtype.astype(str)
    for form in np.unique(formats):
        at = formats == form
        scores = {
            f"{name}{kind}": float(100 * reduce(error[at]))
            for name, error in errors.items()
            for kind, reduce in (("median", np.median), ("mean", np.mean))
        }
        cells.append(
            Cell(
                family=target.table.family,
                format=str(form),
                split=split,
                device=str(target.table.device[0]),
                rows=int(at.sum()),
                p90=float(100 * np.quantile(errors[""][at], 0.9)),
                coverage90=float(100 * np.mean(np.abs(residual[at]) <= width[at])),
                half_width=float(100 * np.median(np.expm1(width[at]))),
                **scores,
            )
        )
    return cells
