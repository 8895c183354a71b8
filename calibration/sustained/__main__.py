"""Fit what each device sustains, and write the table that composed steps read.

python -m calibration.sustained DATA... -o calibration/fitted/sustained.json [--params PARAMS]
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from calibration.datasets import read_table
from calibration.kernels.calibrate import gather
from calibration.kernels.parameters import load_parameters
from calibration.sustained.own import own_rates
from calibration.sustained.rows import ENGINES, SERVING
from calibration.sustained.table import save_sustained, sustained
from hwspecs.errors import InputError
from jaxperf.core.sustained_file import load_sustained_table


def main(words: Sequence[str] | None = None) -> None:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(description="Fit what each device sustains, for composed steps.")
    parser.add_argument("data", nargs="+", type=Path, help="tables of measured kernels")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument(
        "--params", type=Path, default=None, help="parameters of jaxperf calibrate: the rates go over the shipped"
    )
    given = parser.parse_args(words)
    told = ["python", "-m", "calibration.sustained", *(path.name for path in given.data), "-o", given.out.name]
    try:
        parameters, reads = load_parameters(given.params), [read_table(path) for path in given.data]
        if given.params is None:
            record = sustained(parameters, gather(reads))
            covered = any(
                entry["devices"] for each in record["families"].values() for entry in each["classes"].values()
            )
        else:
            own = own_rates(parameters, reads, load_sustained_table())
            record, covered = own.record, own.covered
            told += ["--params", given.params.name]
        if not covered:
            raise InputError(
                "no device has enough rows that tell what is sustained in serving (without --params "
                f"{SERVING.least} rows of {', '.join(ENGINES)}): nothing is written."
            )
        print(save_sustained(record, parameters.card.get("sha256"), reads, given.out, shlex.join(told)))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
