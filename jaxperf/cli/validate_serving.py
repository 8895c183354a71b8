"""`jaxperf validate serving [DATA]`: serving latencies on what the fit never saw, roofline and constants beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxperf.cli.validated import one_table, tell

if TYPE_CHECKING:
    from calibration.serving.evaluate import HeldOut

MEASURED = "serving/serving_real.csv.gz"
WHO = ("ours", "constant", "roofline", "recentred")
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
    }
    tell(record, "errors", ("coverage",), out, as_json, quiet, _print)


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


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    heads = ("held out", "part", "output", "rows", *(f"{who} median / mean / p90" for who in WHO))
    out.print(table("Held out: error of measured latencies", heads, [_cells(rows) for rows in _by_part(record)]))
    if not quiet:
        for row in record["coverage"]:
            told = f"in the 90 % interval, {row['split']} held out, {row['output']}: {row['share']:.0%}"
            out.print(told, markup=False)
        out.print(
            "group: engine and model are known, the layout and lengths are not; model, engine, device: nothing of it "
            "was seen; cap: power-capped twins, of which the fit sees none. constant: the median excess over the "
            "roofline of the same part that was shown; roofline: every efficiency 1, one prompt, nothing waits; "
            "recentred: ours without the median of each series (one model on one engine, release and device), which "
            "none but its measurements tell: what levels alone are worth.",
            soft_wrap=True,
        )
        out.print(PUBLISHED, soft_wrap=True)


def _by_part(record: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of every split, part and output together."""
    parts: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in record["errors"]:
        parts.setdefault((row["split"], row["part"], row["output"]), []).append(row)
    return list(parts.values())


def _cells(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    own = {row["who"]: row for row in rows}
    figures = (" / ".join(f"{own[who][name]:.1%}" for name in FIGURES) for who in WHO)
    return (rows[0]["split"], rows[0]["part"], rows[0]["output"], str(rows[0]["rows"]), *figures)
