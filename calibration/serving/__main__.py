"""Fit the scalars of serving, with models, engines and devices held out in turn, and write them.

python -m calibration.serving SERVING_TABLE -o calibration/fitted/serving
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import jax


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m calibration.serving", description=__doc__)
    parser.add_argument("table", type=Path, help="table of measured serving")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    from calibration.serving.evaluate import error_rows
    from calibration.serving.refit import refit

    words = ["python", "-m", "calibration.serving", given.table.name, "-o", given.out.name]
    for row in error_rows(refit(given.table, given.out, shlex.join(words))):
        told = "  ".join(f"{name} {row[name]:.1%}" for name in ("median", "mean", "p90"))
        print(f"{row['split']:7s} {row['part']:13s} {row['output']} {row['who']:9s} {row['rows']:4d} rows  {told}")


if __name__ == "__main__":
    main()
