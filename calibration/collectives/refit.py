"""Fit measured collectives, hold out everything that is called unseen, and write the parameters.

python -m calibration.collectives.refit TABLE... -o calibration/fitted/collectives
"""

from __future__ import annotations

import argparse
import datetime
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from calibration.collectives.adapt import measured_points
from calibration.collectives.evaluate import evaluate
from calibration.collectives.learn import learn
from calibration.collectives.parameters import CollectiveParameters, save_collectives
from calibration.collectives.rows import measured_collectives
from calibration.collectives.scores import EVERYTHING, coverage, error_rows, interval_widths
from calibration.datasets import data_hash
from calibration.datasets.schema import KernelTable


def refit(table: KernelTable, card: Mapping[str, Any]) -> CollectiveParameters:
    """The curves of all rows, with intervals and errors from folds that did not see them."""
    points, measured = measured_points(table)
    found = evaluate(points, measured)
    learned = learn(points, measured, np.arange(len(points)))
    told = {
        "devices": sorted({str(name) for name in points.device[np.unique(points.group)]}),
        "rows": len(points),
        "errors": error_rows(points, measured, found),
        "coverage": {split: coverage(points, measured, held) for split, held in found.items()},
    }
    return CollectiveParameters(learned, interval_widths(points, measured, found), (), {**card, **told})


def summary(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a split."""
    return [
        f"{row['split']:8s} {row['rows']:6d} rows  median {row['ours_median']:.1%}  mean {row['ours_mean']:.1%}  "
        f"p90 {row['ours_p90']:.1%}  law {row['law_median']:.1%}  alpha-beta {row['alpha_beta_median']:.1%}"
        for row in errors
        if row["by"] == EVERYTHING
    ]


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(description="Fit measured collectives.")
    parser.add_argument("tables", nargs="+", type=Path, help="tables of measured collectives")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    words = ["python", "-m", "calibration.collectives.refit", *(path.name for path in given.tables), "-o"]
    card = {
        "created": datetime.date.today().isoformat(),
        "command": shlex.join([*words, given.out.name]),
        "data": [{"file": path.name, "sha256": data_hash(path)} for path in given.tables],
    }
    parameters = refit(measured_collectives(given.tables), card)
    save_collectives(parameters, given.out)
    print("\n".join(summary(parameters.card["errors"])))
    print({split: f"{share:.0%}" for split, share in parameters.card["coverage"].items()})


if __name__ == "__main__":
    main()
