"""`jaxperf validate power [DATA]`: power on runs the fit never saw, and power-capped twins; references beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxperf.cli.validate_shared import one_table, tell

MEASURED = "serving/splitwise_perf_model.csv"
WHO = ("ours", "constant", "tdp")
WHO_OF_KERNELS = ("ours", "constant", "tdp", "energies")
WHO_OF_TWINS = ("ours", "unchanged", "cube_root", "in_proportion")
FIGURES = ("median", "mean", "p90")
WIDTH = 150


def validate_power(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """The error tables of power, of power limits, and of single kernels that our harness metered.

    **Arguments:** `data`: one table of requests with their power; by default that of the measured data beside the
    project.
    """
    from jaxperf.cli.compute import start_jax

    start_jax()
    import numpy as np

    from calibration.power.evaluate import doubts, error_rows, hold_out, meets_target
    from calibration.power.metered import metered_errors
    from calibration.power.rows import read_power
    from jaxperf.cli.measured import step_log
    from jaxperf.core.sustained_file import load_sustained_table
    from jaxperf.io.tables import check_output

    check_output(out)
    path = one_table("power", data, "requests with their power", MEASURED)
    table = read_power(path)
    rates = load_sustained_table()
    with step_log(quiet) as progress:
        found = hold_out(table.runs, rates, progress=progress)
    errors = error_rows(found)
    constant = float(np.nanmedian([run.average_power for run in found.runs]))
    record = {
        "file": path.name,
        "runs": len(found.runs),
        "twins": len(found.twins),
        "shares": {name: float(getattr(found.law, name)) for name in ("background", "compute", "memory")},
        "calibrated": meets_target(errors),
        "errors": errors,
        "metered": metered_errors(found.law, rates, constant),
        "doubts": doubts(found),
        "left_out": [{"row": row, "reason": reason} for row, reason in table.reasons.items()],
    }
    tell(record, "errors", [name for name in record if name != "errors"], out, as_json, quiet, _print)


def _print(record: dict[str, Any], quiet: bool) -> None:
    from calibration.power.evaluate import TWIN
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    free = [cells for cells in _by_output(record["errors"]) if cells[0]["split"] != TWIN]
    twins = [cells for cells in _by_output(record["errors"]) if cells[0]["split"] == TWIN]
    heads = ("held out", "output", "runs", *(f"{name} median / mean / p90" for name in WHO))
    title = "Power without a limit, held out: error of the measured power"
    out.print(table(title, heads, [_cells(cells, WHO) for cells in free]))
    heads = ("held out", "output", "runs", *(f"{name} median / mean / p90" for name in WHO_OF_TWINS))
    title = "Power-capped twins, of which the fit sees nothing: error of what the table states"
    out.print(table(title, heads, [_cells(cells, WHO_OF_TWINS) for cells in twins]))
    heads = ("device", "family", "kernels", "watts", *(f"{name} median / mean / p90" for name in WHO_OF_KERNELS))
    title = "Kernels back to back, metered by jaxperf measure, of which no fit sees anything: error of the power"
    out.print(table(title, heads, [_metered(row) for row in record["metered"]]))
    verdict = "calibrated" if record["calibrated"] else "uncalibrated"
    out.print(f"energy: {verdict}")
    if quiet:
        return
    for sentence in record["doubts"]:
        out.print(sentence, soft_wrap=True)
    if record["left_out"]:
        first = record["left_out"][0]["reason"]
        out.print(f"{len(record['left_out'])} rows could not be used. The first: {first}", soft_wrap=True)
    out.print(
        "configuration: no run of a prompt and batch was seen on any number of ranks; ranks: none on so many ranks. "
        "constant: the median share of the TDP of the runs that were shown; tdp: the TDP all the time; cube_root: "
        "prompts take limit^(-1/3) as long; in_proportion: everything 1 / limit as long; energies: those of FLOP and "
        "bytes with the idle power, a lower bound. Energy is calibrated where "
        "the median error of the twins is at most 8 % of each time and 10 % of the average power.",
        soft_wrap=True,
    )


def _by_output(errors: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of every split and output together."""
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in errors:
        parts.setdefault((row["split"], row["output"]), []).append(row)
    return list(parts.values())


def _cells(rows: Sequence[dict[str, Any]], who: Sequence[str]) -> tuple[str, ...]:
    own = {row["who"]: row for row in rows}
    figures = (" / ".join(f"{own[name][figure]:.1%}" for figure in FIGURES) for name in who)
    return (rows[0]["split"], rows[0]["output"], str(rows[0]["rows"]), *figures)


def _metered(row: dict[str, Any]) -> tuple[str, ...]:
    figures = (" / ".join(f"{row[f'{who}_{figure}']:.1%}" for figure in FIGURES) for who in WHO_OF_KERNELS)
    return (row["device"], row["family"], str(row["rows"]), f"{row['watts']:.0f}", *figures)
