"""Fit the pace of Gemmini to cycles of its RTL, with layers held out in turn, and write it.

python -m calibration.gemmini DOSA_GEMMINI_FIRESIM.csv -o calibration/fitted/gemmini
"""

from __future__ import annotations

import argparse
import datetime
import shlex
from pathlib import Path

import jax


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m calibration.gemmini", description=__doc__)
    parser.add_argument("table", type=Path, help="table of Gemmini mappings with the cycles of the RTL")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    from calibration.datasets.files import data_hash
    from calibration.gemmini.evaluate import error_rows, hold_out
    from calibration.gemmini.parameters import GemminiParameters, save_gemmini
    from calibration.gemmini.rows import read_rtl
    from calibration.intervals import quantiles

    found = hold_out(read_rtl(given.table))
    errors = error_rows(found)
    rows = {"rows": len(found.rows.measured), "layers": len(set(found.rows.problems))}
    card = {
        "created": datetime.date.today().isoformat(),
        "command": shlex.join(["python", "-m", "calibration.gemmini", given.table.name, "-o", given.out.name]),
        "data": [{"file": given.table.name, "sha256": data_hash(given.table), **rows}],
        "errors": errors,
    }
    save_gemmini(GemminiParameters(found.pace, quantiles(found.residual)[1], card), given.out)
    for row in errors:
        told = "  ".join(f"{name} {row[name]:.1%}" for name in ("median", "mean", "p90"))
        print(f"{row['who']:10s} {row['rows']:4d} rows  {told}  Spearman {row['spearman']:.4f}")


if __name__ == "__main__":
    main()
