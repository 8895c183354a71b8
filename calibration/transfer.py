"""What a device never measured may expect: each hardware generation is held out in turn, and predicted with no row of
it and with a few.

The folds choose how much of the learned correction such a device gets, and give the transfer interval. The interval
that a fold's rows are tested with comes from the other folds alone.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from calibration.adapt import adapt_family
from calibration.family import FittedFamily
from calibration.fit import Settings, fit, sample_all
from calibration.held_out import error_rows, generations, held_shapes
from calibration.inputs import Prepared
from calibration.intervals import Spread, growth, transfer_spread
from calibration.local import stated
from calibration.regimes import regime
from jaxperf.core.numerics import as_float

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
FEW = 200  # rows of a device that the split of this name adapts to
ADAPTED = {f"{FEW} rows": FEW, "10 % of rows": sys.maxsize}  # splits, and the most rows of a device that they adapt to
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
    """One generation held out: its rows, the family fitted without them, and on them the residual of the law alone, the
    whole correction [log 1] and how far they lie outside what was measured."""

    unseen: Prepared
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
    """Hold out every generation in turn; nothing is learned where there is only one."""
    born, folds = generations(data.table, directories), []
    for name in np.unique(born):
        outside = np.flatnonzero(born != name)
        if len(outside):
            folds.append(fold(data.take(np.flatnonzero(born == name)), fit(data.take(outside), settings)))
            progress(f"{regime(data.table)}: without {name}")
    return judged(folds)


def judged(folds: Sequence[Fold]) -> Transfer:
    """The share with the least error, and the errors and widths it has."""
    if not folds:
        return Transfer(0.0, Spread(), [])
    cost = [np.mean([each for one in folds for each in _medians(one, share)]) for share in SHARES]
    share = SHARES[int(np.argmin(cost))]
    rows: list[dict[str, Any]] = []
    for one in folds:
        spread = spread_of([other for other in folds if other is not one], share)
        tested = spread.half_width(one.unseen.spelled, np.zeros(len(one.excess), bool), one.excess)
        rows += error_rows(one.unseen, one.residual(share), tested, "unseen generation")
        for split, most in ADAPTED.items():
            rows += _adapted_rows(one, share, spread, split, most)
    return Transfer(share, spread_of(folds, share), rows)


def spread_of(folds: Sequence[Fold], share: float) -> Spread:
    """The intervals of a device never measured, by what these folds say."""
    formats = [np.asarray(one.unseen.spelled["format"]) for one in folds]
    return transfer_spread([one.scaled(share) for one in folds], formats)


def few_rows(data: Prepared, most: int = FEW) -> tuple[Prepared, Prepared]:
    """At most so many rows of each device, of shapes that hash to a tenth, and all rows of other shapes."""
    tenth, devices = held_shapes(data.table, SALT), data.table.device.astype(str)
    candidates = [np.flatnonzero(tenth & (devices == name)) for name in np.unique(devices)]
    chosen = np.concatenate([own[sample_all(len(own), most, 0)] for own in candidates])
    return data.take(np.sort(chosen)), data.take(np.flatnonzero(~tenth))


def fold(unseen: Prepared, fitted: FittedFamily) -> Fold:
    """What a family says of a generation it was fitted without."""
    x, measured = unseen.inputs(fitted.names, fitted.features), np.log(unseen.table.measured)
    law, correction = jax.vmap(fitted.model.law)(x), jax.vmap(fitted.model.correction)(x)
    excess = jax.vmap(fitted.model.correction.excess)(x)
    return Fold(unseen, fitted, np.asarray(law) - measured, np.asarray(correction), np.asarray(excess))


def _medians(fold: Fold, share: float) -> list[float]:
    """The median of |residual| of each device: what the error table averages."""
    devices, size = fold.unseen.table.device.astype(str), np.abs(fold.residual(share))
    return [float(np.median(size[devices == name])) for name in np.unique(devices)]


def _adapted_rows(fold: Fold, share: float, spread: Spread, split: str, most: int) -> list[dict[str, Any]]:
    """Error rows of the fold, adapted to at most so many rows of each of its devices."""
    few, left = few_rows(fold.unseen, most)
    if not (len(few.table) and len(left.table)):
        return []
    model = eqx.tree_at(lambda tree: tree.correction.share, fold.fitted.model, as_float(share))
    adapted = adapt_family(dataclasses.replace(fold.fitted, model=model, spread=spread), few)
    log_time, tested = stated(adapted, left)
    return error_rows(left, log_time - np.log(left.table.measured), tested, split)
