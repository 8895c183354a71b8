"""Learn what tells measured devices apart, with devices held out by HELP's protocol, and write it.

python -m calibration.edge HELP_NASBENCH201.parquet HELP_FBNET.parquet -o calibration/fitted/edge
"""

from __future__ import annotations

import argparse
import datetime
import shlex
from pathlib import Path

import numpy as np

from calibration.datasets.files import data_hash
from calibration.edge.evaluate import Measured, choose, known_devices, measured_residuals, read_devices, widths
from calibration.edge.parameters import EdgeParameters, Known, save_edge
from calibration.edge.prior import fit_prior
from calibration.edge.tables import error_tables
from calibration.intervals import quantiles


def learn(data: Measured) -> Known:
    """All devices of a table, with what their errors on networks and devices held out say of the intervals."""
    freedom = choose(data, known_devices(data))
    latency = np.column_stack(list(data.latency.values()))
    prior = fit_prior(list(data.latency), data.features, data.work, latency, freedom)
    measured = {name: quantiles(each)[1] for name, each in measured_residuals(data, freedom).items()}
    return Known(prior, measured, widths(data, prior))


def main() -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m calibration.edge", description=__doc__)
    parser.add_argument("tables", type=Path, nargs="+", help="networks with a column of latencies for every device")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    data = {path: read_devices(path) for path in given.tables}
    tables = [error_tables(each) for each in data.values()]
    card = {
        "created": datetime.date.today().isoformat(),
        "command": shlex.join(
            ["python", "-m", "calibration.edge", *(path.name for path in given.tables), "-o", given.out.name]
        ),
        "data": [{"file": path.name, "sha256": data_hash(path), "rows": len(each.work)} for path, each in data.items()],
        "errors": [row for table in tables for row in table],
    }
    save_edge(EdgeParameters({each.space: learn(each) for each in data.values()}, card), given.out)


if __name__ == "__main__":
    main()
