"""What a device never measured may expect: each hardware generation is held out in turn, and predicted with no row of
it and with a few; for the error table also each device, whose relatives stay.

The folds choose how much of the learned correction such a device gets, and give the transfer interval. The share and
the interval that a fold's own rows are scored with come from the other folds alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from calibration.intervals import Spread, growth, transfer_spread
from calibration.kernels.adapt import adapt_family
from calibration.kernels.family import FittedFamily
from calibration.kernels.fit import Settings, fit, predicted_parts, sample, sample_all
from calibration.kernels.held_out import constants, error_rows, generations, held_shapes
from calibration.kernels.inputs import Prepared
from calibration.kernels.local import stated
from calibration.kernels.regimes import regime
from jaxperf.core.numerics import as_float

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
CHANCE, MANY = 2.0, 6  # standard errors of the mean over devices, and how many devices have one
FEW = 200  # rows of a device that the split of this name adapts to
FEW_ROWS, TENTH = f"{FEW} rows", "10 % of rows"  # splits
# Rows scored of an adapted device (of a cell, where everything is refitted): as many as tell a median error of 5 % to a
# tenth of a percent.
MOST_SCORED = 4000
SALT = 1  # other shapes than those that a fit holds out


@dataclasses.dataclass(frozen=True)
class Transfer:
    """`share` of the correction for an unseen device; `spread`: half-widths of its intervals; `rows`: error rows of the
    card."""

    share: float
    spread: Spread
    rows: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Fold:
    """One generation or device held out: its rows, the family fitted without them, and on them the residual of the law
    alone, the whole correction [log 1] and how far they lie outside what was measured. `constant`: what a fitted
    constant knows of them [R]; `offered`: of each split, the rows that the family is adapted to and those it is then
    scored on."""

    unseen: Prepared
    constant: np.ndarray
    offered: Mapping[str, tuple[Prepared, Prepared]]
    fitted: FittedFamily
    law: np.ndarray
    correction: np.ndarray
    excess: np.ndarray

    def residual(self, share: float) -> np.ndarray:
        """With a share of the correction; exact, as the tanh that bounds it does not contain the share [log 1]."""
        return self.law + share * self.correction

    def scaled(self, share: float) -> np.ndarray:
        """The residual in units of what an interval grows by outside of what was measured (normalized conformal
        prediction, Papadopoulos et al. 2002) [log 1]."""
        return self.residual(share) / growth(self.excess)


def transfer(
    data: Prepared, settings: Settings, progress: Callable[[str], None], directories: Sequence[str] = ()
) -> Transfer:
    """Hold out every generation in turn; nothing is learned where there is only one.

    Fits and scores take a sample of every cell. Only "10 % of rows" adapts to a tenth of all shapes, with all rows, and
    is scored on rows drawn from all others.
    """
    own = generations(data.table, directories)

    def offered(name: str, unseen: Prepared) -> Mapping[str, tuple[Prepared, Prepared]]:
        return {FEW_ROWS: few_rows(unseen), TENTH: few_rows(data.take(np.flatnonzero(own == name)), len(own))}

    some = _sampled(data, settings)
    return judged(_folds(some, generations(some.table, directories), settings, progress, offered))


def unseen_devices(data: Prepared, settings: Settings, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Error rows of every device, held out while its relatives stay; one without any is its generation."""
    some = _sampled(data, settings)
    folds = _folds(some, some.table.device.astype(str), settings, progress, lambda name, unseen: {})
    return [row for one in folds for row in _scored(one, _others(folds, one), "unseen device")]


def _sampled(data: Prepared, settings: Settings) -> Prepared:
    return data.take(sample(data.spelled["cell"], 2 * settings.rows_per_cell, 1))


def _folds(
    some: Prepared,
    groups: np.ndarray,
    settings: Settings,
    progress: Callable[[str], None],
    offered: Callable[[str, Prepared], Mapping[str, tuple[Prepared, Prepared]]],
) -> list[Fold]:
    """Each of the `groups` [R] held out; none where there is only one."""
    folds, distinct = [], np.unique(groups).tolist()
    for name in distinct if len(distinct) > 1 else ():
        unseen, rest = (some.take(np.flatnonzero(at)) for at in (groups == name, groups != name))
        folds.append(fold(unseen, offered(name, unseen), rest, settings))
        progress(f"{regime(some.table)}: without {name}")
    return folds


def judged(folds: Sequence[Fold]) -> Transfer:
    """The share with the least error, and what the folds say of it."""
    share = best_share(folds)
    rows = [row for one in folds for row in _scored(one, _others(folds, one), "unseen generation")]
    return Transfer(share, spread_of(folds, share), rows)


def best_share(folds: Sequence[Fold]) -> float:
    """The share of the correction with the least error on these folds; none of it without any.

    Of many devices: the least share that is worse by no more than chance would have it. A share was chosen for a point
    and cost the A40 35 to 40 (docs/kernel-laws.md); of a few devices a standard error says too little to tell.
    """
    cost = np.array([[each for one in folds for each in _medians(one, share)] for share in SHARES])
    if not cost.size:
        return SHARES[0]
    best = int(np.argmin(cost.mean(axis=1)))
    worse = cost - cost[best]
    devices = worse.shape[1]
    if devices < MANY:
        return SHARES[best]
    chance = CHANCE * worse.std(axis=1, ddof=1) / np.sqrt(devices)
    return SHARES[int(np.argmax(worse.mean(axis=1) <= chance))]


def _others(folds: Sequence[Fold], one: Fold) -> list[Fold]:
    return [other for other in folds if other is not one]


def _scored(one: Fold, others: Sequence[Fold], split: str) -> list[dict[str, Any]]:
    """Error rows of a fold, with the share and the intervals that the others tell; of what it was offered as well."""
    share = best_share(others)
    spread = spread_of(others, share)
    tested = spread.half_width(one.unseen.spelled, np.zeros(len(one.excess), bool), one.excess)
    rows = error_rows(one.unseen, one.residual(share), tested, one.constant, split)
    return rows + [row for offer in one.offered for row in _adapted_rows(one, share, spread, offer)]


def spread_of(folds: Sequence[Fold], share: float) -> Spread:
    """The intervals of a device never measured, by what these folds say."""
    formats = [np.asarray(one.unseen.spelled["format"]) for one in folds]
    return transfer_spread([one.scaled(share) for one in folds], formats)


def few_rows(data: Prepared, most: int = FEW) -> tuple[Prepared, Prepared]:
    """Of each device at most so many rows of a tenth of the shapes, and at most `MOST_SCORED` of the others."""
    tenth = held_shapes(data.table, SALT)
    return data.take(_of_each_device(data, tenth, most)), data.take(_of_each_device(data, ~tenth, MOST_SCORED))


def _of_each_device(data: Prepared, among: np.ndarray, most: int) -> np.ndarray:
    devices = data.table.device.astype(str)
    candidates = [np.flatnonzero(among & (devices == name)) for name in np.unique(devices)]
    return np.sort(np.concatenate([own[sample_all(len(own), most, 0)] for own in candidates]))


def fold(
    unseen: Prepared, offered: Mapping[str, tuple[Prepared, Prepared]], rest: Prepared, settings: Settings
) -> Fold:
    """What a family fitted to the rest says of rows it never saw."""
    fitted = fit(rest, settings)
    said = predicted_parts(fitted, unseen)
    law = said.law - np.log(unseen.table.measured)
    return Fold(unseen, constants(rest, unseen), offered, fitted, law, said.correction, said.excess)


def _medians(fold: Fold, share: float) -> list[float]:
    """The median of |residual| of each device: what the error table averages."""
    devices, size = fold.unseen.table.device.astype(str), np.abs(fold.residual(share))
    return [float(np.median(size[devices == name])) for name in np.unique(devices)]


def _adapted_rows(fold: Fold, share: float, spread: Spread, split: str) -> list[dict[str, Any]]:
    """Error rows of the fold, adapted as the split says."""
    few, left = fold.offered[split]
    if not (len(few.table) and len(left.table)):
        return []
    model = eqx.tree_at(lambda tree: tree.correction.share, fold.fitted.model, as_float(share))
    adapted = adapt_family(dataclasses.replace(fold.fitted, model=model, spread=spread), few)
    log_time, tested = stated(adapted, left)
    return error_rows(left, log_time - np.log(left.table.measured), tested, constants(few, left), split)
