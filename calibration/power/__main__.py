"""Fit the power law, with configurations and numbers of ranks held out in turn, and write it.

python -m calibration.power SPLITWISE_PERF_MODEL.csv -o calibration/fitted/power
"""

from __future__ import annotations

import argparse
import datetime
import shlex
from pathlib import Path

import jax


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m calibration.power", description=__doc__)
    parser.add_argument("table", type=Path, help="table of requests with their power")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    from calibration.datasets.files import data_hash
    from calibration.power.evaluate import error_rows, hold_out, meets_target
    from calibration.power.parameters import PowerParameters, save_power
    from calibration.power.rows import read_power
    from jaxperf.core.sustained_file import load_sustained_table

    words = ["python", "-m", "calibration.power", given.table.name, "-o", given.out.name]
    rates = load_sustained_table()
    found = hold_out(read_power(given.table).runs, rates, progress=print)
    errors = error_rows(found)
    card = {
        "created": datetime.date.today().isoformat(),
        "command": shlex.join(words),
        "data": [{"file": given.table.name, "sha256": data_hash(given.table), "runs": len(found.runs)}],
        "rates": rates.path,
        "errors": errors,
    }
    devices = tuple(sorted({run.device.name for run in found.runs}))
    save_power(PowerParameters(found.law, meets_target(errors), devices, card), given.out)
    for row in errors:
        told = "  ".join(f"{name} {row[name]:.1%}" for name in ("median", "mean", "p90"))
        print(f"{row['split']:13s} {row['output']:13s} {row['who']:13s} {row['rows']:4d} runs  {told}")


if __name__ == "__main__":
    main()
