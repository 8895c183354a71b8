"""Which priors of the curves foretell an unseen number of ranks, chosen without the kind of collective they answer for.

python -m calibration.collectives.choice COLLECTIVES

Kinds share no curve, so what the other kinds' folds choose has seen nothing of a kind: the errors of that choice are
those of a nested leave-one-group-out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from calibration.collectives.adapt import measured_points
from calibration.collectives.evaluate import rank_folds, without
from calibration.collectives.learn import predicted
from calibration.collectives.points import Points
from calibration.collectives.rows import measured_collectives
from calibration.collectives.terms import TERMS, Term


def scaled_settings(factor: float) -> tuple[Term, ...]:
    """The terms with the priors of those of one setting, ranks, nodes and cores, wider by a factor."""
    return tuple(
        replace(term, spread=factor * term.spread, rough=factor * term.rough) if "setting" in term.level else term
        for term in TERMS
    )


SHARED_SETTINGS = ("kind setting", "kernel setting", "generation setting", "generation kernel setting")
CANDIDATES: Mapping[str, Sequence[Term]] = {
    "shipped": TERMS,
    "settings half as wide": scaled_settings(0.5),
    "settings twice as wide": scaled_settings(2.0),
    "own settings only": tuple(term for term in TERMS if term.level not in SHARED_SETTINGS),
}


def rank_errors(points: Points, measured: np.ndarray, terms: Sequence[Term]) -> np.ndarray:
    """|predicted / measured - 1| of every row, its number of ranks held out; NaN where that cannot be [R] [1]."""
    found = np.full(len(points), np.nan)
    for rows in rank_folds(points):
        _, learned = without(points, measured, rows, terms)
        found[rows] = np.abs(predicted(learned, points.take(rows)) / measured[rows] - 1.0)
    return found


def chosen_by_others(errors: Mapping[str, np.ndarray], kind: np.ndarray) -> dict[str, str]:
    """Kind -> the candidate of the least error on the other kinds, each by its mean [R] of `errors`."""
    scored = np.isfinite(next(iter(errors.values())))
    kinds = np.unique(kind[scored])
    means = {
        name: {each: float(values[scored & (kind == each)].mean()) for each in kinds} for name, values in errors.items()
    }
    return {
        own: min(means, key=lambda name: sum(mean for each, mean in means[name].items() if each != own))
        for own in kinds.tolist()
    }


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(description="Choose the priors of measured collectives without what they answer.")
    parser.add_argument("tables", nargs="+", type=Path, help="tables of measured collectives")
    jax.config.update("jax_enable_x64", True)
    points, measured = measured_points(measured_collectives(parser.parse_args().tables))
    errors = {name: rank_errors(points, measured, terms) for name, terms in CANDIDATES.items()}
    kind = points.named("kind")
    chosen = chosen_by_others(errors, kind)
    nested = np.concatenate([errors[name][kind == own] for own, name in chosen.items()])
    for name, values in {**errors, "chosen by the other kinds": nested}.items():
        known = values[np.isfinite(values)]
        print(f"{name:26s} {len(known):6d} rows  median {np.median(known):.1%}  mean {known.mean():.1%}")
    for own, name in chosen.items():
        print(f"  {own:36s} {name}")


if __name__ == "__main__":
    main()
