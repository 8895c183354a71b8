"""`jaxperf validate collectives [TABLE...]`: sizes, ranks and devices held out, and 24 rows of each new system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxperf.cli.measured import shared_table
from jaxperf.cli.validate_shared import tell

TABLE = "kernels/collectives.parquet"
WIDTH = 150  # of the table: a narrower terminal wraps it, and no figure is cut
WORST = 8  # groups shown of a split, by the mean error
HEADS = {
    "sizes": "Unseen sizes: every third octave held out",
    "ranks": "Unseen rank counts: one number of ranks of a device and operation held out",
    "device": "Unseen device: every row of it held out",
    "24 rows": "New system: its device held out, then 24 of its rows given",
}
METHODS = {"ours": "ours", "alpha_beta": "alpha-beta", "law": "law untuned", "constant": "constant"}
FIGURES = ("median", "mean", "p90")


def validate_collectives(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """The error table of collectives, everything that is called unseen held out and fitted again.

    **Arguments:** `data`: tables of measured collectives; by default that of the measured data beside the project.
    """
    from jaxperf.cli.compute import start_jax

    start_jax()
    from calibration.collectives.adapt import measured_points
    from calibration.collectives.evaluate import evaluate
    from calibration.collectives.rows import measured_collectives
    from calibration.collectives.scores import coverage, error_rows
    from jaxperf.io.tables import check_output

    check_output(out)
    paths = data or [shared_table(TABLE)]
    points, measured = measured_points(measured_collectives(paths))
    found = evaluate(points, measured)
    record = {
        "files": [path.name for path in paths],
        "rows": len(points),
        "coverage": {split: coverage(points, measured, held) for split, held in found.items()},
        "errors": error_rows(points, measured, found),
    }
    tell(record, "errors", ("coverage",), out, as_json, quiet, _print)


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    heads = ("by", "group", "rows", *(f"{name} {'/'.join(FIGURES)}" for name in METHODS.values()))
    for split, title in HEADS.items():
        rows = [row for row in record["errors"] if row["split"] == split]
        if not rows:
            continue
        told = f"{title}; errors in percent, {record['coverage'][split]:.0%} inside the 90 % interval"
        out.print(table(told, heads, [_cells(row) for row in rows[:1] + _worst(rows[1:], quiet)]))
    if not quiet:
        out.print(
            "Kernels and systems with the largest mean error below all rows; times that a source rounds to whole "
            "microseconds are scored beyond half of one. Constant: alpha-beta times the median ratio of what was "
            "fitted. Every row with -o FILE or --json.",
            soft_wrap=True,
        )


def _worst(rows: Sequence[dict[str, Any]], quiet: bool) -> list[dict[str, Any]]:
    """The groups with the largest mean error of each sort; none where quiet."""
    if quiet:
        return []
    sorts = dict.fromkeys(row["by"] for row in rows)
    ordered = sorted(rows, key=lambda row: -row["ours_mean"])
    return [row for sort in sorts for row in [each for each in ordered if each["by"] == sort][:WORST]]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    figures = (" / ".join(f"{100 * row[f'{name}_{figure}']:.1f}" for figure in FIGURES) for name in METHODS)
    return (row["by"], row["name"], f"{row['rows']:,}", *figures)
