"""The error table that fitted parameters carry: no refit, so seconds instead of a quarter of an hour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from hwspecs.errors import InputError, did_you_mean

FIGURES = ("median", "mean", "p90", "roofline_median", "constant_median")
COLUMNS = ("family", "devices", "rows", *FIGURES, "worst_device", "worst_median")
HEADS = ("family", "devices", "rows", "median", "mean", "p90", "roofline", "constant", "worst device", "its median")
INTERVAL_COLUMNS = ("family", "device", "rows", "coverage90", "half_width", "interval_score")
INTERVAL_HEADS = ("family", "device", "rows", "inside", "+- median", "interval score")


def show_card(params: Path | None, only: Sequence[str], out: Path | None, as_json: bool) -> None:
    """Print, or write, the errors by family of the splits that `calibrate` scores, and how its intervals cover; of
    the families `only`, where some are named."""
    from calibration.kernels.card import by_family, intervals, pooled, stated_errors
    from calibration.kernels.parameters import load_parameters
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.report.text import console, number, table

    check_output(out)
    errors = stated_errors(load_parameters(params).card)
    if not errors:
        raise InputError("The parameters' card states no errors; without --card they are measured anew.")
    errors = _of_families(errors, only)
    splits = list(dict.fromkeys(row["split"] for row in errors))
    families = [row for split in splits for row in by_family(errors, split)]
    if out is not None:
        write_rows(families, out, {})
    widths = intervals(errors)
    if as_json:
        whole = {split: pooled(errors, split) for split in splits}
        typer.echo(json_text({"families": families, "pooled": whole, "intervals": widths}))
        return
    screen = console()
    for split in splits:
        whole = pooled(errors, split)
        title = (
            f"{split}: errors in percent of the measured time; pooled median {number(whole['median'])} over "
            f"{whole['cells']} families x devices, roofline {number(whole['roofline_median'])}, "
            f"roofline times a constant {number(whole['constant_median'])}"
        )
        rows = [[_told(row[name]) for name in COLUMNS] for row in families if row["split"] == split]
        screen.print(table(title, HEADS, rows))
    for split in dict.fromkeys(row["split"] for row in widths):
        rows = [[_told(row[name]) for name in INTERVAL_COLUMNS] for row in widths if row["split"] == split]
        screen.print(table(f"{split}: 90 % intervals, in percent", INTERVAL_HEADS, rows))


def _of_families(errors: list[dict[str, Any]], only: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the families `only`, of all where none is named. Raises `InputError` for one without a row."""
    there = sorted({row["family"] for row in errors})
    for name in only:
        if name not in there:
            hint = did_you_mean(name, there)
            raise InputError(f"--family: the card states no errors of '{name}'.{hint} It has {', '.join(there)}.")
    return [row for row in errors if row["family"] in (only or there)]


def _told(value: str | float) -> str:
    from jaxperf.report.text import number

    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number(value)
