"""`jaxperf validate gemmini [DATA]`: cycles of Gemmini's RTL on layers that the fit never saw, Timeloop's beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxperf.cli.validate_shared import one_table, tell

MEASURED = "edge/dosa_gemmini_firesim.csv.gz"
FIGURES = ("median", "mean", "p90")
PUBLISHED = "as published: DOSA's model 26 % mean, a sum of rooflines fitted on half of the rows 17.5 %."


def validate_gemmini(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """The error table of Gemmini's cycles.

    **Arguments:** `data`: one table of mappings with RTL cycles; by default that of the measured data beside the
    project.
    """
    from jaxperf.cli.compute import start_jax

    start_jax()
    from calibration.gemmini.evaluate import error_rows, hold_out
    from calibration.gemmini.rows import read_rtl
    from jaxperf.io.tables import check_output

    check_output(out)
    path = one_table("gemmini", data, "mappings with cycles of the RTL", MEASURED)
    found = hold_out(read_rtl(path))
    record = {
        "file": path.name,
        "rows": len(found.rows.measured),
        "layers": len(set(found.rows.problems)),
        "pace": found.pace._asdict(),
        "errors": error_rows(found),
    }
    tell(record, "errors", ("file", "pace"), out, as_json, quiet, _print)


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    cells = [
        (row["who"], f"{row['rows']:,}", *(f"{row[name]:.1%}" for name in FIGURES), f"{row['spearman']:.4f}")
        for row in record["errors"]
    ]
    title = f"Cycles of {record['rows']:,} mappings of {record['layers']} layers, each layer held out in turn"
    out.print(table(title, ("model", "rows", *FIGURES, "Spearman"), cells))
    if not quiet:
        out.print(
            "ours: fitted without the row's layer; timeloop: as the table states it; constant: the median multiple of "
            f"it on the other layers; {PUBLISHED}",
            soft_wrap=True,
        )
