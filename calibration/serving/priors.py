"""Which prior deviations to fit with, chosen by models held out among those that are shown; and what that choice errs.

python -m calibration.serving.priors SERVING_TABLE

    choice without model m = argmin over sets of priors  sum over models k but m of  loss(k's rows; fit without k and m)

The loss is that of the fit. The errors of each model are those of the set that the others chose, so that no figure is
of a choice that saw its rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from calibration.figures import figures
from calibration.serving.evaluate import capped_rows, folds_of
from calibration.serving.fit import FITTED, fitter, log_times, measured_of, row_losses, weights_of
from calibration.serving.law import rows_of
from calibration.serving.layouts import Deployed
from calibration.serving.predict import part_of
from calibration.serving.scalars import design_of
from jaxperf.core.sustained_file import SustainedTable

Changes = Mapping[tuple[str, str], float]  # (scalar, level) -> prior deviation instead of that in `SCALARS`
STANDING = "as they stand"
CANDIDATES: Mapping[str, Changes] = MappingProxyType(
    {
        STANDING: {},
        "alike engines": {("floor", "all"): 0.3, ("floor", "engine"): 0.3},
        "unlike models": {("decode", "kin"): 0.2, ("decode", "site"): 0.05, ("decode", "engine"): 0.1},
    }
)


def chosen_errors(
    points: Sequence[Deployed], rates: SustainedTable, progress: Callable[[str], None] = print
) -> tuple[dict[str, str], np.ndarray]:
    """The set of priors that the other models choose for each, and the errors log predicted - log measured with it
    [rows, 2]."""
    rows, design = rows_of(points, rates), design_of(points)
    measured, weights = measured_of(points), weights_of(points) * ~capped_rows(points)
    models, fit = folds_of(points)["model"], fitter(design, rows, measured)

    def errors(prior: np.ndarray, left_out: Sequence[str]) -> np.ndarray:
        fitted = fit(weights * ~np.isin(models, left_out), prior)
        return np.asarray(log_times(jnp.asarray(fitted), design, rows)) - measured

    found = {}
    for candidate, changes in CANDIDATES.items():
        prior = changed(design.names, design.deviation, changes)
        found[candidate] = without_pairs(names_of(models), partial(errors, prior))
        progress(candidate)
    chosen = chosen_by_others(found, weights, models)
    residual = np.full(measured.shape, np.nan)
    for place, name in enumerate(names_of(models)):
        residual[models == name] = found[chosen[name]][place, place][models == name]
    return chosen, residual


def names_of(models: np.ndarray) -> list[str]:
    """Every model once, in the order of the rows."""
    return list(dict.fromkeys(models.tolist()))


def without_pairs(names: Sequence[str], errors: Callable[[Sequence[str]], np.ndarray]) -> np.ndarray:
    """Errors of fits without each two models, and on the diagonal without one [models, models, rows, 2].

    **Arguments:** `errors`: of a fit without some models [rows, 2].
    """
    alone = {
        (first, second): errors([names[first], names[second]])
        for first in range(len(names))
        for second in range(first, len(names))
    }
    places = range(len(names))
    return np.array([[alone[min(i, j), max(i, j)] for j in places] for i in places])


def chosen_by_others(found: Mapping[str, np.ndarray], weights: np.ndarray, models: np.ndarray) -> dict[str, str]:
    """For each model the candidate of the least loss on all others.

    **Arguments:** `found`: candidate -> errors as `without_pairs` gives them, NaN where nothing was measured;
    `weights`, `models` of the rows [rows].
    """
    names = names_of(models)
    chosen = {}
    for place, name in enumerate(names):
        others = [other for other in range(len(names)) if other != place]

        def loss(candidate: str, place: int = place, others: Sequence[int] = others) -> float:
            each = [np.asarray(row_losses(np.nan_to_num(found[candidate][place, other]))) for other in others]
            own = [models == names[other] for other in others]
            return sum(float(weights[rows] @ losses[rows]) for rows, losses in zip(own, each, strict=True))

        chosen[name] = min(found, key=loss)
    return chosen


def changed(names: Sequence[str], deviation: np.ndarray, changes: Changes) -> np.ndarray:
    """The prior deviations of fitted numbers with some levels changed [T]."""
    levels = [name.split("/", 2) for name in names]
    return np.array(
        [changes.get((field, level), own) for (field, level, _), own in zip(levels, deviation, strict=True)]
    )


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m calibration.serving.priors", description=__doc__)
    parser.add_argument("table", type=Path, help="table of measured serving")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    from calibration.datasets.serving import read_serving
    from calibration.serving.refit import measured_points
    from jaxperf.core.sustained_file import load_sustained_table

    points = measured_points(read_serving(given.table))
    chosen, residual = chosen_errors(points, load_sustained_table())
    for name, candidate in chosen.items():
        print(f"{name}: {candidate}")
    parts = np.array([part_of(point) for point in points])
    asked = ~capped_rows(points)
    for part in dict.fromkeys(parts[asked].tolist()):
        for column, output in enumerate(FITTED):
            told = figures(residual[asked & (parts == part), column])
            print(f"{part:8s} {output}  " + "  ".join(f"{key} {value:.4g}" for key, value in told.items()))


if __name__ == "__main__":
    main()
