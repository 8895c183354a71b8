"""`jaxperf validate edge [DATA...]`: networks on devices never seen, from a few of their latencies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jaxperf.cli.validate_shared import tell

MEASURED = ("edge/help_nasbench201.parquet", "edge/help_fbnet.parquet")
FIGURES = ("median", "mean", "p90")


def validate_edge(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """The error table of small networks.

    **Arguments:** `data`: tables with a column of latencies for each device; by default those of the measured data
    beside the project.
    """
    from calibration.edge.evaluate import read_devices
    from calibration.edge.tables import error_tables
    from jaxperf.cli.measured import shared_table
    from jaxperf.io.tables import check_output

    check_output(out)
    paths = list(data) or [shared_table(name) for name in MEASURED]
    errors = [row for path in paths for row in error_tables(read_devices(path))]
    record = {"files": [path.name for path in paths], "errors": errors}
    tell(record, "errors", ("files",), out, as_json, quiet, _print)


def _print(record: dict[str, Any], quiet: bool) -> None:
    from calibration.edge.tables import LEFT_OUT, MEASURED, UNSEEN
    from jaxperf.report.text import console, table

    titles = {
        UNSEEN: "devices never seen, by networks measured (HELP's protocol)",
        LEFT_OUT: "each machine left out of all",
        MEASURED: "measured devices, every second network held out",
    }
    out = console()
    for (space, kind), rows in groupby(record["errors"], lambda row: (row["space"], row["kind"])):
        cells = [_cells(row) for row in rows]
        heads = ("device", "networks", *FIGURES, "one constant", "Spearman", "MACs'", "HELP's", "inside")
        out.print(table(f"{space}: {titles[kind]}", heads, cells))
    if not quiet:
        out.print(
            "one constant: the median error of latency in proportion to the multiply-accumulates; inside: the share "
            "within the 90 % interval; HELP's: as its repository reports with ten networks",
            soft_wrap=True,
        )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as it is printed; "-" where it does not state a figure."""

    def told(name: str, form: str) -> str:
        return "-" if row.get(name) is None else format(row[name], form)

    figures = (told(name, ".1%") for name in (*FIGURES, "median_macs"))
    ranks = (told(name, ".3f") for name in ("spearman", "spearman_macs", "spearman_help"))
    return row["device"], told("networks", "d"), *figures, *ranks, told("inside", ".0%")
