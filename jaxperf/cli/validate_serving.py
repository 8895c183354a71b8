"""`jaxperf validate serving [DATA]`: serving latencies on what the fit never saw, roofline and constants beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxperf.cli.validate_shared import one_table, tell

if TYPE_CHECKING:
    from calibration.serving.evaluate import HeldOut

MEASURED = "serving/serving_real.csv.gz"
WHO = ("ours", "constant", "roofline", "recentred")
UNGATED_WHO = WHO[:3]
FIGURES = ("median", "mean", "p90")
WIDTH = 180
PUBLISHED = (
    "aiconfigurator 0.12 on 188 of these points, as published: median TTFT / TPOT dense 44 / 9.7 %, other aggregated "
    "44 / 21 %, disaggregated 69 / 22 %."
)


def validate_serving(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """The error table of serving.

    **Arguments:** `data`: one table of measured serving; by default that of the measured data beside the project.
    """
    from jaxperf.cli.compute import start_jax

    start_jax()
    from calibration.serving.evaluate import SPLITS, error_rows

    path, found = held_out("serving", data, out, quiet, SPLITS)
    record = {
        "file": path.name,
        "configurations": len(found.points),
        "errors": error_rows(found),
        "coverage": coverage_rows(found),
        "ungated": ungated_rows(path, found),
    }
    tell(record, "errors", ("coverage", "ungated"), out, as_json, quiet, _print)


def held_out(
    level: str, data: Sequence[Path], out: Path | None, quiet: bool, splits: Sequence[str]
) -> tuple[Path, HeldOut]:
    """The one table that is given, or that of the measured data, and its configurations held out by each of `splits`.

    **Raises:** `InputError` for two tables, none that is usable, or an `out` that cannot be written.
    """
    from calibration.datasets.serving import read_serving
    from calibration.serving.evaluate import hold_out
    from calibration.serving.refit import measured_points
    from jaxperf.cli.measured import step_log
    from jaxperf.core.sustained_file import load_sustained_table
    from jaxperf.io.tables import check_output

    check_output(out)
    path = one_table(level, data, "measured serving", MEASURED)
    with step_log(quiet) as progress:
        return path, hold_out(measured_points(read_serving(path)), load_sustained_table(), splits, progress)


def coverage_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Share of configurations inside the 90 % interval of the other folds' residuals, by split and output [1]."""
    from calibration.serving.parameters import WIDTHS
    from calibration.serving.refit import TIER_SPLITS, coverage

    return [
        {"split": split, "tier": tier, "output": output, "share": float(share)}
        for tier, splits in TIER_SPLITS.items()
        for split in splits
        for output, share in zip(WIDTHS, coverage(found, split), strict=True)
    ]


def ungated_rows(path: Path, found: HeldOut) -> list[dict[str, Any]]:
    """Errors on benchmarks of the table that state no layout, which no fit sees; none where there are none."""
    from calibration.datasets.serving import read_serving
    from calibration.serving.ungated import ungated_errors, ungated_points
    from jaxperf.core.sustained_file import load_sustained_table

    points = ungated_points(read_serving(path))
    return ungated_errors(points, load_sustained_table(), found) if points else []


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    heads = ("held out", "part", "output", "rows", *(f"{who} median / mean / p90" for who in WHO))
    parts = _together(record["errors"], ("split", "part", "output"))
    out.print(table("Held out: error of measured latencies", heads, [_cells(part, WHO) for part in parts]))
    _print_ungated(out, record["ungated"])
    if not quiet:
        for row in record["coverage"]:
            told = f"in the 90 % interval, {row['split']} held out, {row['output']}: {row['share']:.0%}"
            out.print(told)
        out.print(
            "group: engine and model are known, the layout and lengths are not; model, engine, device: nothing of it "
            "was seen; cap: power-capped twins, of which the fit sees none. constant: the median excess over the "
            "roofline of the same part that was shown; roofline: every efficiency 1, one prompt, nothing waits; "
            "recentred: ours without the median of each series (one model on one engine, release and device), which "
            "none but its measurements tell: what levels alone are worth.",
            soft_wrap=True,
        )
        out.print(PUBLISHED, soft_wrap=True)


def _print_ungated(out: Any, rows: Sequence[dict[str, Any]]) -> None:
    from jaxperf.report.text import table

    errors, devices, orders = ([row for row in rows if name in row] for name in ("scenario", "device", "model"))
    if errors:
        heads = ("scenario", "output", "rows", *(f"{who} median / mean / p90" for who in UNGATED_WHO))
        cells = [_cells(part, UNGATED_WHO) for part in _together(errors, ("scenario", "output"))]
        out.print(table("Layout, format and lengths not stated (MLPerf): never fitted, error", heads, cells))
    if devices:
        told = ", ".join(f"{row['device']} {row['ratio']:.2f} ({row['rows']})" for row in devices)
        out.print(f"offline, predicted over measured tokens/s, median (rows): {told}", soft_wrap=True)
    for row in orders:
        told = f"{row['devices']} devices by tokens/s a device, {row['who']}: Kendall's tau {row['tau']:.2f}"
        out.print(f"offline, {row['model']}, order of {told}", soft_wrap=True)


def _together(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The rows that have these fields in common, all of `who`, the fields first."""
    parts: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        parts.setdefault(key, []).append({**row, "fields": key})
    return list(parts.values())


def _cells(rows: list[dict[str, Any]], who: Sequence[str]) -> tuple[str, ...]:
    own = {row["who"]: row for row in rows}
    errors = (
        " / ".join(f"{own[each][name]:.1%}" for name in FIGURES) if own[each]["rows"] else "too few" for each in who
    )
    return (*rows[0]["fields"], str(rows[0]["rows"]), *errors)
